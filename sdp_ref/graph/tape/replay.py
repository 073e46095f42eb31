"""An op of a tape as a function of values (N, *event), for any N."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sdp_ref.graph.tape.entries import Entry, Ref
from sdp_ref.graph.tape.layout import Layout

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
        picked = x.reshape(len(x), -1)[:, index.clamp(min=0).reshape(-1)].reshape(len(x), *index.shape)
        return torch.where(index >= 0, picked, 0.0) if bool((index < 0).any()) else picked


class Replay:
    """One output of an entry as a function of batch-first values.

    The entry is combined from tapes of two batch sizes, and `which` is the index of the output. `taken` are
    the values that it reads, in the order of the arguments of the function. `layout` is that of the result.
    """

    def __init__(
        self, entry: Entry, which: int, taken: Mapping[int, Value], layout: Layout | None, dtype: torch.dtype
    ) -> None:
        self.entry, self.which, self.taken, self.layout, self.dtype = entry, which, taken, layout, dtype

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
                case dict():
                    return {k: put(v) for k, v in leaf.items()}
                case list() | tuple():
                    return type(leaf)(put(v) for v in leaf)
                case torch.dtype():  # a cast is to the dtype of the caller
                    return like.dtype if leaf.is_floating_point else leaf
            return leaf

        function = _IN_ANY_MEMORY.get(self.entry.function, self.entry.function)
        result: Any = function(*put(self.entry.args), **put(self.entry.kwargs))
        output: Tensor = result[self.which] if isinstance(result, tuple | list) else result
        return output

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
        for layout in _foldings(self.layout):
            found = [_source(layout.batch_first(each), count) for count, each in moved]
            if all(source is not None for source in found):
                return layout, [source for source in found if source is not None]
        return None

    def at(self, layout: Layout) -> Replay:
        """Return the same op with another layout of the result."""
        return Replay(self.entry, self.which, self.taken, layout, self.dtype)

    def constant(self) -> Tensor | None:
        """The output for values of zero."""
        device = next((p.device for p in self._parts if isinstance(p, Tensor)), torch.device("cpu"))
        zeros = [torch.zeros(_N, *v.event, dtype=self.dtype, device=device) for v in self.taken.values()]
        rows = self(*zeros)
        if not bool((rows == rows[:1]).all()):
            raise TypeError("constants differ from example to example")
        return rows[0] if bool((rows != 0).any()) else None


def _foldings(layout: Layout) -> list[Layout]:
    """All ways in which a dimension may contain the batch, with the batch outermost first."""
    m = layout.folded
    return [replace(layout, outer=outer, inner=m // outer) for outer in range(1, m + 1) if m % outer == 0]


def _source(rows: Tensor, count: int) -> Source | None:
    """Read the origins from the resulting indices, shape (N, *event); None if examples mix."""
    first = rows[0]
    offsets = torch.arange(len(rows), dtype=rows.dtype).reshape(-1, *[1] * first.ndim) * count
    expected = torch.where(first > 0, first + offsets, 0.0)
    inside = bool(((first >= 0) & (first <= count)).all()) and torch.equal(first, first.round())
    return Source(first.long() - 1) if inside and torch.equal(rows, expected) else None
