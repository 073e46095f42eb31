"""Tracing: a net as a list of steps, with every op represented by a module.

The net is run on batches of two sizes (:mod:`sdp_ref.graph.recording`), and the two tapes are
compared: their differences show what depends on the batch. Each value is converted to shape (N, *event),
regardless of the batch dimension in the net. A layer-wise rule therefore needs one handler per op, and no
handlers for ops that only move components.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.activations import ELEMENTWISE
from sdp_ref.activations.pointwise import Apply
from sdp_ref.errors import NoFormulaError, message_of
from sdp_ref.graph.affine import AFFINE
from sdp_ref.graph.aten.call import Call
from sdp_ref.graph.aten.table import KNOWN, builder_of
from sdp_ref.graph.nonlinear import MAX_POOLS
from sdp_ref.graph.ops import Unknown
from sdp_ref.graph.recording import (
    Entry,
    Ref,
    Span,
    Tape,
    UntraceableError,
    by_ordinary_ops,
    leaves,
    memory_of,
    record,
)
from sdp_ref.graph.replay import (
    Composition,
    Fusion,
    Layout,
    Multiple,
    PerExample,
    Replay,
    Step,
    Value,
    Varies,
    batch_dimension,
    last_uses,
    row_of,
)
from sdp_ref.graph.state import attributes_of, watched

__all__ = ["Net", "Step", "Trace", "UntraceableError", "last_uses", "trace", "traced"]

Net = Callable[[Tensor], Tensor]

_SIZES = (2, 3)  # batch sizes; a size of one could not be distinguished from other dimensions
_WHOLE = (*AFFINE, *ELEMENTWISE, *MAX_POOLS, nn.Identity, nn.Dropout, nn.Softmax, nn.LayerNorm)
_SAME = 1e-2  # an incorrect step is off by about its own size, and rounding by much less
_ROUNDINGS = 10.0  # an op rounds by a few units in the last place


@dataclass(frozen=True)
class Trace:
    """The steps of a net, in order of execution, and whether they still hold.

    Steps share the parameters that ops read, so they follow changes in place. ``current()`` is False after
    other changes: of modules, parameters or attributes that were replaced, and of the values of tensors that
    the net, or the trace, computes constants from.
    """

    steps: list[Step]
    current: Callable[[], bool]


def trace(net: Net, like: Tensor, whole: Collection[type[nn.Module]] = _WHOLE) -> list[Step]:
    """Trace `net` to steps, in order of execution, for inputs of the shape of `like`."""
    return traced(net, like, whole).steps


def traced(net: Net, like: Tensor, whole: Collection[type[nn.Module]]) -> Trace:
    """Trace `net` to steps, with what they depend on."""
    # constants need a graph whenever the rule is called with gradients
    with warnings.catch_warnings(), torch.inference_mode(False), torch.enable_grad():
        warnings.simplefilter("ignore")  # the net will give its warnings when it is run
        kinds = frozenset(whole)
        first = _recorded(net, like, _SIZES[0], kinds)
        attributes = attributes_of(first.modules)
        second = _recorded(net, like, _SIZES[1], kinds)
        reader = _Reader(first, second)
        steps = reader.read()
        current = watched(first.modules, attributes, reader.shared.values(), list(reader.sources.values()))
        _check(steps, second)
    return Trace(steps, current)


def _recorded(net: Net, like: Tensor, size: int, whole: Collection[type[nn.Module]]) -> Tape:
    try:
        return record(net, _example(net, like, size), KNOWN, whole)
    except UntraceableError:
        raise
    except Exception as error:
        with torch.no_grad():
            net(_example(net, like, len(like)))  # errors of the net or its inputs are passed through
        raise UntraceableError(
            f"a net that cannot be run on a batch of {size} ({message_of(error)})"
        ) from error


def _example(net: Net, like: Tensor, size: int) -> Tensor:
    """Return inputs of the shape and on the device of `like`, in the dtype of the net."""
    weight = None
    if isinstance(net, nn.Module):
        weight = next((p for p in net.parameters() if p.is_floating_point()), None)
    dtype, device = (like.dtype, like.device) if weight is None else (weight.dtype, weight.device)
    generator = torch.Generator().manual_seed(size)
    numbers = torch.randn(size, *like.shape[1:], generator=generator, dtype=torch.float64)
    return numbers.to(device=device, dtype=dtype)


class _Reader:
    """Converts two tapes of a net to steps, entry by entry."""

    def __init__(self, first: Tape, second: Tape) -> None:
        pairs = list(itertools.zip_longest(first.entries, second.entries))
        alike = all(a and b and a.function is b.function and a.outputs == b.outputs for a, b in pairs)
        if not alike or first.output != second.output:
            raise UntraceableError("a net whose control flow depends on the size of the batch")
        self.first, self.second = first, second
        self.steps: list[Step] = []
        event = tuple(first.given.shape)
        self.values: dict[int, Value] = {0: Value(0, Layout(), event)}
        self.dtype = first.given.dtype
        self.fusion = Fusion()
        self.last_use: dict[int, int] = {first.output: len(first.entries)}
        self.roots: dict[int, list[Tensor]] = {}  # for each value, roots of the constants of its op
        self.shared: dict[int, Tensor] = {}  # tensors that steps read at each call
        # tensors with values that steps depend on
        self.sources: dict[int, Tensor] = {id(tensor): tensor for tensor in first.read}

    def read(self) -> list[Step]:
        """Return the steps that the output depends on."""
        entries = [
            replace(a, args=_same(a.args, b.args), kwargs=_same(a.kwargs, b.kwargs))
            for a, b in zip(self.first.entries, self.second.entries, strict=True)
        ]
        for position, entry in enumerate(entries):
            for index in _refs((entry.args, entry.kwargs)):
                self.last_use[index] = position
        spans: dict[int, Span] = {}
        for call in self.first.spans:  # of several spans with one start, the outermost, which ends last
            if call.stop > call.start:
                spans[call.start] = call
        position = 0
        while position < len(entries):
            span = spans.get(position)
            if span is not None and self._taken_whole(span):
                position = span.stop
            else:
                self._step(position, entries[position])
                position += 1
        output = self.values[self.first.output]
        unknown = output.index > 0 and isinstance(self.steps[output.index - 1].module, Unknown)
        if output.layout != Layout() and not (unknown and output.layout is None):
            raise UntraceableError("a net that does not keep the batch dimension")
        return _needed(self.steps, output.index)

    def _taken_whole(self, span: Span) -> bool:
        """Turn a module call into one step if its values are batch first and no inner value is read later."""
        entries = self.first.entries[span.start : span.stop]
        made = {}  # position in the tape of each value, and which output of its entry it is
        for position, entry in enumerate(entries, span.start):
            for which, output in enumerate(entry.outputs):
                if output is not None:
                    made[output] = position, which
        inner = made.keys() - {span.output}
        if span.output not in made or any(self.last_use.get(o, -1) >= span.stop for o in inner):
            return False
        taken = [self.values[i] for i in span.inputs]
        shape, layout = self._formed(*made[span.output], taken)
        if layout != Layout() or not all(v.layout == Layout() for v in taken):
            return False
        inputs = tuple(v.index for v in taken)
        self.steps.append(Step(span.module, inputs, span.path))
        if any(isinstance(attribute, Tensor) for attribute in vars(span.module).values()):
            for position in range(span.start, span.stop):  # such as a weight that the net computed
                self._depend(self.first.entries[position].sources, self._constants(position))
        self.values[span.output] = whole = Value(len(self.steps), layout, shape)
        if span.stop - span.start == 1:
            (entry,) = entries
            values = dict(zip(span.inputs, taken, strict=True))
            self.fusion.note(span.output, Replay(entry, 0, values, layout, self.dtype), whole)
            self.roots[span.output] = [*self._constants(span.start), *self.first.entries[span.start].sources]
        return True

    def _formed(
        self, position: int, which: int, taken: Iterable[Value]
    ) -> tuple[tuple[int, ...], Layout | None]:
        """Shape of an output, and location of the batch in it if it follows from shapes and inputs."""
        first = self.first.entries[position].shapes[which]
        second = self.second.entries[position].shapes[which]
        batch = batch_dimension(first, second, _SIZES)
        if batch is None:
            return first, None
        dim, folded = batch
        if folded == 1:
            return first, Layout(dim)
        like = next((v.layout for v in taken if v.layout is not None and v.layout.folded == folded), None)
        return first, Layout(dim, 1, folded) if like is None else Layout(dim, like.outer, like.inner)

    def _step(self, position: int, entry: Entry) -> None:
        """Add the steps of one entry, or an unknown one."""
        taken = {i: self.values[i] for i in _refs((entry.args, entry.kwargs))}
        before = len(self.steps)
        roots = self._constants(position)
        self._depend(entry.sources)
        self.roots.update(dict.fromkeys((o for o in entry.outputs if o is not None), roots))
        for which, output in enumerate(entry.outputs):
            if output is None:
                continue
            shape, layout = self._formed(position, which, taken.values())
            replay = Replay(entry, which, taken, layout, self.dtype)
            self.fusion.note(output, replay, Value(0, layout, shape))
            self.values[output] = self._output(output, replay, shape)
        held = {memory_of(tensor) for step in self.steps[before:] for tensor in _tensors(step.module)}
        if held == {memory_of(root) for root in roots}:
            self.shared |= {id(root): root for root in roots}
        else:
            self._depend(roots)

    def _constants(self, position: int) -> list[Tensor]:
        """Roots of the constants that an entry reads directly or as views."""
        first, second = self.first.entries[position], self.second.entries[position]
        roots = {}
        first_leaves, second_leaves = leaves((first.args, first.kwargs)), leaves((second.args, second.kwargs))
        for first_leaf, second_leaf in zip(first_leaves, second_leaves, strict=False):
            if not (isinstance(first_leaf, Tensor) and isinstance(second_leaf, Tensor)):
                continue
            root = self.first.roots.get(memory_of(first_leaf))
            if root is None:
                continue
            roots[id(root)] = root
            if memory_of(first_leaf) != memory_of(second_leaf):  # made by other ways than torch's ops
                states = ((*m.parameters(), *m.buffers()) for m in self.first.modules)
                roots |= {id(tensor): tensor for state in states for tensor in state}
        return list(roots.values())

    def _depend(self, *tensors: Iterable[Tensor]) -> None:
        """Note that steps depend on the values of tensors."""
        self.sources |= {id(tensor): tensor for some in tensors for tensor in some}

    def _output(self, output: int, replay: Replay, shape: tuple[int, ...]) -> Value:
        """Add the steps of one output of an entry, or an unknown one."""
        before, path = len(self.steps), replay.entry.path

        def emit(module: nn.Module, *values: Value) -> Value:
            self.steps.append(Step(module, tuple(v.index for v in values), path))
            return Value(len(self.steps), values[0].layout, values[0].shape)

        text = self._refused(replay)
        if not text:
            try:
                return self._made(output, Call(replay, shape, emit, self.steps))
            except NoFormulaError as error:
                text = str(error)
            except (TypeError, ValueError, IndexError, RuntimeError) as error:
                text = f"{replay.name} with these arguments ({message_of(error)})"
        del self.steps[before:]
        function, taken = replay if replay.works else None, list(replay.taken)
        fused = self.fusion.of_real(output) if function and self.fusion.reads_truths(replay) else None
        if fused is not None:
            self._fuse(fused)
            unknown, taken = Unknown(text, fused, pointwise=True), list(fused.sources)
        else:
            unknown = Unknown(text, function, replay.pointwise)
        self.steps.append(Step(unknown, tuple(self.values[i].index for i in taken), path))
        return Value(len(self.steps), replay.layout, shape)

    def _made(self, output: int, call: Call) -> Value:
        """Add the steps of an output that is known."""
        replay, build = call.replay, builder_of(call.replay.entry)
        if build is None or self.fusion.is_one(replay):
            fused = self.fusion.of_one(output)
            if fused is not None:
                self._fuse(fused)
                (source,) = fused.sources
                module = Apply(fused, fused.bends(), replay.name)
                return call.made(call.emit(module, self.values[source]))
        if self.fusion.reads_truths(replay):
            raise NoFormulaError(f"{replay.name} by comparisons of several values")
        if build is None:
            raise NoFormulaError(replay.name)
        args, kwargs = call.arguments()
        return build(call, *args, **kwargs)

    def _fuse(self, fused: Composition) -> None:
        """Note the constants of ops that are fused, whose values determine kinks."""
        for node in fused.nodes:
            self._depend(self.roots[node.output])

    @staticmethod
    def _refused(replay: Replay) -> str:
        """Return why an entry is not supported for any op, or ""."""
        entry = replay.entry
        if entry.draws:
            return f"{replay.name}, which draws random numbers"
        if any(v.layout is None for v in replay.taken.values()):
            return f"{replay.name} of a value without a batch dimension"
        if not entry.real[replay.which]:
            return f"{replay.name}, which gives no real numbers"
        if any(isinstance(v, Varies) for v in leaves((entry.args, entry.kwargs))):
            return f"{replay.name} with constants that differ from example to example"
        return ""


def _same(a: Any, b: Any) -> Any:
    """Unify arguments of two tapes; those that depend on the batch size become expressions."""
    differs = UntraceableError("a net whose arithmetic depends on the size of the batch")
    if isinstance(a, dict):
        return {k: _same(v, b[k]) for k, v in a.items()}
    if isinstance(a, tuple | list):
        if len(a) != len(b):
            raise differs
        return type(a)(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a is b or (a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()):
            return a
        if a.shape == b.shape:
            same = torch.equal(a, b) or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
            return a if same else Varies()
        row = row_of(a, b, _SIZES)
        return Varies() if row is None else PerExample(*row)
    if isinstance(a, int) and isinstance(b, int) and a != b:
        factor, rest = divmod(a, _SIZES[0])
        if rest or factor * _SIZES[1] != b:
            raise differs
        return Multiple(factor)
    both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
    if type(a) is not type(b) or not (a is b or both_nan or _equal(a, b)):
        raise differs
    return a


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except RuntimeError:  # objects of C++, such as the weights of a quantised layer, whose op has no handler
        return True


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    """Tensors that a module holds, as parameters, buffers or other attributes."""
    yield from module.parameters()
    yield from module.buffers()
    for part in module.modules():
        yield from (value for value in vars(part).values() if isinstance(value, Tensor))


def _refs(tree: Any) -> list[int]:
    return list(dict.fromkeys(leaf.index for leaf in leaves(tree) if isinstance(leaf, Ref)))


@torch.no_grad()
def _check(steps: Sequence[Step], tape: Tape) -> None:
    """Compare the steps with the net, in case a computation bypassed the tape."""
    modules = [step.module for step in steps]
    if any(isinstance(m, Unknown) or (m.training and _differs_in_training(m)) for m in modules):
        return
    values = [tape.given]
    try:
        with by_ordinary_ops():  # those of the tape, so that no net amplifies a difference of rounding
            for step in steps:
                values.append(step.module(*[values[i] for i in step.inputs]))
    except NoFormulaError:
        return  # a handler will report it with its path
    outputs, expected = values[-1].double(), tape.result.double()
    digits = torch.finfo(tape.result.dtype)
    if outputs.shape == expected.shape:
        equal = (outputs == expected) | (outputs.isnan() & expected.isnan())
        error = torch.where(equal, 0.0, (outputs - expected).abs())
        # relative to each output, and where it is 0 to the rounding of the others
        size = expected.abs().nan_to_num(0, 0, 0)
        largest = size.amax() if size.numel() else 0.0
        allowed = _SAME * (size + size.amax(0)) + _ROUNDINGS * digits.eps * largest + digits.tiny
        if bool((error <= allowed).all()):  # comparisons with NaN are false
            return
    raise UntraceableError("a net that reads its input by other ways than torch's ops (NumPy, say)")


def _differs_in_training(module: nn.Module) -> bool:
    return not isinstance(module, nn.Linear) and bool(
        isinstance(module, nn.modules.dropout._DropoutNd | nn.modules.batchnorm._NormBase)
        or "BatchNorm" in type_before_parametrizations(module).__name__
    )


def _needed(steps: list[Step], output: int) -> list[Step]:
    """Steps that value `output` depends on, renumbered."""
    needed = {output}
    for index in range(output, 0, -1):
        if index in needed:
            needed.update(steps[index - 1].inputs)
    results = sorted(needed - {0})
    new_number = {index: number for number, index in enumerate([0, *results])}
    kept = [steps[index - 1] for index in results]
    return [replace(step, inputs=tuple(new_number[i] for i in step.inputs)) for step in kept]
