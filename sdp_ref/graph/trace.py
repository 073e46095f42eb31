"""A net as a list of steps: its torch.fx trace with every op named by a module.

Functional forms (``F.relu``, ``x.relu()``, ``F.linear``, ``x + 1`` ...) become the module that does
the same, so that a layer-wise rule needs one handler per op and no second one per spelling.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.functions import BATCH, FUNCTIONS, Size, Value
from sdp_ref.graph.ops import Rearrange, Unknown

Net = Callable[[Tensor], Tensor]


class UntraceableError(ValueError):
    """torch.fx cannot turn the net into a list of ops."""


@dataclass(frozen=True)
class Step:
    """One op of a traced net.

    Attributes
    ----------
    module : nn.Module
        What is computed. Shares its parameters with the net.
    inputs : tuple of int
        Which earlier values it takes: 0 is the net's input, k the result of step k.
    path : str
        Where it stands in the net, for messages.
    """

    module: nn.Module
    inputs: tuple[int, ...]
    path: str


class _Functional(nn.Module):
    """A function of one tensor as a net."""

    def __init__(self, function: Net) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


_IN_PLACE_OPERATORS: dict[Any, Callable[..., Any]] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}
_ON_SIZES = {
    operator.add,
    operator.iadd,
    operator.sub,
    operator.isub,
    operator.mul,
    operator.imul,
    operator.floordiv,
    operator.getitem,
}


def trace(net: Net) -> list[Step]:
    """Trace `net` into steps, in the order in which it computes them.

    Parameters
    ----------
    net : nn.Module or function of one tensor
        Left as it is.

    Returns
    -------
    list of Step
        The last one gives the net's output, and each is needed for it. Empty for a net that
        returns its input.

    Raises
    ------
    UntraceableError
        If torch.fx cannot trace the net (its control flow depends on values, say), or the net
        does not map one tensor to one tensor.
    """
    module = net if isinstance(net, nn.Module) else _Functional(net)
    for path, part in module.named_modules():
        if part._forward_hooks or part._forward_pre_hooks:
            raise UntraceableError(f"a net with forward hooks (at '{path}')")
    try:
        graph_module = _trace(module)
    except (fx.proxy.TraceError, TypeError, RuntimeError, AttributeError, NameError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UntraceableError(f"a net that torch.fx cannot trace ({reason})") from error
    return _Reader(graph_module).read()


class _Reader:
    """Turns the nodes of a trace into steps, one after the other."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        self.graph_module = graph_module
        self.modules = dict(graph_module.named_modules())
        self.steps: list[Step] = []
        self.value: dict[fx.Node, int] = {}
        self.known: dict[fx.Node, Any] = {}  # constants and sizes
        self.order = {node: i for i, node in enumerate(graph_module.graph.nodes)}
        self.storage: dict[fx.Node, set[fx.Node]] = {}  # who shares its memory
        self.same: dict[fx.Node, set[fx.Node]] = {}  # who is the same tensor

    def read(self) -> list[Step]:
        """Return the steps that the output needs."""
        for node in self.graph_module.graph.nodes:
            if node.op == "placeholder":
                if self.value:
                    raise UntraceableError("a net of several arguments")
                self._bind(node, 0)
            elif node.op == "get_attr":
                self.known[node] = operator.attrgetter(str(node.target))(self.graph_module)
            elif node.op == "output":
                result = node.args[0]
                if not isinstance(result, fx.Node) or result not in self.value:
                    raise UntraceableError("a net that does not return one tensor made from its input")
                return _needed(self.steps, self.value[result])
            elif not self._fold(node):
                self._step(node)
        raise UntraceableError("a net that returns nothing")

    def _fold(self, node: fx.Node) -> bool:
        """Compute what depends on constants and sizes alone; say whether it did."""
        sizes = self._size_of(node)
        if sizes is not None:
            self.known[node] = sizes
        elif self._is_constant(node):
            self._compute(node)
        return node in self.known

    def _is_constant(self, node: fx.Node) -> bool:
        """Whether an op reads nothing but constants, and writes over none of them."""
        inputs = node.all_input_nodes
        name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
        if node.op == "call_module" or not all(n in self.known for n in inputs) or str(name).endswith("_"):
            return False
        arguments = [self.known[n] for n in inputs]
        if any(isinstance(a, Size) or a is BATCH for a in arguments):
            return False
        return self._arguments(node)[1].get("inplace", False) is not True

    def _compute(self, node: fx.Node) -> None:
        """Note what an op makes of constants; one that refuses them, or draws random numbers, stays an op."""
        args, kwargs = self._arguments(node)
        before = _generator_states()
        try:
            if node.op == "call_method":
                result = getattr(args[0], str(node.target))(*args[1:], **kwargs)
            else:  # out of place, for the net is left as it is
                function: Any = _IN_PLACE_OPERATORS.get(node.target, node.target)
                result = function(*args, **kwargs)
        except (TypeError, RuntimeError, AttributeError, IndexError):
            return
        after = _generator_states()
        if not all(torch.equal(a, b) for a, b in zip(before, after, strict=True)):  # draws are no constants
            torch.set_rng_state(before[0])
            if len(before) > 1:
                torch.cuda.set_rng_state_all(before[1:])
            return
        self.known[node] = result

    def _size_of(self, node: fx.Node) -> Any:
        """Size or shape that a node stands for, None if it is something else."""
        first = node.args[0] if node.args else None
        asked = None
        if isinstance(first, fx.Node) and first in self.value:
            asked = _asked_size(node, self.value[first])
        if asked is None and node.op == "call_function" and node.target in _ON_SIZES and not node.kwargs:
            return _computed_size(node.target, self._arguments(node)[0])
        return asked

    def _arguments(self, node: fx.Node) -> tuple[list[Any], dict[str, Any]]:
        def given(n: fx.Node) -> Any:
            return Value(self.value[n]) if n in self.value else self.known.get(n, n)

        args = fx.node.map_arg(node.args, given)
        kwargs = fx.node.map_arg(node.kwargs, given)
        return list(args), dict(kwargs)

    def _step(self, node: fx.Node) -> None:
        """Add the steps of one node, or an unknown one."""
        path = str(node.target).removeprefix("net.") if node.op == "call_module" else _path(node)
        inputs = tuple(self.value[n] for n in node.all_input_nodes if n in self.value)
        args, kwargs = self._arguments(node)
        before = len(self.steps)

        def emit(module: nn.Module, *values: Any) -> Value:
            if not values or not all(isinstance(v, Value) for v in values):
                raise TypeError("not a value")
            self.steps.append(Step(module, tuple(v.index for v in values), path))
            return Value(len(self.steps))

        in_place = self._in_place(node, args, kwargs)
        if in_place and not self._may_write(node):
            unknown = f"{_describe(node)} over a value of which a view is read later"
        else:
            unknown = self._unknown_unless_emitted(node, emit, args, kwargs)
            if not unknown and len(self.steps) == before:  # an op that gives back what it took
                unknown = f"{_describe(node)} with these arguments"
        if unknown:
            del self.steps[before:]
            self.steps.append(Step(Unknown(unknown), inputs, path))
        self._bind(node, len(self.steps), in_place=in_place)

    def _unknown_unless_emitted(
        self, node: fx.Node, emit: Callable[..., Value], args: list[Any], kwargs: dict[str, Any]
    ) -> str:
        """Add the steps that a node stands for; what is unknown about it, "" if nothing is."""
        if node.op == "call_module":
            module = self.modules[str(node.target)]
            if kwargs:
                args = [*args, *kwargs.values()] if not args else [*args, None]
            try:
                emit(module, *args)
            except TypeError:
                return f"{type(module).__name__} with these arguments"
        elif node.target not in FUNCTIONS:
            return _describe(node)
        else:
            try:
                FUNCTIONS[node.target](emit, *args, **kwargs)
            except NoFormulaError as error:
                return str(error)
            except (TypeError, IndexError):
                return f"{_describe(node)} with these arguments"
        return ""

    def _in_place(self, node: fx.Node, args: list[Any], kwargs: dict[str, Any]) -> bool:
        """Whether an op writes its result over its first input."""
        first = node.args[0] if node.args else None
        if not isinstance(first, fx.Node) or first not in self.value:
            return False
        if node.op == "call_module":
            return bool(getattr(self.modules[str(node.target)], "inplace", False))
        name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
        asked = getattr(FUNCTIONS.get(node.target), "inplace", None)
        flagged = asked(*args[1:], **kwargs) if asked else kwargs.get("inplace", False) is True
        return flagged or str(name).endswith("_") or node.target in _IN_PLACE_OPERATORS

    def _may_write(self, node: fx.Node) -> bool:
        """Whether nobody will read, by another view of it, what an op is about to write over."""
        first = cast(fx.Node, node.args[0])  # `_in_place` has looked
        others = self.storage[first] - self.same[first]
        return not any(self.order[user] > self.order[node] for other in others for user in other.users)

    def _bind(self, node: fx.Node, value: int, *, in_place: bool = False) -> None:
        """Note which value a node is, and with whom it shares its memory."""
        self.value[node] = value
        self.same[node], self.storage[node] = {node}, {node}
        first = node.args[0] if node.args else None
        if not isinstance(first, fx.Node) or first not in self.same:
            return
        module = self.steps[value - 1].module
        copied = node.target in ("clone", torch.clone)
        alike = isinstance(module, nn.Identity | nn.modules.dropout._DropoutNd) and not copied
        if in_place or (alike and node.target != "contiguous"):
            self.same[node] = self.same[first]
            self.same[node].add(node)
        if in_place or alike or isinstance(module, nn.Flatten | nn.Unflatten | Rearrange):
            self.storage[node] = self.storage[first]
            self.storage[node].add(node)
        if in_place:  # whoever reads its input from here on reads the result
            refused = isinstance(module, Unknown)
            for other in self.storage[node] if refused else self.same[node]:
                self.value[other] = value


