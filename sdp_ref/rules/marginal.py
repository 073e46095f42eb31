"""Marginal rules: each component's law through affine ops, sums and pools, and marginal SDP.

Correlations that affine layers create are dropped, so every op sees independent components.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.activations import ELEMENTWISE, activation_of
from sdp_ref.activations.relu import ReLU
from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.affine import AFFINE, Affine, Rearrangement
from sdp_ref.graph.nonlinear import MAX_POOLS, NORMS, Attention, Norm, max_pool, softmax_dim
from sdp_ref.graph.ops import (
    Add,
    Cat,
    MatrixProduct,
    Maximum,
    MaximumOfPairs,
    Multiply,
    Quotient,
    VectorNorm,
    pointwise,
)
from sdp_ref.jacobian.local import in_dtype, spread_through
from sdp_ref.laws import Cauchy, DiagonalGaussian, Law, SymmetricStable, noted, unchecked
from sdp_ref.laws.base import power
from sdp_ref.laws.location_scale import bounded, raised, stable_scale
from sdp_ref.rules.base import as_marginal, lost_variances
from sdp_ref.rules.layerwise import LayerwiseRule


def spread_of(law: Law) -> Tensor:
    """Variance of a :class:`DiagonalGaussian`, scale of the other marginal families."""
    match law:
        case DiagonalGaussian():
            return law.variance
        case Cauchy() | SymmetricStable():
            return law.scale
    raise NoFormulaError(f"{type(law).__name__} input")


def with_spread(law: Law, location: Tensor, spread: Tensor) -> Law:
    """Law of the family of `law` with this location and this :func:`spread_of`."""
    if isinstance(law, SymmetricStable):
        return unchecked(SymmetricStable, location, spread, law.alpha)
    return unchecked(type(law), location, spread)


def additive(*laws: Law) -> tuple[list[Tensor], float, Callable[[Tensor], Tensor]]:
    """Convert spreads to measures that add for independent terms: sum_j J_ij X_j has sum_j |J_ij|^p mu_j.

    Return the measures mu of the laws, each of the shape of its location, the exponent p, and the function
    that converts a measure back to a spread. Variances (p = 2) and scales of Cauchy laws (p = 1) add
    themselves; of alpha-stable laws, scales to the power p = alpha do, relative to the largest of a row so
    that no power over- or underflows.
    """
    spreads = [spread_of(law) for law in laws]
    law = laws[0]
    if not isinstance(law, SymmetricStable):
        return spreads, 2 if isinstance(law, DiagonalGaussian) else 1, lambda total: total
    alpha = law.alpha
    scales = [bounded(spread) for spread in spreads]
    largest = torch.stack([scale.flatten(1).amax(1) for scale in scales]).amax(0)
    largest = torch.where(largest > 0, largest, 1.0)

    def largest_like(x: Tensor) -> Tensor:
        return largest.reshape(-1, *[1] * (x.ndim - 1))

    def scale_of(measure: Tensor) -> Tensor:
        return bounded(largest_like(measure) * power(measure, 1 / alpha))

    return [power(scale / largest_like(scale), alpha) for scale in scales], alpha, scale_of


CHUNK = 2**24  # entries of a batch of Jacobians
_MOST = 2**28  # entries of one Jacobian


def linearised(module: nn.Module, *laws: Law) -> Law:
    """Any differentiable op of one or several values by its Jacobian, column by column if not diagonal.

    The law of the result has the family of the first law. A value that occurs twice counts once, with the sum
    of its derivatives.
    """
    distinct = {id(law): law for law in laws}
    index_of = {key: index for index, key in enumerate(distinct)}

    def function(*values: Tensor) -> Tensor:
        return in_dtype(module, *[values[index_of[id(law)]] for law in laws])

    measures, exponent, back = additive(*distinct.values())
    points = [law.location for law in distinct.values()]
    total = spread_through(function, points, measures, exponent, pointwise(module))
    return with_spread(laws[0], function(*points), back(total))


def normalised(form: Norm, law: Law, extra: Tensor | float) -> Law:
    """Law of a norm, linearised at the location with the mean square increased by `extra`.

    The Jacobian of z = (x - mean) / s is J = (I - (c 1 1^T + z z^T) / n) / s, where c is 1 for a centred norm
    (layer norm) and 0 otherwise (RMS norm).
    """
    x = law.location
    z, inverse = form.scores(x, extra)
    n = z.shape[-1]
    c = 1.0 if form.centred else 0.0
    if isinstance(law, DiagonalGaussian):
        # sum_j J_ij^2 v_j without J, from the sums of v_j, v_j z_j and v_j z_j^2
        v = form.grouped(law.variance)
        sum_v, sum_vz, sum_vzz = [(v * z**k).sum(-1, keepdim=True) for k in range(3)]
        spread = v * (1 - 2 * (c + z.square()) / n)
        spread = spread + (c * (sum_v + 2 * z * sum_vz) + z.square() * sum_vzz) / n**2
        spread = spread.clamp(min=0) * inverse.square()
        gain = None if form.gain is None else raised(form.gain, 2)
    else:

        def jacobian(rows: Tensor) -> Tensor:
            eye = torch.eye(n, dtype=rows.dtype, device=rows.device)
            return eye - (c + rows.unsqueeze(-1) * rows.unsqueeze(-2)) / n

        (measure,), exponent, back = additive(law)
        spread = back(_through(jacobian, z, form.grouped(measure), exponent)) * inverse
        gain = None if form.gain is None else raised(form.gain, 1)
    spread = replace(form, gain=gain, shift=None).finished(spread, x)
    return with_spread(law, form.finished(z, x), spread)


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


def _through(jacobian: Callable[[Tensor], Tensor], x: Tensor, measure: Tensor, exponent: float) -> Tensor:
    """Measures of J x for independent components, with a Jacobian (n, n) for each row of `x` (..., n)."""
    n = fitting(x.shape[-1])
    step = max(1, CHUNK // max(1, n * n))
    pairs = zip(x.reshape(-1, n).split(step), measure.reshape(-1, n).split(step), strict=True)
    parts = [(raised(jacobian(rows), exponent) @ m.unsqueeze(-1)).squeeze(-1) for rows, m in pairs]
    return torch.cat(parts).reshape(x.shape)


def fitting(n: int) -> int:
    """Return the length of a row, or raise if its Jacobian is too large."""
    if n * n > _MOST:
        raise NoFormulaError(f"a Jacobian of {n} by {n} components, more than {_MOST:,} entries")
    return n


@dataclass(frozen=True)
class MarginalRule(LayerwiseRule):
    """A layer-wise rule that propagates a location and a scale for each component, without correlations."""

    marginal: ClassVar[bool] = True

    def start(self, x: Law) -> Law:
        return as_marginal(self.name, x)

    def linearise(self, module: nn.Module) -> Callable[..., Law]:
        """Use squared entries of the Jacobian, computed in chunks."""
        return partial(linearised, module)


def _positive(op: Affine, variance: Tensor, spread: Tensor) -> Tensor:
    """Numbers that are positive where the exact spread is; the spread itself if no term underflows."""
    weight = _smallest_positive(op.weight(variance).detach().to(variance.dtype).abs())
    if weight**2 * _smallest_positive(variance.detach()) >= torch.finfo(variance.dtype).tiny:
        return spread
    return op.spread(variance.sqrt(), 1)


def _smallest_positive(x: Tensor) -> float:
    """Smallest positive entry, infinity if there is none."""
    return float(torch.where(x > 0, x, math.inf).amin()) if x.numel() else math.inf


@MarginalRule.prepares(*AFFINE)
def _affine(_rule: MarginalRule, module: nn.Module) -> Callable[[Law], Law]:
    op: Affine = AFFINE[type_before_parametrizations(module)](module)
    moves = isinstance(op, Rearrangement)

    def propagate(law: Law) -> Law:
        op.check(law.location)
        notes: list[str] = []
        match law:
            case DiagonalGaussian():
                variance = law.variance
                spread = op.spread(variance, 2)
                if not moves:
                    notes = lost_variances(spread, spread.dtype, lambda: _positive(op, variance, spread))
            case Cauchy():
                spread = op.spread(law.scale, 1)
            case SymmetricStable():
                spread = op.stable_scale(law.scale, law.alpha)
            case _:
                raise NoFormulaError(f"{type(law).__name__} input")
        return noted(with_spread(law, op.value(law.location), spread), notes)

    return propagate


@MarginalRule.handles(Add)
def _add(_rule: MarginalRule, _module: nn.Module, a: Law, b: Law) -> Law:
    location = a.location + b.location
    # Spreads add as for independent values: the correlation of the two branches is dropped.
    first, second = torch.broadcast_tensors(spread_of(a), spread_of(b))
    if isinstance(a, SymmetricStable):
        both = torch.stack([first, second], -1)
        return with_spread(a, location, stable_scale(both.new_ones(1, 2), both, a.alpha).squeeze(-1))
    return with_spread(a, location, first + second)


@MarginalRule.handles(Cat)
def _cat(_rule: MarginalRule, module: Cat, *laws: Law) -> Law:
    locations = [law.location for law in laws]
    spreads = [spread_of(law) for law in laws]
    return with_spread(laws[0], module(*locations), module(*spreads))


@MarginalRule.handles(Maximum, MaximumOfPairs, note="by the larger mean")
def _maximum(_rule: MarginalRule, module: Maximum, a: Law, b: Law) -> Law:
    a_is_larger = a.location >= b.location
    spread = torch.where(a_is_larger, spread_of(a), spread_of(b))
    return with_spread(a, module(a.location, b.location), spread)


@MarginalRule.handles(*MAX_POOLS, note="by its largest mean")
def _max_pool(_rule: MarginalRule, module: nn.Module, law: Law) -> Law:
    location, index = max_pool(module, law.location)
    spread = spread_of(law).flatten(2).gather(2, index.flatten(2)).reshape(location.shape)
    return with_spread(law, location, spread)


@MarginalRule.handles(Multiply, MatrixProduct, note="linearised")
def linear_product(_rule: MarginalRule, module: nn.Module, a: Law, b: Law) -> Law:
    """Linearised product of two values, elementwise or of matrices; a value times itself is its square."""
    location = module(a.location, b.location)
    (left, right), exponent, back = additive(a, b)
    by_left, by_right = raised(a.location, exponent), raised(b.location, exponent)
    if a is b and not isinstance(module, MatrixProduct):
        return with_spread(a, location, back(left * raised(2 * a.location, exponent)))
    return with_spread(a, location, back(module(left, by_right) + module(by_left, right)))


@MarginalRule.handles(Quotient, note="linearised")
def _quotient(_rule: MarginalRule, module: nn.Module, a: Law, b: Law) -> Law:
    """Linearised a / b; a value divided by itself is 1."""
    location = module(a.location, b.location)
    if a is b:
        return with_spread(a, location, 0 * additive(a)[0][0])
    (numerator, denominator), exponent, back = additive(a, b)
    by_numerator = raised(1 / b.location, exponent)
    by_denominator = raised(location, exponent) * by_numerator
    return with_spread(a, location, back(numerator * by_numerator + denominator * by_denominator))


@MarginalRule.handles(nn.Softmax, note="linearised")
def _softmax(_rule: MarginalRule, module: nn.Softmax, law: Law) -> Law:
    """Softmax; the spread of each output combines those of all inputs by its row of the Jacobian."""
    x, dim = law.location, softmax_dim(module, law.location)

    def jacobian(rows: Tensor) -> Tensor:
        p = torch.softmax(rows, -1)
        others = 1 - torch.eye(p.shape[-1], dtype=p.dtype, device=p.device)
        off = -p.unsqueeze(-1) * p.unsqueeze(-2) * others
        return off - torch.diag_embed(off.sum(-1))  # p (1 - p) without cancellation at p = 1

    (measure,), exponent, back = additive(law)
    through = _through(jacobian, x.movedim(dim, -1), measure.movedim(dim, -1), exponent)
    return with_spread(law, module(x), back(through.movedim(-1, dim)))


@MarginalRule.handles(nn.LogSoftmax, note="linearised")
def _log_softmax(_rule: MarginalRule, module: nn.LogSoftmax, law: Law) -> Law:
    """X - log sum exp x, whose Jacobian is I - 1 p^T."""
    dim = softmax_dim(module, law.location)
    location = module(law.location)
    (measure,), exponent, back = additive(law)
    off_diagonal = raised(location.exp(), exponent)  # p
    diagonal = raised(torch.expm1(location), exponent)  # 1 - p
    weighted = measure * off_diagonal
    total = measure * diagonal + (weighted.sum(dim, keepdim=True) - weighted).clamp(min=0)
    return with_spread(law, location, back(total))


@MarginalRule.handles(*NORMS, note="linearised")
def _norm(_rule: MarginalRule, module: nn.Module, law: Law) -> Law:
    """Any norm of :data:`~sdp_ref.graph.nonlinear.NORMS`, J = (I - (1 1^T + z z^T) / n) / s, z the scores."""
    return normalised(Norm.of(module, law.location), law, 0.0)


@MarginalRule.handles(Attention, note="linearised")
def _attention(_rule: MarginalRule, module: Attention, q: Law, k: Law, v: Law) -> Law:
    """Scaled dot-product attention, in closed form.

    With weights A and outputs o = A v: d o_ld / d v_jd = A_lj and d o_ld / d score_lj = A_lj (v_jd - o_ld).
    """
    if len({id(q), id(k), id(v)}) < 3:
        return linearised(module, q, k, v)
    location = module(q.location, k.location, v.location)
    measures, exponent, back = additive(q, k, v)
    weights, factor = module.weights(q.location, k.location), module.factor(q.location)
    arguments = (location, weights, *measures, q.location * factor, k.location * factor, v.location)
    step = max(1, CHUNK // max(1, weights.shape[-1] * math.prod(location.shape[-2:])))
    chunks_by_argument = [argument.flatten(0, -3).split(step) for argument in arguments]
    parts = [_through_heads(exponent, *chunk) for chunk in zip(*chunks_by_argument, strict=True)]
    return with_spread(q, location, back(torch.cat(parts).reshape(location.shape)))


@MarginalRule.handles(VectorNorm, note="linearised")
def _vector_norm(_rule: MarginalRule, module: VectorNorm, law: Law) -> Law:
    """Euclidean length r with Jacobian x^T / r; at location 0, where it is undefined, the spread is 0."""
    x, location = law.location, module(law.location)
    whole = location if module.keepdim else VectorNorm(module.dims, True)(x)
    (measure,), exponent, back = additive(law)
    slope = torch.where(whole > 0, x / torch.where(whole > 0, whole, 1.0), 0.0)
    return with_spread(law, location, back(module.summed(raised(slope, exponent) * measure)))


@dataclass(frozen=True)
class MarginalSDP(MarginalRule):
    """Marginal stable distribution propagation: layer by layer, without correlations.

    Each layer maps location and scale; correlations that affine layers create are dropped. Takes
    Gaussian (by its variances), Cauchy and symmetric alpha-stable inputs and gives the same family.
    """

    name: ClassVar[str] = "marginal_sdp"
    title: ClassVar[str] = "marginal SDP"
    colour: ClassVar[str] = "#56b4e9"
    rank: ClassVar[int] = 50
    linear: ClassVar[bool] = True


@MarginalSDP.prepares(*ELEMENTWISE)
def _linearise(_rule: LayerwiseRule, module: nn.Module) -> Callable[[Law], Law]:
    activation = activation_of(module)

    def propagate(law: Law) -> Law:
        location = activation.function(law.location)
        spread = spread_of(law)
        if isinstance(activation, ReLU):  # its slope is 0 or 1, which saves a pass
            return with_spread(law, location, _passed(law.location, spread))
        slope = raised(activation.derivative(law.location), 2 if isinstance(law, DiagonalGaussian) else 1)
        return with_spread(law, location, spread * slope)

    return propagate


def _passed(location: Tensor, spread: Tensor) -> Tensor:
    """Spread where a ramp has slope 1, and 0 below."""
    if torch.is_grad_enabled() and spread.requires_grad:
        return spread * torch.ge(location.detach(), 0, out=torch.empty_like(spread))
    # the derivative of ReLU as one operation: three times as fast as a comparison and a product
    below = -torch.finfo(location.dtype).smallest_normal
    return torch.ops.aten.threshold_backward(spread, location.detach(), below)
