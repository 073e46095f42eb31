"""Lengths of vectors, and vectors divided by their lengths."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from sdp_ref.activations.straight import Abs
from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.aten import extremes
from sdp_ref.graph.aten.call import Call, as_value, held, place
from sdp_ref.graph.ops import Rearrange, Scale, Sum, VectorNorm
from sdp_ref.graph.tape.replay import Value

_NO_LENGTH = 1e-4
"""Largest lower bound of a length that counts as numerical protection; larger ones are clamps."""


def vector_norm(
    call: Call,
    x: Any,
    ord: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,  # noqa: ARG001  a cast is to the precision of who asks
) -> Value:
    dims = [dim] if isinstance(dim, int) else dim
    dims = list(dims) if dims else list(range(len(as_value(x).shape)))
    if ord == 2:
        return call.made(call.emit(VectorNorm([place(x, d, "a norm") for d in dims], keepdim), x))
    if ord not in (1, math.inf, -math.inf):
        raise NoFormulaError(f"a norm of order {ord}")
    sizes = Value(call.emit(Abs(), x).index, held(x), x.shape)
    if ord == 1:
        return call.made(call.emit(Sum([place(x, d, "a norm") for d in dims], keepdim), sizes))
    return extremes.over(1 if ord > 0 else -1)(call, sizes, dims, keepdim)


def normalised(call: Call, above: Value, below: Value) -> Value | None:
    """Express x divided by its own length, as in ``F.normalize``, as an RMSNorm, which has better moments."""
    found = _length_of(call, above, below)
    if found is None or found[1] > _NO_LENGTH:
        return None
    dims, least = found
    n = math.prod(above.event[d] for d in dims)
    count = len(dims)
    ends = list(range(-count, 0))
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
