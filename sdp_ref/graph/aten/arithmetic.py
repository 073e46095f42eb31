"""Sums, products and quotients, of values and of constants."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sdp_ref.activations.roots import Reciprocal
from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.aten.call import Call, as_value, fixed, held, last
from sdp_ref.graph.aten.layers import linear_layer
from sdp_ref.graph.aten.moves import linear_function
from sdp_ref.graph.aten.norms import normalised
from sdp_ref.graph.attention import Attention
from sdp_ref.graph.ops import (
    Add,
    Divide,
    MatrixProduct,
    Multiply,
    Quotient,
    Rearrange,
    Scale,
    Shift,
)
from sdp_ref.graph.tape.replay import PerExample, Value


def add(call: Call, a: Any, b: Any, *, alpha: float = 1) -> Value:
    if isinstance(b, Value):
        b = b if alpha == 1 else Value(call.emit(Scale(alpha), b).index, b.layout, b.shape)
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
        inverse = call.emit(Reciprocal(), b)
        return call.with_constant(Scale, Value(inverse.index, b.layout, b.shape), a)
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
    return call.made(call.emit(linear_layer(alpha * b.mT, (beta * bias).expand(b.shape[1])), a))


def attention(
    call: Call,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,  # noqa: ARG001  one that draws is refused before
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    if isinstance(attn_mask, Value):
        raise NoFormulaError("attention with a mask that is a value")
    q, k, v = (as_value(x) for x in (query, key, value))
    if not q.layout == k.layout == v.layout or held(q).dim >= len(q.shape) - 2:
        raise NoFormulaError("attention between the examples of a batch")
    mask: Any = None if attn_mask is None else call.constant(attn_mask, len(q.shape), held(q))
    if enable_gqa:  # several query heads share one head of keys and values
        k, v = (_repeated(call, x, q.shape[-3] // x.shape[-3]) for x in (k, v))
    return call.made(call.emit(Attention(is_causal, scale, mask), q, k, v))


def _repeated(call: Call, heads: Value, times: int) -> Value:
    repeat = Rearrange("repeat_interleave", lambda x: x.repeat_interleave(times, -3))
    return call.made(call.emit(repeat, heads), held(heads))
