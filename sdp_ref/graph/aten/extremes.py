"""Maxima and minima of two values, over dimensions, and with bounds."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sdp_ref.activations.straight import Hardtanh
from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.aten.call import Builder, Call, as_value, held, place
from sdp_ref.graph.ops import Cat, Divide, Maximum, MaximumOfPairs, Rearrange, Reshape, Scale, Shift
from sdp_ref.graph.tape.replay import Value


def of_two(sign: int) -> Builder:
    """``torch.maximum``, or ``torch.minimum`` for a sign of -1."""

    def build(call: Call, a: Any, b: Any) -> Value:
        if isinstance(a, Value) and isinstance(b, Value):
            a, b = (_signed(call, sign, each) for each in call.together(a, b))
            return call.made(_signed(call, sign, call.emit(Maximum(), a, b)))
        value, bound = (a, b) if isinstance(a, Value) else (b, a)
        return clamp(call, value, bound, None) if sign > 0 else clamp(call, value, None, bound)

    return build


def over(sign: int) -> Builder:
    """``torch.amax``, or ``torch.amin`` for a sign of -1; the values of ``torch.max`` over a dimension."""

    def build(call: Call, x: Any, dim: Any = None, keepdim: bool = False) -> Value:
        dims = [dim] if isinstance(dim, int) else dim
        dims = list(dims) if dims else list(range(len(as_value(x).shape)))
        places = [place(x, d, "a maximum") for d in dims]
        ndim = len(x.event) + 1
        kept = [1 if d - ndim in places else x.event[d - 1] for d in range(1, ndim)]
        shape = kept if keepdim else [n for d, n in enumerate(kept, start=1) if d - ndim not in places]
        rows = _signed(call, sign, x)
        if places != [-1]:
            rows = call.emit(Rearrange("movedim", lambda t: _last(t, places)), rows)
        for n in _halved(math.prod(x.event[d] for d in places)):
            rows = _of_pairs(call, rows, n)
        found = Reshape("reshape", lambda t: t.reshape(len(t), *shape))
        return call.made(_signed(call, sign, call.emit(found, rows)))

    return build


def _last(x: Tensor, places: list[int]) -> Tensor:
    """Flatten dimensions of a tensor to its last one."""
    count = len(places)
    return x.movedim(places, list(range(-count, 0))).flatten(-count)


def _halved(n: int) -> list[int]:
    """Lengths of the rows whose halves are compared successively."""
    lengths = []
    while n > 1:
        lengths.append(n)
        n = n // 2 + n % 2
    return lengths


def _of_pairs(call: Call, rows: Value, n: int) -> Value:
    """Maxima of the first and the second half of rows, and the remaining element, if any."""

    def part(start: int, stop: int) -> Value:
        return call.emit(Rearrange("slice", lambda t: t[..., start:stop]), rows)

    half = n // 2
    kind = MaximumOfPairs if n > 2 else Maximum
    larger = call.emit(kind(), part(0, half), part(half, 2 * half))
    return call.emit(Cat(-1), larger, part(2 * half, n)) if n % 2 else larger


def _signed(call: Call, sign: int, value: Value) -> Value:
    if sign > 0:
        return value
    return Value(call.emit(Scale(-1), value).index, value.layout, value.shape)


def clamp(call: Call, x: Any, min: Any = None, max: Any = None) -> Value:
    """``torch.clamp`` with a constant for each component, or with one value."""
    for bound, pick in ((min, of_two(1)), (max, of_two(-1))):
        if isinstance(bound, Value):
            if min is not None and max is not None:
                raise NoFormulaError("clamp between two bounds of which one is a value")
            return pick(call, x, bound)
    layout, ndim = held(as_value(x)), len(call.shape)
    bounds = [torch.as_tensor(call.constant(b, ndim, layout)) for b in (min, max) if b is not None]
    if len(bounds) == 1:
        if not bool(bounds[0].isfinite().all()):
            raise NoFormulaError("clamp by bounds of which one is infinite")
        half = (0.0, math.inf) if max is None else (-math.inf, 0.0)
        return _clipped(call, x, half, bounds[0], None)
    low, high = bounds
    if not bool((low < high).all()) or not bool((high - low).isfinite().all()):
        raise NoFormulaError("clamp between bounds of which one is not below the other, or infinite")
    return _clipped(call, x, (0.0, 1.0), low, high - low)


def _clipped(call: Call, x: Value, bounds: tuple[float, float], shift: Tensor, scale: Tensor | None) -> Value:
    """Clip (x - shift) / scale with two numbers, and invert the transformation."""
    module = Hardtanh(*bounds).build()
    value = call.with_constant(Shift, x, -shift)
    if scale is not None:
        value = call.with_constant(Divide, value, scale)
    value = call.made(call.emit(module, value), value.layout)
    if scale is not None:
        value = call.with_constant(Scale, value, scale)
    return call.with_constant(Shift, value, shift)
