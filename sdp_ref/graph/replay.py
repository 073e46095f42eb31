"""Ops of a tape as functions of values (N, *event) for any N, alone or fused, and the steps of a net.

Nets move the batch: sequences first, heads folded into it, windows. Every value of a trace is stored as
(N, *event); a layout describes its shape in the net.

The result of a comparison has no law; but ``where(x > 0, f(x), g(x))`` is a function of x, with moments like
any other. An op that reads booleans, or several values that derive from one, is therefore fused with the ops
that it depends on, back to that value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.activations.elementwise import OPERATORS, activation_of
from sdp_ref.activations.pointwise import Quadrature
from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.recording import Entry, Ref, leaves, mapped


@dataclass(frozen=True)
class Layout:
    """Tensor dimension `dim` that contains the batch, of size ``outer`` x B x ``inner``.

    Other dimensions of these sizes are folded into it before and after the batch.
    """

    dim: int = 0
    outer: int = 1
    inner: int = 1

    @property
    def folded(self) -> int:
        """Entries of the dimension per example."""
        return self.outer * self.inner

    @property
    def width(self) -> int:
        """Number of dimensions of (N, *event) that the dimension corresponds to."""
        return 1 + (self.outer > 1) + (self.inner > 1)

    @property
    def plain(self) -> bool:
        """Whether the first dimension is the batch and nothing else."""
        return self == Layout()

    def event_first(self, x: Tensor) -> Tensor:
        """Convert a value (N, *event) to its shape in the net."""
        if self.plain:
            return x
        n = len(x)
        inside = x.movedim(0, self.dim + (self.outer > 1))
        shape = list(inside.shape)
        shape[self.dim : self.dim + self.width] = [self.outer * n * self.inner]
        return inside.reshape(shape)

    def batch_first(self, x: Tensor) -> Tensor:
        """Convert a tensor of the net to (N, *event)."""
        if self.plain:
            return x
        shape = list(x.shape)
        parts = [self.outer, shape[self.dim] // self.folded, self.inner]
        kept = [size for position, size in enumerate(parts) if position == 1 or size > 1]
        shape[self.dim : self.dim + 1] = kept
        return x.reshape(shape).movedim(self.dim + (self.outer > 1), 0)

    def place(self, dim: int, ndim: int) -> int | None:
        """Convert a dimension of the net's tensor to one of (N, *event); None for that of the batch."""
        dim %= max(ndim, 1)
        if dim == self.dim:
            return None
        return dim + 1 if dim < self.dim else dim + self.width - 1


