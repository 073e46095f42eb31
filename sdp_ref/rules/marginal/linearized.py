"""Ops linearised at the location whose outputs read many components: softmax, norms, attention and others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from sdp_ref.errors import NoFormulaError, NoLinearPartError
from sdp_ref.graph.nonlinear import Attention, Norm, mean_field, root_moments, softmax_dim
from sdp_ref.graph.ops import VectorNorm, pointwise
from sdp_ref.jacobian.local import in_dtype, spread_through
from sdp_ref.laws import DiagonalGaussian, Law, SymmetricStable
from sdp_ref.laws.stable import stable_scale
from sdp_ref.rules.marginal.spread import additive, raised, spread_of, with_spread

_CHUNK = 2**24  # entries of a batch of Jacobians
_MOST = 2**28  # entries of one Jacobian


def linearised(module: nn.Module, *laws: Law) -> Law:
    """Any differentiable op of one or several values by its Jacobian, column by column if not diagonal."""
    distinct = {id(law): law for law in laws}
    places = [list(distinct).index(id(law)) for law in laws]

    def function(*values: Tensor) -> Tensor:
        return in_dtype(module, *(values[place] for place in places))

    measures, exponent, back = additive(*distinct.values())
    points = [law.location for law in distinct.values()]
    total = spread_through(function, points, measures, exponent, pointwise(module))
    return with_spread(laws[0], function(*points), back(total))


def softmax(module: nn.Softmax, law: Law) -> Law:
    """Softmax; the spread of each output combines those of all inputs by its row of the Jacobian."""
    x, dim = law.location, softmax_dim(module, law.location)

    def jacobian(rows: Tensor) -> Tensor:
        p = torch.softmax(rows, -1)
        off = (
            -p.unsqueeze(-1) * p.unsqueeze(-2) * (1 - torch.eye(p.shape[-1], dtype=p.dtype, device=p.device))
        )
        return off - torch.diag_embed(off.sum(-1))  # p (1 - p) without cancellation at p = 1

    spread = spread_of(law).movedim(dim, -1)
    through = _through(jacobian, x.movedim(dim, -1), spread, law).movedim(-1, dim)
    return with_spread(law, module(x), through)


def softmax_by_mean_field(module: nn.Softmax, law: DiagonalGaussian) -> Law:
    dim = softmax_dim(module, law.location)
    x, variance = (each.movedim(dim, -1) for each in (law.mean, law.variance))
    n = _fitting(x.shape[-1])
    step = max(1, _CHUNK // max(1, n * n))
    parts = []
    for m, v in zip(x.reshape(-1, n).split(step), variance.reshape(-1, n).split(step), strict=True):
        p, jacobian = mean_field(m, v.unsqueeze(2) + v.unsqueeze(1))
        parts.append(torch.stack([p, (jacobian.square() @ v.unsqueeze(2)).squeeze(2)]))
    mean, through = (each.reshape(x.shape).movedim(-1, dim) for each in torch.cat(parts, 1))
    return with_spread(law, mean, through)


def log_softmax(module: nn.LogSoftmax, law: Law) -> Law:
    """X - log sum exp x, whose Jacobian is I - 1 p^T."""
    dim = softmax_dim(module, law.location)
    location = module(law.location)
    (measure,), exponent, back = additive(law)
    p = raised(location.exp(), exponent)
    own = raised(torch.expm1(location), exponent)  # 1 - p
    total = measure * own + ((measure * p).sum(dim, keepdim=True) - measure * p).clamp(min=0)
    return with_spread(law, location, back(total))


def layer_norm(module: nn.LayerNorm, law: Law) -> Law:
    x, dims = law.location, len(module.normalized_shape)
    if dims >= x.ndim:
        raise NoLinearPartError("a LayerNorm over the batch dimension")

    def jacobian(rows: Tensor) -> Tensor:
        n = rows.shape[-1]
        centred = rows - rows.mean(-1, keepdim=True)
        inverse = (centred.square().mean(-1, keepdim=True) + module.eps).rsqrt()
        z = centred * inverse
        eye = torch.eye(n, dtype=rows.dtype, device=rows.device)
        return inverse.unsqueeze(-1) * (eye - (1 + z.unsqueeze(-1) * z.unsqueeze(-2)) / n)

    through = _through(jacobian, x.flatten(-dims), spread_of(law).flatten(-dims), law).reshape(x.shape)
    if module.weight is not None:
        gain = module.weight
        through = through * (gain.square() if isinstance(law, DiagonalGaussian) else gain.abs())
    return with_spread(law, module(x), through)


def norm(module: nn.Module, law: Law) -> Law:
    """Any norm of :data:`~sdp_ref.graph.nonlinear.NORMS`, J = (I - (1 1^T + z z^T) / n) / s, z the scores."""
    return _normalised(Norm.of(module, law.location), law, 0.0)


def norm_at_mean_scale(module: nn.Module, law: DiagonalGaussian) -> Law:
    """Same as :func:`norm`, with s^2 the mean square under the law instead of that at the mean."""
    form = Norm.of(module, law.location)
    variance = form.grouped(law.variance)
    extra = variance.mean(-1, keepdim=True) * (1 - 1 / variance.shape[-1] if form.centred else 1)
    return _normalised(form, law, extra)


def _normalised(form: Norm, law: Law, extra: Tensor | float) -> Law:
    x = law.location
    z, inverse = form.scores(x, extra)
    spread, n, one = form.grouped(spread_of(law)), z.shape[-1], 1.0 if form.centred else 0.0
    if isinstance(law, DiagonalGaussian):  # sum_j J_ij^2 v_j without J
        own = spread * (1 - 2 * (one + z.square()) / n)
        sums = [(spread * z**k).sum(-1, keepdim=True) for k in range(3)]
        through = own + (one * (sums[0] + 2 * z * sums[1]) + z.square() * sums[2]) / n**2
        through = through.clamp(min=0) * inverse.square()
    else:

        def jacobian(rows: Tensor) -> Tensor:
            eye = torch.eye(n, dtype=rows.dtype, device=rows.device)
            return eye - (one + rows.unsqueeze(-1) * rows.unsqueeze(-2)) / n

        through = _through(jacobian, z, spread, law) * inverse
    through = replace(form, gain=_measure(form.gain, law), shift=None).finished(through, x)
    return with_spread(law, form.finished(z, x), through)


def _measure(gain: Tensor | None, law: Law) -> Tensor | None:
    if gain is None:
        return None
    return gain.square() if isinstance(law, DiagonalGaussian) else gain.abs()


def vector_norm(module: VectorNorm, law: Law) -> Law:
    """Euclidean length r with Jacobian x^T / r; at location 0, where it is undefined, the spread is 0."""
    x, location = law.location, module(law.location)
    whole = location if module.keepdim else VectorNorm(module.dims, True)(x)
    (measure,), exponent, back = additive(law)
    slope = torch.where(whole > 0, x / torch.where(whole > 0, whole, 1.0), 0.0)
    return with_spread(law, location, back(module.summed(raised(slope, exponent) * measure)))


def vector_norm_by_its_square(module: VectorNorm, law: DiagonalGaussian) -> Law:
    """Euclidean length by the moments of its square; see :func:`~sdp_ref.graph.nonlinear.root_moments`."""
    x, v = law.mean, law.variance
    square, variance = module.summed(x.square() + v), module.summed(v * (4 * x.square() + 2 * v))
    mean, spread = root_moments(square, variance)
    return with_spread(law, mean, spread)


def attention(module: Attention, q: Law, k: Law, v: Law) -> Law:
    """Scaled dot-product attention, in closed form.

    With weights A and outputs o = A v: d o_ld / d v_jd = A_lj and d o_ld / d score_lj = A_lj (v_jd - o_ld).
    """
    if len({id(q), id(k), id(v)}) < 3:
        return linearised(module, q, k, v)
    location = module(q.location, k.location, v.location)
    measures, exponent, back = additive(q, k, v)
    weights, factor = module.weights(q.location, k.location), module.factor(q.location)
    heads = [
        each.flatten(0, -3)
        for each in (location, weights, *measures, q.location * factor, k.location * factor, v.location)
    ]
    step = max(1, _CHUNK // max(1, weights.shape[-1] * math.prod(location.shape[-2:])))
    parts = [
        _through_heads(exponent, *part) for part in zip(*(each.split(step) for each in heads), strict=True)
    ]
    return with_spread(q, location, back(torch.cat(parts).reshape(location.shape)))


def _through_heads(exponent: float, *head: Tensor) -> Tensor:
    """Measures of the outputs of some attention heads, (heads, queries, values)."""
    location, weights, of_q, of_k, of_v, q, k, v = head
    # derivatives by scores, shape (heads, queries, keys, values)
    slopes = weights.unsqueeze(-1) * (v.unsqueeze(-3) - location.unsqueeze(-2))
    of_scores = raised(q, exponent) @ of_k.mT  # measures of scores from keys, shape (heads, queries, keys)
    by_query = slopes.mT @ k.unsqueeze(-3)  # shape (heads, queries, values, width)
    total = raised(weights, exponent) @ of_v
    total = total + (raised(slopes, exponent) * of_scores.unsqueeze(-1)).sum(-2)
    return total + (raised(by_query, exponent) * of_q.unsqueeze(-2)).sum(-1)


def _through(jacobian: Callable[[Tensor], Tensor], x: Tensor, spread: Tensor, law: Law) -> Tensor:
    """Spreads of J x for independent components, with a Jacobian (n, n) for each of the rows `x` (..., n)."""
    n = _fitting(x.shape[-1])
    step = max(1, _CHUNK // max(1, n * n))
    parts = []
    for rows, s in zip(x.reshape(-1, n).split(step), spread.reshape(-1, n).split(step), strict=True):
        matrix = jacobian(rows)
        if isinstance(law, SymmetricStable):
            parts.append(stable_scale(matrix, s, law.alpha))
        else:
            matrix = matrix.square() if isinstance(law, DiagonalGaussian) else matrix.abs()
            parts.append((matrix @ s.unsqueeze(-1)).squeeze(-1))
    return torch.cat(parts).reshape(x.shape)


def _fitting(n: int) -> int:
    """Return the length of a row, or raise if its Jacobian is too large."""
    if n * n > _MOST:
        raise NoFormulaError(f"a Jacobian of {n} by {n} components, more than {_MOST:,} entries")
    return n