def _generator_states() -> list[Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ())]


def _asked_size(node: fx.Node, value: int) -> Any:
    """Size or shape that an op asks of a value, None if it does something else."""
    shape = Size(value, lambda s: s)
    if node.op == "call_method" and node.target == "size":
        dims = [*node.args[1:], *node.kwargs.values()]
        return _dimension(shape, dims[0]) if dims else shape
    asks = node.op == "call_function" and node.target is getattr and node.args[1] == "shape"
    return shape if asks else None


def _computed_size(function: Any, args: list[Any]) -> Any:
    """Size that a function makes of sizes of one value, None if they are none."""
    if len(args) != 2 or not any(isinstance(a, Size) for a in args):
        return None
    a, b = args
    if function is operator.getitem:
        return _dimension(a, b) if isinstance(b, int) else None
    owners = {v.of for v in (a, b) if isinstance(v, Size)}
    if len(owners) != 1 or any(not isinstance(v, int | Size) for v in (a, b)):
        return None
    return Size(owners.pop(), lambda s: function(_number_of(a, s), _number_of(b, s)))


def _dimension(shape: Size, dim: Any) -> Any:
    if dim == 0:
        return BATCH
    return Size(shape.of, lambda s: shape.get(s)[dim])


def _number_of(value: Any, shape: torch.Size) -> Any:
    return value.get(shape) if isinstance(value, Size) else value


