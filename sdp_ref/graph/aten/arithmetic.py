"""Sums, products, quotients, maxima, minima and lengths, of values and of constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.activations.roots import Reciprocal
from sdp_ref.activations.straight import Abs, Hardtanh
from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.aten.call import Builder, Call, as_value, by_name, fixed, held, last, place
from sdp_ref.graph.aten.layers import linear_function, linear_layer
from sdp_ref.graph.nonlinear import Attention
from sdp_ref.graph.ops import (
    Add,
    Cat,
    Divide,
    MatrixProduct,
    Maximum,
    MaximumOfPairs,
    Multiply,
    Quotient,
    Rearrange,
    Reshape,
    Scale,
    Shift,
    Sum,
    VectorNorm,
)
from sdp_ref.graph.replay import PerExample, Value


def of_two(sign: int) -> Builder:
    """``torch.maximum``, or ``torch.minimum`` for a sign of -1."""

    def build(call: Call, a: Any, b: Any) -> Value:
        if isinstance(a, Value) and isinstance(b, Value):
            a, b = call.together(a, b)
            first, second = _signed(call, sign, a), _signed(call, sign, b)
            if sign < 0:  # of equal numbers, the minimum is the second: see sdp_ref.jacobian.right
                first, second = second, first
            return call.made(_signed(call, sign, call.emit(Maximum(), first, second)))
        value, bound = (a, b) if isinstance(a, Value) else (b, a)
        return clamp(call, value, bound, None) if sign > 0 else clamp(call, value, None, bound)

    return build


def over(sign: int) -> Builder:
    """``torch.amax``, or ``torch.amin`` for a sign of -1; the values of ``torch.max`` over a dimension."""

    def build(call: Call, x: Any, dim: Any = None, keepdim: bool = False) -> Value:
        dims = ([dim] if isinstance(dim, int) else dim) or range(len(as_value(x).shape))
        places = [place(x, d, "a maximum") for d in dims]
        ndim = len(x.event) + 1
        kept = [1 if d - ndim in places else x.event[d - 1] for d in range(1, ndim)]
        shape = kept if keepdim else [n for d, n in enumerate(kept, start=1) if d - ndim not in places]
        rows = _signed(call, sign, x)
        if places != [-1]:
            count = len(places)
            ends = list(range(-count, 0))
            rows = call.emit(Rearrange("movedim", lambda t: t.movedim(places, ends).flatten(-count)), rows)
        n = math.prod(x.event[d] for d in places)
        while n > 1:
            rows, n = _of_pairs(call, rows, n), n // 2 + n % 2
        return call.made(_signed(call, sign, call.emit(Reshape(shape), rows)))

    return build


def _of_pairs(call: Call, rows: Value, n: int) -> Value:
    """Maxima of the first and the second half of rows, and the remaining element, if any."""

    def part(start: int, stop: int) -> Value:
        return call.emit(Rearrange("slice", lambda t: t[..., start:stop]), rows)

    half = n // 2
    kind = MaximumOfPairs if n > 2 else Maximum
    larger = call.emit(kind(), part(0, half), part(half, 2 * half))
    return call.emit(Cat(-1), larger, part(2 * half, n)) if n % 2 else larger


def _signed(call: Call, sign: int, value: Value) -> Value:
    return value if sign > 0 else call.emit(Scale(-1), value)


def clamp(call: Call, x: Any, min: Any = None, max: Any = None) -> Value:
    """``torch.clamp`` with a constant for each component, or with one value."""
    for bound, pick in ((min, of_two(1)), (max, of_two(-1))):
        if isinstance(bound, Value):
            if min is not None and max is not None:
                raise NoFormulaError("clamp with two bounds, one of them a value")
            return pick(call, x, bound)
    layout, ndim = held(as_value(x)), len(call.shape)
    bounds = [torch.as_tensor(call.constant(b, ndim, layout)) for b in (min, max) if b is not None]
    if len(bounds) == 1:
        if not bool(bounds[0].isfinite().all()):
            raise NoFormulaError("clamp by bounds that include an infinite one")
        half = (0.0, math.inf) if max is None else (-math.inf, 0.0)
        return _clipped(call, x, half, bounds[0], None)
    low, high = bounds
    if not bool((low < high).all()) or not bool((high - low).isfinite().all()):
        raise NoFormulaError("clamp between bounds that are infinite or not increasing")
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


_NO_LENGTH = 1e-4
"""Largest lower bound of a length that counts as numerical protection; larger ones are clamps."""


@by_name
def vector_norm(call: Call, x: Value, *, ord: float, dim: Any, keepdim: bool, **_: Any) -> Value:
    dims = ([dim] if isinstance(dim, int) else dim) or range(len(x.shape))
    if ord == 2:
        return call.made(call.emit(VectorNorm([place(x, d, "a norm") for d in dims], keepdim), x))
    if ord not in (1, math.inf, -math.inf):
        raise NoFormulaError(f"a norm of order {ord}")
    sizes = call.emit(Abs(), x)
    if ord == 1:
        return call.made(call.emit(Sum([place(x, d, "a norm") for d in dims], keepdim), sizes))
    return over(1 if ord > 0 else -1)(call, sizes, dims, keepdim)


def normalised(call: Call, above: Value, below: Value) -> Value | None:
    """Express x divided by its own length, as in ``F.normalize``, as an RMSNorm, which has better moments."""
    length = _length_of(call, above, below)
    if length is None or length[1] > _NO_LENGTH:
        return None
    dims, least = length
    n = math.prod(above.event[d] for d in dims)
    ends = list(range(-len(dims), 0))
    sizes = tuple(above.event[d] for d in dims)
    norm = nn.RMSNorm(sizes, eps=least**2 / n, elementwise_affine=False)
    steps: list[nn.Module] = [norm, Scale(1 / math.sqrt(n))]
    if dims != ends:
        there: Callable[[Tensor], Tensor] = lambda t: t.movedim(dims, ends)  # noqa: E731
        back: Callable[[Tensor], Tensor] = lambda t: t.movedim(ends, dims)  # noqa: E731
        steps = [Rearrange("movedim", there), *steps, Rearrange("movedim", back)]
    value = above
    for step in steps:
        value = call.emit(step, value)
    return call.made(value)


def _length_of(call: Call, above: Value, below: Value) -> tuple[list[int], float] | None:
    """Dimensions over which a value is divided by its length, and the lower bound of the length."""
    least, index = 0.0, below.index
    while index:
        step = call.steps[index - 1]
        module = step.module
        if isinstance(module, VectorNorm):
            whole = module.keepdim and step.inputs == (above.index,)
            return (sorted(module.dims), least) if whole else None
        expands = isinstance(module, Rearrange) and module.text in ("expand", "expand_as")
        if isinstance(module, nn.Hardtanh) and module.min_val >= 0 and module.max_val == math.inf:
            least = float(module.min_val)
        elif not expands:
            return None
        (index,) = step.inputs
    return None


def add(call: Call, a: Any, b: Any, *, alpha: float = 1) -> Value:
    if isinstance(b, Value):
        b = b if alpha == 1 else call.emit(Scale(alpha), b)
    elif alpha != 1:
        b = PerExample(b.layout, b.row * alpha) if isinstance(b, PerExample) else b * alpha
    if isinstance(a, Value) and isinstance(b, Value):
        return call.made(call.emit(Add(), *call.together(a, b)))
    value, constant = (a, b) if isinstance(a, Value) else (b, a)
    return call.with_constant(Shift, value, constant)


def sub(call: Call, a: Any, b: Any, *, alpha: float = 1) -> Value:
    return add(call, a, b, alpha=-alpha)


def rsub(call: Call, a: Any, b: Any, alpha: float = 1) -> Value:
    return add(call, b, a, alpha=-alpha)


def mul(call: Call, a: Any, b: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, Value):
        return call.made(call.emit(Multiply(), *call.together(a, b)))
    value, constant = (a, b) if isinstance(a, Value) else (b, a)
    return call.with_constant(Scale, value, constant)


def div(call: Call, a: Any, b: Any, *, rounding_mode: str | None = None) -> Value:
    if rounding_mode is not None:
        raise NoFormulaError(f"a division with rounding_mode={rounding_mode!r}")
    if isinstance(a, Value) and isinstance(b, Value):
        return normalised(call, a, b) or call.made(call.emit(Quotient(), *call.together(a, b)))
    if isinstance(b, Value):
        return call.with_constant(Scale, call.emit(Reciprocal(), b), a)
    return call.with_constant(Divide, a, b)


def addcmul(call: Call, a: Any, b: Any, c: Any, *, value: float = 1) -> Value:
    """``a + value b c``."""
    product = as_value(mul(call, b, c) if isinstance(b, Value) or isinstance(c, Value) else b * c)
    return add(call, a, product, alpha=value)


def neg(call: Call, x: Any) -> Value:
    return call.made(call.emit(Scale(-1), as_value(x)))


def matmul(call: Call, a: Any, b: Any) -> Value:
    """``a @ b``: a linear map, or a product of two values."""
    if isinstance(a, Value) and isinstance(b, Value):
        ndim = max(len(a.shape), len(b.shape))
        a, b = call.lifted(a, ndim), call.lifted(b, ndim)
        if a.layout != b.layout or held(a).dim >= ndim - 2:
            raise NoFormulaError("a product that mixes the examples of a batch")
        return call.made(call.emit(MatrixProduct(), a, b))
    if isinstance(a, Value) and isinstance(b, Tensor) and b.ndim == 2:
        last(a, 1, "a matrix product")
        return call.made(call.emit(linear_layer(b.mT), a))
    return linear_function(call)


def addmm(call: Call, bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Value:
    """``beta bias + alpha a @ b``."""
    fixed(bias, b)
    last(as_value(a), 1, "a matrix product")
    weight = b.mT if alpha == 1 else alpha * b.mT
    shift = bias if beta == 1 else beta * bias
    return call.made(call.emit(linear_layer(weight, shift.expand(b.shape[1])), a))


@by_name
def attention(
    call: Call, q: Value, *, key: Any, value: Any, attn_mask: Any, is_causal: bool, **options: Any
) -> Value:
    if isinstance(attn_mask, Value):
        raise NoFormulaError("attention with a mask that is a value")
    k, v = as_value(key), as_value(value)
    if not q.layout == k.layout == v.layout or held(q).dim >= len(q.shape) - 2:
        raise NoFormulaError("attention between the examples of a batch")
    mask: Any = None if attn_mask is None else call.constant(attn_mask, len(q.shape), held(q))
    if options["enable_gqa"]:  # several query heads share one head of keys and values
        k = _repeated(call, k, q.shape[-3] // k.shape[-3])
        v = _repeated(call, v, q.shape[-3] // v.shape[-3])
    return call.made(call.emit(Attention(is_causal, options["scale"], mask), q, k, v))


def _repeated(call: Call, heads: Value, times: int) -> Value:
    return call.emit(Rearrange("repeat_interleave", lambda x: x.repeat_interleave(times, -3)), heads)