def batch_dimension(
    first: tuple[int, ...], second: tuple[int, ...], sizes: tuple[int, int]
) -> tuple[int, int] | None:
    """Find the dimension that grows with the batch, from the shapes of a tensor for two batch sizes."""
    if len(first) != len(second):
        return None
    moved = [d for d, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    if len(moved) != 1:
        return None
    (dim,) = moved
    folded, rest = divmod(first[dim], sizes[0])
    if rest or folded * sizes[1] != second[dim]:
        return None
    return dim, folded


def row_of(first: Tensor, second: Tensor, sizes: tuple[int, int]) -> tuple[Layout, Tensor] | None:
    """Return the part for one example of a constant that is repeated for each example of a batch."""
    batch = batch_dimension(tuple(first.shape), tuple(second.shape), sizes)
    if batch is None:
        return None
    dim, folded = batch
    for outer in {1, folded}:
        layout = Layout(dim, outer, folded // outer)
        rows = torch.cat([layout.batch_first(first), layout.batch_first(second)])
        if bool((rows == rows[:1]).all() if rows.numel() else True):
            return layout, layout.batch_first(first)[:1]
    return None


@dataclass(frozen=True)
class Step:
    """One op of a traced net on values (N, *event); the module shares its parameters with the net.

    `inputs` are the values that it reads: 0 is the input of the net, k the result of step k. `path` is for
    messages.
    """

    module: nn.Module
    inputs: tuple[int, ...]
    path: str


def last_uses(steps: Sequence[Step]) -> list[frozenset[int]]:
    """For each step, the values that are not read afterwards (never the output)."""
    last: dict[int, int] = {}
    for number, step in enumerate(steps):
        last.update(dict.fromkeys(step.inputs, number))
    return [frozenset(i for i in step.inputs if last[i] == number) for number, step in enumerate(steps)]


_N = 3  # number of examples in a probe
_IN_ANY_MEMORY: dict[Any, Any] = {  # views require the strides of the net's tensors
    torch.ops.aten.view.default: torch.ops.aten.reshape.default,
    torch.ops.aten._unsafe_view.default: torch.ops.aten.reshape.default,
    torch.ops.aten.view_as.default: torch.ops.aten.reshape_as.default,
}


@dataclass(frozen=True)
class Multiple:
    """A number that is `each` times the size of the batch."""

    each: int


@dataclass(frozen=True)
class PerExample:
    """A constant that is repeated for each example: `row` (1, *event), and the layout of the repeated one."""

    layout: Layout
    row: Tensor

    def held(self, n: int) -> Tensor:
        """The constant for `n` examples, in its shape in the net."""
        return self.layout.event_first(self.row.expand(n, *self.row.shape[1:]))


@dataclass(frozen=True)
class Varies:
    """A constant that differs between examples."""


@dataclass(frozen=True)
class Value:
    """A value of a trace: `index` 0 is the input of the net, k the result of step k.

    `layout` locates the batch in the net's tensor and is None if it has none; `shape` is that of the net's
    tensor, for a batch of the first size.
    """

    index: int
    layout: Layout | None
    shape: tuple[int, ...]

    @property
    def event(self) -> tuple[int, ...]:
        if self.layout is None:
            raise TypeError("a value without a batch dimension")
        return tuple(self.layout.batch_first(torch.empty(self.shape, device="meta")).shape[1:])


@dataclass(frozen=True)
class Source:
    """Origin of the components of a result: indices (*event) into the flattened value, or -1."""

    index: Tensor

    @property
    def in_order(self) -> bool:
        flat = self.index.reshape(-1)
        return bool((flat == torch.arange(len(flat))).all())

    def of(self, x: Tensor) -> Tensor:
        """Select components of `x` (N, *event)."""
        index = self.index.to(x.device)
        flat = x.reshape(len(x), math.prod(x.shape[1:]))  # the size, for no rows
        picked = flat[:, index.clamp(min=0).reshape(-1)].reshape(len(x), *index.shape)
        return torch.where(index >= 0, picked, 0.0) if bool((index < 0).any()) else picked


@dataclass(frozen=True, eq=False)
class Replay:
    """One output of an entry as a function of batch-first values.

    The entry is combined from tapes of two batch sizes, and `which` is the index of the output. `taken` are
    the values that it reads, in the order of the arguments of the function. `layout` is that of the result.
    """

    entry: Entry
    which: int
    taken: Mapping[int, Value]
    layout: Layout | None
    dtype: torch.dtype

    @property
    def name(self) -> str:
        name = getattr(self.entry.function, "_opname", getattr(self.entry.function, "__name__", "op"))
        return str(name).strip("_")

    @property
    def pointwise(self) -> bool:
        """Whether each component depends on the corresponding components of values of one shape."""
        tags = getattr(self.entry.function, "tags", ())
        return self.works and torch.Tag.pointwise in tags and len({v.event for v in self.taken.values()}) == 1

    @property
    def works(self) -> bool:
        """Whether the function exists: all inputs and outputs have a batch, and nothing is random."""
        known = self.layout is not None and all(v.layout is not None for v in self.taken.values())
        drawn = self.entry.draws or any(isinstance(p, Varies) for p in self._parts)
        return known and self.entry.real[self.which] and not drawn

    @property
    def _parts(self) -> list[Any]:
        """Arguments of the op, with the outermost lists flattened."""
        parts = [*self.entry.args, *self.entry.kwargs.values()]
        return [leaf for part in parts for leaf in (part if isinstance(part, list | tuple) else [part])]

    def __call__(self, *values: Tensor) -> Tensor:
        """Compute the output, shape (N, *event), from values (N, *event)."""
        if self.layout is None:
            raise TypeError(f"{self.name} does not keep the batch dimension")
        return self.layout.batch_first(self._held(*values))

    def _held(self, *values: Tensor) -> Tensor:
        held = {
            index: value.layout.event_first(given)  # type: ignore[union-attr]
            for (index, value), given in zip(self.taken.items(), values, strict=True)
        }
        return self.applied_to(held, len(values[0]), values[0])

    def applied_to(self, held: Mapping[int, Tensor], n: int, like: Tensor) -> Tensor:
        """The output in its shape in the net, from values in theirs."""

        def put(leaf: Any) -> Any:
            match leaf:
                case Ref():
                    return held[leaf.index]
                case Multiple():
                    return leaf.each * n
                case PerExample():
                    return put(leaf.held(n))
                case Tensor():
                    leaf = leaf.to(like.device)
                    return leaf.to(like.dtype) if leaf.is_floating_point() else leaf
                case torch.dtype():  # a cast is to the dtype of the caller
                    return like.dtype if leaf.is_floating_point else leaf
            return leaf

        function = _IN_ANY_MEMORY.get(self.entry.function, self.entry.function)
        args, kwargs = mapped(put, (self.entry.args, self.entry.kwargs))
        result: Any = function(*args, **kwargs)
        return result[self.which] if isinstance(result, tuple | list) else result

    @torch.no_grad()
    def sources(self) -> tuple[Layout, list[Source]] | None:
        """Origin of each component if the op only moves components (and adds constants).

        This is determined by running the op on component indices.
        """
        if self.layout is None:
            return None
        events = [v.event for v in self.taken.values()]
        nothing = [torch.zeros(_N, *event, dtype=torch.float64) for event in events]
        still = self._held(*nothing)
        moved = []
        for which, event in enumerate(events):
            places = list(nothing)
            count = int(torch.Size(event).numel())
            places[which] = torch.arange(1.0, _N * count + 1, dtype=torch.float64).reshape(_N, *event)
            moved.append((count, (self._held(*places) - still).nan_to_num(0.0)))
        m = self.layout.folded
        for outer in (n for n in range(1, m + 1) if m % n == 0):  # the batch outermost first
            layout = replace(self.layout, outer=outer, inner=m // outer)
            found = [_source(layout.batch_first(each), count) for count, each in moved]
            if all(source is not None for source in found):
                return layout, [source for source in found if source is not None]
        return None

    def constant(self) -> Tensor | None:
        """The output for values of zero."""
        device = next((p.device for p in self._parts if isinstance(p, Tensor)), torch.device("cpu"))
        zeros = [torch.zeros(_N, *v.event, dtype=self.dtype, device=device) for v in self.taken.values()]
        rows = self(*zeros)
        if not bool((rows == rows[:1]).all()):
            raise TypeError("constants differ from example to example")
        return rows[0] if rows.requires_grad or bool((rows != 0).any()) else None


def _source(rows: Tensor, count: int) -> Source | None:
    """Read the origins from the resulting indices, shape (N, *event); None if examples mix."""
    first = rows[0]
    offsets = torch.arange(len(rows), dtype=rows.dtype).reshape(-1, *[1] * first.ndim) * count
    expected = torch.where(first > 0, first + offsets, 0.0)
    inside = bool(((first >= 0) & (first <= count)).all()) and torch.equal(first, first.round())
    return Source(first.long() - 1) if inside and torch.equal(rows, expected) else None


_KEEPS = frozenset(  # keep every component in its position; torch has no tag for this
    ["to", "_to_copy", "float", "double", "type_as", "detach", "contiguous", "alias", "lift_fresh"]
)
_POINTWISE = frozenset(["where", "masked_fill"])  # not all overloads have the tag
_LARGER = frozenset(["maximum", "minimum", "max", "min", "fmax", "fmin"])
_SIGNS = frozenset(["sign", "sgn"])
_STEPS = frozenset(["sign", "sgn", "floor", "ceil", "round", "trunc", "fix"])  # constant between jumps
# up to 7e5, with a relative spacing of at most 1/500
_GRID = torch.linspace(-21, 21, 20001, dtype=torch.float64).sinh() * 1e-3
_TINY = 1e-30  # a bisection does not reach 0 exactly
_MOST_BENDS = 64


@dataclass(frozen=True)
class _Node:
    """A pointwise op with scalar constants, which returns value `output` of the tape."""

    replay: Replay
    output: int

    def corners(self, made: Mapping[int, Tensor]) -> Iterator[Tensor]:
        """Values that change at kinks and jumps of the op, and nowhere else."""
        name, taken = self.replay.name, [made[i] for i in self.replay.taken]
        if name in _STEPS or not made[self.output].is_floating_point():
            yield made[self.output]
        elif name in _LARGER:
            first, second = self.replay.entry.args[:2]
            first = made[first.index] if isinstance(first, Ref) else first
            second = made[second.index] if isinstance(second, Ref) else second
            yield torch.as_tensor(first > second)
        elif name in OPERATORS and len(taken) == 1:
            entry = self.replay.entry
            kind = OPERATORS[name]
            activation = activation_of(kind.from_op(name, *entry.args[1:], **entry.kwargs))
            corners = activation.corners if isinstance(activation, Quadrature) else activation.kinks
            for corner in corners:
                yield taken[0] > corner


class Composition:
    """A sequence of pointwise ops on values of one shape, as a function of values `sources` of the tape."""

    def __init__(self, nodes: Sequence[_Node], sources: Sequence[int]) -> None:
        self.nodes, self.sources = tuple(nodes), tuple(sources)

    def __call__(self, *values: Tensor) -> Tensor:
        """Apply to tensors of one shape, which is arbitrary."""
        return self._made(*values)[self.nodes[-1].output]

    def _made(self, *values: Tensor) -> dict[int, Tensor]:
        made = dict(zip(self.sources, values, strict=True))
        for node in self.nodes:
            made[node.output] = node.replay.applied_to(made, 1, values[0])
        return made

    @torch.no_grad()
    def bends(self) -> tuple[float, ...]:
        """Kinks and jumps of a function of one value, to rounding.

        They are located on a grid of 20 001 points up to 7e5 on both sides, densest at 0. Two that are
        between the same points are missed.
        """
        flips = [(number, i) for number, s in enumerate(self._signals(_GRID)) for i in _changes(s)]
        if len(flips) > _MOST_BENDS:
            raise NoFormulaError(f"a function of one value that bends more than {_MOST_BENDS} times")
        bends = set()
        for number, i in flips:
            low, high = _GRID[i : i + 1], _GRID[i + 1 : i + 2]
            before = self._signals(low)[number]
            while low < (middle := (low + high) / 2) < high and float(high - low) > _TINY / 10:
                same = bool(self._signals(middle)[number] == before)
                low, high = (middle, high) if same else (low, middle)
            ends = [0.0 if abs(float(end)) < _TINY else float(end) for end in (low, high)]
            # prefer the end that looks like a literal of the source
            bends.add(min(ends, key=lambda end: len(repr(end))))
        return tuple(sorted(bends))

    def _signals(self, x: Tensor) -> list[Tensor]:
        made = self._made(x)
        return [signal.expand_as(x) for node in self.nodes for signal in node.corners(made)]


def _changes(signal: Tensor) -> list[int]:
    return (signal[1:] != signal[:-1]).nonzero().squeeze(1).tolist()


class Fusion:
    """Values of a tape that are computed pointwise, and their inputs."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {}
        self._from: dict[int, int] = {}  # the nearest value that determines it alone
        self._truths: set[int] = set()  # values that are not floating-point numbers
        # floating-point values derived from these only, with few distinct numbers
        self._levels: set[int] = set()

    def note(self, output: int, replay: Replay, made: Value) -> None:
        """Record a value if its components depend on the corresponding components of its inputs."""
        real = replay.entry.real[replay.which]
        if not real:
            self._truths.add(output)
        entry = _of_numbers(replay, made)
        if entry is None:
            return
        discrete = self._truths | self._levels >= set(replay.taken) or replay.name in _SIGNS
        if real and replay.taken and discrete:
            self._levels.add(output)
        self._nodes[output] = _Node(replace(replay, entry=entry), output)
        origin = self._origin(list(replay.taken))
        if origin is not None:
            self._from[output] = origin

    def reads_truths(self, replay: Replay) -> bool:
        """Whether an op reads values that are not floating-point numbers, such as comparisons."""
        return not self._truths.isdisjoint(replay.taken)

    def is_one(self, replay: Replay) -> bool:
        """Whether an op depends on comparisons, so that it is better fused with its inputs."""
        reads = self._levels.intersection(replay.taken) or self.reads_truths(replay)
        return bool(reads) or (replay.name in _LARGER and len(replay.taken) > 1)

    def of_one(self, output: int) -> Composition | None:
        """A recorded value as a function of the nearest value that determines it, if there is one."""
        origin = self._from.get(output)
        return None if origin is None else self._composed(output, lambda index: index == origin)

    def of_real(self, output: int) -> Composition | None:
        """A recorded value as a function of floating-point values, replacing booleans by their inputs."""
        noted = output in self._nodes
        return self._composed(output, lambda index: index not in self._truths) if noted else None

    def _origin(self, taken: list[int]) -> int | None:
        """The nearest floating-point value that determines all of the given values."""
        lines = []
        for index in taken:
            line = [index]
            while line[-1] in self._from:
                line.append(self._from[line[-1]])
            lines.append(line)
        common = [i for i in lines[0] if i not in self._truths and all(i in line for line in lines[1:])]
        return common[0] if common else None

    def _composed(self, output: int, ends: Callable[[int], bool]) -> Composition | None:
        needed, sources, waiting = {output}, set(), [*self._nodes[output].replay.taken]
        while waiting:
            index = waiting.pop()
            if ends(index):
                sources.add(index)
            elif index not in self._nodes:
                return None
            elif index not in needed:
                needed.add(index)
                waiting.extend(self._nodes[index].replay.taken)
        return Composition([node for i, node in self._nodes.items() if i in needed], sorted(sources))


def _of_numbers(replay: Replay, made: Value) -> Entry | None:
    """A pointwise entry with scalar constants; None if it is not pointwise."""
    tagged = torch.Tag.pointwise in getattr(replay.entry.function, "tags", ())
    taken = list(replay.taken.values())
    if not (tagged or replay.name in _KEEPS | _POINTWISE) or replay.entry.draws or made.layout is None:
        return None
    if any(v.layout != made.layout or v.shape != made.shape for v in taken):
        return None
    mixed = False

    def number(leaf: Any) -> Any:
        nonlocal mixed
        constant = leaf.row if isinstance(leaf, PerExample) else leaf
        if not isinstance(constant, Tensor):
            mixed = mixed or not (leaf is None or isinstance(leaf, Ref | bool | int | float | torch.dtype))
            return leaf
        flat = constant.reshape(-1)
        if not flat.numel() or bool((flat != flat[0]).any()):
            mixed = True
            return leaf
        return flat[0]

    if replay.name in _KEEPS:  # only the dtype of other arguments matters
        dtypes = [v for v in leaves((replay.entry.args, replay.entry.kwargs)) if isinstance(v, torch.dtype)]
        function = torch.ops.aten.to.dtype if dtypes else torch.ops.aten.alias.default
        return replace(replay.entry, function=function, args=(replay.entry.args[0], *dtypes), kwargs={})
    entry = replace(
        replay.entry, args=mapped(number, replay.entry.args), kwargs=mapped(number, replay.entry.kwargs)
    )
    return None if mixed else entry