def _needed(steps: list[Step], output: int) -> list[Step]:
    """Steps that value `output` is made from, numbered anew."""
    needed = {output}
    for index in range(output, 0, -1):
        if index in needed:
            needed.update(steps[index - 1].inputs)
    number = {0: 0} | {index: place for place, index in enumerate(sorted(needed - {0}), start=1)}
    kept = [steps[index - 1] for index in sorted(needed - {0})]
    return [replace(step, inputs=tuple(number[i] for i in step.inputs)) for step in kept]


def last_uses(steps: Sequence[Step]) -> list[frozenset[int]]:
    """For each step the values that nobody reads after it (never the output)."""
    last: dict[int, int] = {}
    for place, step in enumerate(steps):
        last.update(dict.fromkeys(step.inputs, place))
    return [frozenset(i for i in step.inputs if last[i] == place) for place, step in enumerate(steps)]


def _trace(module: nn.Module) -> fx.GraphModule:
    root = _Wrapped(module)  # a bare layer of torch.nn is a leaf only inside another module
    return fx.GraphModule(root, _Tracer().trace(root))


class _Proxy(fx.Proxy):
    """Notes in-place operators as such, where torch.fx takes ``x += y`` for ``x = x + y``."""

    def __iadd__(self, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", operator.iadd, (self, other), {})

    def __isub__(self, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", operator.isub, (self, other), {})

    def __imul__(self, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", operator.imul, (self, other), {})

    def __itruediv__(self, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", operator.itruediv, (self, other), {})


class _Tracer(fx.Tracer):
    """Takes what a function closes over: parameters and modules that are not the net's own."""

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def path_of_module(self, mod: nn.Module) -> str:
        if not any(mod is m for m in self.root.modules()):
            self.root.add_module(f"closed_over_{len(list(self.root.children()))}", mod)
            self.submodule_paths = {m: name for name, m in self.root.named_modules()}
        return super().path_of_module(mod)

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, nn.Parameter) and not any(a is p for p in self.root.parameters()):
            self.root.register_parameter(f"closed_over_{len(list(self.root.parameters(recurse=False)))}", a)
        return super().create_arg(a)


class _Wrapped(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x)
        return y


def _describe(node: fx.Node) -> str:
    target = node.target
    if node.op == "call_method":
        return f"Tensor.{target}"
    return getattr(target, "__name__", str(target))


def _path(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    inside = next(reversed(stack), "") if stack else ""
    inside = str(inside).removeprefix("net").removeprefix(".")
    return f"{inside}.{node.name}" if inside else node.name
