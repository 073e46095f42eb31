"""An op of a tape, and helpers that build its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.ops import Folded, Reshape
from sdp_ref.graph.recording import Ref, mapped
from sdp_ref.graph.replay import Layout, Multiple, PerExample, Replay, Step, Value

_N = 2  # number of examples that test whether a constant is the same for all

Builder = Callable[..., Value]
"""Builds the steps of a call from the call and the arguments of the op."""


@dataclass(frozen=True)
class Call:
    """An entry of a tape, and what is needed to build its steps.

    `replay` is its output as a function, and `shape` that of the output in the net. ``emit(module, *values)``
    adds a step and returns its value. `steps` are all steps so far.
    """

    replay: Replay
    shape: tuple[int, ...]
    emit: Callable[..., Value]
    steps: Sequence[Step] = ()

    @property
    def taken(self) -> Mapping[int, Value]:
        return self.replay.taken

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the op, with values in place of references."""

        def put(leaf: Any) -> Any:
            return self.taken[leaf.index] if isinstance(leaf, Ref) else leaf

        return mapped(put, (self.replay.entry.args, self.replay.entry.kwargs))

    def made(self, value: Value, layout: Layout | None = None) -> Value:
        """Assign the shape of the output and a layout to a value of a step."""
        return Value(value.index, layout or self.replay.layout, self.shape)

    def constant(self, c: Any, ndim: int, layout: Layout) -> float | Tensor:
        """Return a constant that broadcasts with values (N, *event) as `c` does with the net's tensors."""
        if isinstance(c, Multiple):
            raise NoFormulaError("arithmetic with the size of the batch")
        if isinstance(c, PerExample):
            repeated = c.held(_N)
            repeated = repeated.reshape(*[1] * (ndim - repeated.ndim), *repeated.shape)
            if repeated.shape[layout.dim] != layout.folded * _N:
                raise TypeError("a constant with a batch dimension")
            rows = layout.batch_first(repeated)
            if not bool((rows == rows[:1]).all()):
                raise TypeError("a constant with a batch dimension")
            return rows[:1]
        if isinstance(c, Tensor):
            if layout.plain and (c.ndim < ndim or (c.ndim == ndim and c.shape[0] == 1)):
                return c
            shape = [*[1] * (ndim - c.ndim), *c.shape]
            if len(shape) > ndim or shape[layout.dim] != 1:
                raise TypeError("a constant with a batch dimension")
            return c.reshape(1, *shape[: layout.dim], *[1] * (layout.width - 1), *shape[layout.dim + 1 :])
        if isinstance(c, bool) or not isinstance(c, int | float):
            raise TypeError(f"a constant of type {type(c).__name__}")
        return c

    def lifted(self, value: Value, ndim: int) -> Value:
        """Add leading dimensions of size one, as broadcasting does."""
        missing = ndim - len(value.shape)
        layout = held(value)
        if not missing:
            return value
        moved = Layout(layout.dim + missing, layout.outer, layout.inner)
        made = self.emit(Reshape([*[1] * missing, *value.event]), value)
        return Value(made.index, moved, (*[1] * missing, *value.shape))

    def together(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Align two values for an elementwise op: same number of dimensions and same batch dimension."""
        ndim = max(len(a.shape), len(b.shape))
        a, b = self.lifted(a, ndim), self.lifted(b, ndim)
        if a.layout != b.layout:
            raise TypeError("values that hold their batches in different places")
        return a, b

    def with_constant(self, kind: type[nn.Module], value: Value, constant: Any) -> Value:
        """Add the step of an elementwise op of a value and a constant, ``kind(constant)``."""
        ndim = len(self.shape)
        value = self.lifted(value, ndim)
        made: Any = kind
        return self.made(self.emit(made(self.constant(constant, ndim, held(value))), value), value.layout)


def by_name(build: Builder) -> Builder:
    """Pass the first argument of an op as a value, and all others by their names, including defaults."""

    def named(call: Call, input: Any, *args: Any, **options: Any) -> Value:
        arguments = call.replay.entry.function._schema.arguments  # type: ignore[attr-defined]  # an ATen op
        defaults = {argument.name: argument.default_value for argument in arguments[1:]}
        return build(call, as_value(input), **defaults | dict(zip(defaults, args, strict=False)) | options)

    return named


def held(value: Value) -> Layout:
    if value.layout is None:
        raise TypeError("a value without a batch dimension")
    return value.layout


def rowwise(value: Value, module: nn.Module, what: str) -> nn.Module:
    """Module for a value whose first dimension is the batch, possibly with others folded into it."""
    layout = held(value)
    if layout.dim or layout.outer > 1:
        raise NoFormulaError(f"{what} of a value that does not hold its batch first")
    return module if layout.plain else Folded(module)


def plain(value: Value, what: str) -> None:
    """Require a value whose first dimension is the batch."""
    if not held(value).plain:
        raise NoFormulaError(f"{what} of a value that does not hold its batch first")


def place(value: Value, dim: int, what: str) -> int:
    """Convert a dimension of the net's tensor to one of (N, *event), counted from the end."""
    place = held(value).place(dim, len(value.shape))
    if place is None:
        raise NoFormulaError(f"{what} over the batch dimension")
    ndim = len(value.shape) + held(value).width - 1
    return place - ndim


def last(value: Value, count: int, what: str) -> None:
    """Require a value whose last dimensions do not contain the batch."""
    if held(value).dim >= len(value.shape) - count:
        raise NoFormulaError(f"{what} over the batch dimension")


def as_value(x: Any) -> Value:
    """Require that an argument of an op is a value."""
    if not isinstance(x, Value):
        raise TypeError("a constant where a value is expected")
    return x


def fixed(*constants: Any) -> None:
    """Require that parameters of an op are neither values nor depend on the batch."""
    if any(isinstance(c, Value | PerExample | Multiple) for c in constants):
        raise TypeError("a value among the parameters")
