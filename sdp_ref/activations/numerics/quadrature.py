"""Gaussian mean and variance of a smooth non-linearity by composite Gauss-Legendre quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sdp_ref.activations.numerics.normal import assembled, gauss_legendre, off_points, pairs, pdf, recomputed

_KNOTS = (0.0, 2.0, 6.0, 14.0, 40.0)  # the non-linearities bend within a few units of 0
_PANELS = 14  # panels across the range of the law, in addition to the knots
_POINTS = 16  # per panel
_REACH = 9.0  # standard deviations; the mass beyond is 2e-19
_TAIL_REACH = 30.0  # additional ones towards 0, where functions that decay in the tail have their mass
_ELEMENTS = 2**18  # elements of a temporary in a chunk
_SMALL_VARIANCE = 1e-11  # below it the error of a two-term Taylor series is below rounding


def smooth_mean_variance(
    function: Callable[[Tensor], Tensor],
    derivative: Callable[[Tensor], Tensor],
    second_derivative: Callable[[Tensor], Tensor],
    mean: Tensor,
    variance: Tensor,
) -> tuple[Tensor, Tensor]:
    """Mean and variance of f(X), X ~ N(mean, variance), elementwise.

    The variance is the mean of (f - E f)^2, a sum of non-negative terms, and therefore has a small relative
    error where f is nearly constant or nearly linear. Functions with f(x) -> 0 as x -> -inf keep their
    relative accuracy in that tail; reflect functions that saturate to the right.
    """
    shape = mean.shape
    m, v = mean.reshape(-1), variance.reshape(-1)
    small = v < _SMALL_VARIANCE
    safe = torch.where(small, 1.0, v)
    count = (_PANELS + 2 * len(_KNOTS)) * _POINTS
    both = _chunked(lambda *chunk: recomputed(_quadrature, function, *chunk), count, m, safe)
    # Taylor series to order v^2: quadrature would take differences of equal numbers here.
    f, df, d2f = function(m), derivative(m), second_derivative(m)
    ef = torch.where(small, f + 0.5 * d2f * v, both[:, 0])
    varf = torch.where(small, df * df * v + 0.5 * (d2f * v) ** 2, both[:, 1])
    return ef.reshape(shape), varf.reshape(shape)


def _quadrature(function: Callable[[Tensor], Tensor], m: Tensor, v: Tensor) -> Tensor:
    """Mean and variance, (elements, 2)."""
    s = v.sqrt()
    # The integral does not depend on the node positions: their gradient would only add quadrature error.
    u, weight = _nodes(m.detach(), s.detach())
    at_mean = function(m)
    # Relative to f(m), not 0: a nearly constant function keeps all digits of its variance.
    difference = function(m[:, None] + s[:, None] * u) - at_mean[:, None]
    shift = (weight * difference).sum(-1)
    return torch.stack([at_mean + shift, (weight * (difference - shift[:, None]) ** 2).sum(-1)], -1)


def _nodes(m: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Standardised nodes and their weights including the density, each of shape (elements, nodes)."""
    low = torch.full_like(m, -_REACH)
    high = _REACH + (-m / s).clamp(0, _TAIL_REACH)
    fractions = torch.linspace(0, 1, _PANELS + 1, dtype=m.dtype, device=m.device)
    knots = torch.tensor([*(-x for x in _KNOTS[1:]), *_KNOTS], dtype=m.dtype, device=m.device)
    bends = ((knots - m[:, None]) / s[:, None]).clamp(low[:, None], high[:, None])
    edges = torch.cat([low[:, None] + (high - low)[:, None] * fractions, bends], -1).sort(-1).values
    t, w = gauss_legendre(_POINTS, m.device)
    width = edges.diff(dim=-1)[..., None]
    u = (edges[:, :-1, None] + width * t).flatten(1)
    weight = (width * w).flatten(1) * torch.exp(-0.5 * u * u) / math.sqrt(2 * math.pi)
    return u, weight


# edges next to the bends: panels are as wide as their distance from the bend
KNOTS = (0.5, 1.25, 2.5, 5.0, 10.0, 20.0, 40.0)
PANELS = 14  # panels across the range of a law, in addition to the knots
_TAIL_PANELS = 10
# coarser panels for the two-dimensional integrals of covariances, whose tolerance is at least 1e-10
_FEW_PANELS = 8
_FEW_KNOTS = (1.25, 5.0, 15.0)
_FEW_POINTS = 12
# Largest standard deviation, in units of the curve, for which f(x) - f(m) is integrated from f'. The direct
# difference has an error of eps f(m), relative to s f'(m) about eps / s. From 1 on, no digit is lost.
_NARROW = 1.0
_FEW_NARROW = 1e-3  # from there on, three digits are lost, which covariances can spare
_NEAR = 3.0  # standard deviations within which f is determined by its derivative there
_FAR = 40.0  # distance to the next bend, in standard deviations, from which panels of any width resolve f'
_TERMS = (8, 32, 128, 512)  # lengths of the series, tried in this order
_GRADED = (-9.0, -4.0, -1.5, 1.5, 4.0, 9.0)  # distances from a bend, in standard deviations of Y given X
_LOST = 1e-9  # excess of the series over the variance, relative, from which nodes do not resolve coefficients
_LEAST = 1e-16  # lower bound of 1 - rho^2: it does not change results and keeps gradients finite

Jump = tuple[float, float, float]
"""Location of a jump, and the values before and after it."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A function of one variable and what the quadrature needs to know about it.

    `function` may differ from f by a constant where that is more accurate; no gradient flows through it.
    `bends` include corners and jumps: at a distance d from all of them, f is analytic within min(d, about 1
    `unit`). `knots` are further panel edges, as distances from the outermost bends in that unit. `panels` is
    the number of panels across the range of a law; doubling it estimates the error.
    """

    function: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]
    bends: tuple[float, ...] = (0.0,)
    jumps: tuple[Jump, ...] = ()
    unit: float = 1.0
    knots: tuple[float, ...] = KNOTS
    panels: int = PANELS


class _Tangent(torch.autograd.Function):
    """A value with known derivatives with respect to some variables."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *pairs_of: Tensor) -> Tensor:
        ctx.save_for_backward(*pairs_of[::2])
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # with create_graph, the saved results would be treated as constants
            raise RuntimeError("moments by quadrature have first derivatives only")
        (g,) = gradients
        return (g, *(part for slope in ctx.saved_tensors for part in (None, g * slope)))


def _tangent(value: Tensor, *slopes: tuple[Tensor, Tensor]) -> Tensor:
    flat: list[Tensor] = []
    for slope, x in slopes:
        if x.requires_grad:
            flat += [slope.detach(), x.reshape(*x.shape, *[1] * (value.ndim - x.ndim)).expand_as(value)]
    return _Tangent.apply(value, *flat) if flat else value  # type: ignore[no-untyped-call]


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Quadrature nodes of a curve for several laws; each tensor has one row per law.

    `mean` and `deviation` (e,) carry their graph. `u` and `weight` (e, N) are standardised nodes and their
    weights including the density, `difference` is f - f(m) and `slope` f' at the nodes. `steps` has for each
    jump its standardised location with its graph, and f - f(m) before and after it, each (e,).
    """

    mean: Tensor
    deviation: Tensor
    u: Tensor
    weight: Tensor
    difference: Tensor
    slope: Tensor
    steps: list[tuple[Tensor, Tensor, Tensor]]

    def moving(self, value: Tensor, slope: Tensor, at_step: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        lead = slope * self.slope
        by_steps = []
        for place, before, after in self.steps:
            at = place.detach()
            by_steps.append((pdf(at) * (at_step(at, before) - at_step(at, after)), place))
        return _tangent(
            value, (lead.sum(-1), self.mean), ((lead * self.u).sum(-1), self.deviation), *by_steps
        )


@lru_cache(maxsize=8)
def _primitive(count: int) -> np.ndarray:
    """Matrix that integrates a function from 0 to each Gauss-Legendre node on [0, 1] from its node values."""
    x = np.polynomial.legendre.leggauss(count)[0]
    values = np.polynomial.legendre.legvander(x, count)
    upper = np.stack([(values[:, k + 1] - values[:, max(k - 1, 0)]) / (2 * k + 1) for k in range(count)], 1)
    upper[:, 0] = x + 1
    return np.linalg.solve(values[:, :count].T, upper.T).T / 2


def _around(curve: Curve, knots: Sequence[float]) -> list[float]:
    """The bends of a curve, and points at increasing distances on both sides."""
    points = set(curve.bends)
    for bend in (min(curve.bends), max(curve.bends)) if curve.bends else ():
        for knot in knots:
            points |= {bend - knot * curve.unit, bend + knot * curve.unit}
    return sorted(points)


def _curve_nodes(
    curve: Curve, mean: Tensor, deviation: Tensor, extra: Tensor | None = None, *, few: bool = False
) -> _Nodes:
    """Quadrature under N(mean, deviation^2), shape (e,); `extra` (e, k) are additional standardised edges.

    If `few`, panels are fewer and wider: enough for the two-dimensional integrals of :func:`_conditional`.
    """
    m, s = mean.detach()[:, None], deviation.detach()[:, None]
    edges = _panel_edges(curve, m, s, extra, few=few)
    t, w = gauss_legendre(_FEW_POINTS if few else _POINTS, m.device)
    width = edges.diff(dim=-1)[..., None]
    u = edges[:, :-1, None] + width * t
    weight = width * w * pdf(u)
    x = m[..., None] + s[..., None] * u
    slope = curve.derivative(x)
    at_mean = curve.function(m)
    change = s * torch.where(u.abs() <= _NEAR, slope, 0.0).abs().flatten(1).amax(-1, keepdim=True)
    # where f(m) is small there is no cancellation, and f may decay faster than a panel can resolve
    integrated = (at_mean.abs() > change) & _resolves_slope(curve, m, s, few=few)
    difference = torch.zeros_like(u)
    if bool(integrated.any()):
        difference = _with_jumps(_integrated_slope(s, edges, slope), curve, m, s, edges)
    if not bool(integrated.all()):
        direct = curve.function(x) - at_mean[..., None]
        difference = torch.where(integrated[..., None], difference, direct)
    steps = []
    for place, left_limit, right_limit in curve.jumps:
        h = ((place - mean) / deviation).clamp(-50, 50)  # the density is 0 there, and its square finite
        steps.append((h, left_limit - at_mean[:, 0], right_limit - at_mean[:, 0]))
    return _Nodes(
        mean, deviation, u.flatten(1), weight.flatten(1), difference.flatten(1), slope.flatten(1), steps
    )


def _panel_edges(curve: Curve, m: Tensor, s: Tensor, extra: Tensor | None, *, few: bool) -> Tensor:
    """Sorted standardised edges of the panels, (e, k); 0 is one of them.

    They divide the range of the law evenly, continue towards bends outside it, and surround bends within it.
    """
    panels = _FEW_PANELS if few else curve.panels
    knots = m.new_tensor(_around(curve, _FEW_KNOTS if few else curve.knots))
    range_edges = _REACH * (2 * torch.linspace(0, 1, panels + 1, dtype=m.dtype, device=m.device) - 1)
    tail_edges = _tail_edges(m.new_tensor(curve.bends), m, s)
    low = tail_edges.amin(-1, keepdim=True).clamp(max=-_REACH)
    high = tail_edges.amax(-1, keepdim=True).clamp(min=_REACH)
    edges = [range_edges.expand(len(m), -1), tail_edges]
    edges.append(((knots - m) / s).clamp(low, high))
    edges.append(torch.zeros_like(m))  # integrals of the derivative start here
    if extra is not None:
        edges.append(extra.clamp(low, high))
    return torch.cat(edges, -1).sort(-1).values


def _tail_edges(bends: Tensor, m: Tensor, s: Tensor) -> Tensor:
    """Standardised edges (e, k) beyond `_REACH`, towards bends outside the range of the law.

    Away from its bends f may decay like exp(x), as softplus does. The integrand exp(s u) pdf(u) is largest at
    u = s, which can be anywhere up to the bend. The range therefore ends `_REACH` beyond the bend.
    """
    fractions = torch.linspace(0, 1, _TAIL_PANELS + 1, dtype=m.dtype, device=m.device)[1:]
    if not len(bends):
        return (_REACH + 0.0 * fractions).expand(len(m), -1)
    to_the_right = ((bends.min() - m) / s).clamp(0, _TAIL_REACH)
    to_the_left = ((m - bends.max()) / s).clamp(0, _TAIL_REACH)
    left_edges, right_edges = -_REACH - to_the_left * fractions, _REACH + to_the_right * fractions
    outside = torch.where(to_the_left > 0, left_edges, right_edges)
    if len(bends) == 1:
        return outside
    return torch.cat([outside, *_edges_between_bends(bends, m, s, fractions)], -1)


def _edges_between_bends(bends: Tensor, m: Tensor, s: Tensor, fractions: Tensor) -> Iterator[Tensor]:
    """Edges from `_REACH` to beyond the nearest bend, on either side, for laws between two bends."""
    inside = (bends.min() < m) & (m < bends.max())
    for side in (-1, 1):
        distance = side * (bends - m) / s
        nearest = torch.where(distance > 0, distance, math.inf).amin(-1, keepdim=True)
        # a bend within _NEAR has panels around it, and one beyond _TAIL_REACH is out of reach
        extended = inside & (nearest > _NEAR) & (nearest <= _TAIL_REACH)
        if bool(extended.any()):
            start = nearest.clamp(_REACH, _TAIL_REACH)
            end = nearest.clamp(max=_TAIL_REACH) + _REACH
            yield side * torch.where(extended, start + (end - start) * fractions, _REACH)


def _resolves_slope(curve: Curve, m: Tensor, s: Tensor, *, few: bool) -> Tensor:
    """Whether the panels resolve f': the law is narrow compared with `unit`, or far from bends, (e, 1)."""
    narrow = s <= (_FEW_NARROW if few else _NARROW) * curve.unit
    if not curve.bends:
        return torch.ones_like(narrow)
    distance = (m.new_tensor(curve.bends) - m).abs().amin(-1, keepdim=True)
    return narrow | (distance > _FAR * s)


def _integrated_slope(s: Tensor, edges: Tensor, slope: Tensor) -> Tensor:
    """The integral of s f'(m + s v) over v from 0 to each node u, (e, panels, points), without jumps.

    With the panels' integrals I_p by Gauss-Legendre and the antiderivative of the interpolating polynomial
    within a panel, a node right of 0 has the sum of I_q over the panels between 0 and its own, plus the
    integral from the left edge of that panel. A node left of 0 has minus the mirrored sum. Integrating
    outwards matters: the derivative at one end may be larger by many orders of magnitude.
    """
    points = slope.shape[-1]
    w = gauss_legendre(points, s.device)[1]
    from_left = torch.tensor(_primitive(points).T.copy(), dtype=s.dtype, device=s.device)
    right_of_zero = edges[:, :-1] >= 0
    piece = s[..., None] * edges.diff(dim=-1)[..., None] * slope
    panel = piece @ w
    right, left = torch.where(right_of_zero, panel, 0.0), torch.where(right_of_zero, 0.0, panel)
    inner_edge = right.cumsum(-1) - right - (left.flip(-1).cumsum(-1).flip(-1) - left)
    start, rows = inner_edge.reshape(-1, 1), piece.flatten(0, 1)
    outwards_right = torch.addmm(start, rows, from_left).reshape(piece.shape)
    outwards_left = torch.addmm(start, rows, from_left - w[:, None]).reshape(piece.shape)
    return torch.where(right_of_zero[..., None], outwards_right, outwards_left)


def _with_jumps(difference: Tensor, curve: Curve, m: Tensor, s: Tensor, edges: Tensor) -> Tensor:
    """Add the jumps between the mean and each panel to the integral of f', (e, panels, points)."""
    for place, left_limit, right_limit in curve.jumps:
        h = (place - m) / s
        # at the jump itself, f has one of the two values
        value = float(curve.function(m.new_tensor(place)))
        is_right = abs(value - right_limit) <= abs(value - left_limit)
        mean_passed = h <= 0 if is_right else h < 0
        panel_passed = edges[:, :-1] + edges[:, 1:] > 2 * h
        crossings = panel_passed.to(m.dtype) - mean_passed.to(m.dtype)  # -1 to the left of the mean
        difference = difference + (right_limit - left_limit) * crossings[..., None]
    return difference


def _chunked(function: Callable[..., Tensor], count: int, *arguments: Tensor) -> Tensor:
    """Apply `function` to some rows of `arguments` (e, ...) at a time; it needs `count` numbers per row."""
    step = max(1, _ELEMENTS // count)
    chunks = zip(*(a.split(step) for a in arguments), strict=True)
    return torch.cat([function(*chunk) for chunk in chunks])


def _count(curve: Curve) -> int:
    return (curve.panels + _TAIL_PANELS + 2 * 2 * len(curve.knots) + len(curve.bends)) * _POINTS


def curve_mean_variance(curve: Curve, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of f(X) minus f(m), and variance of f(X), X ~ N(m, variance), elementwise."""

    def moments(m: Tensor, s: Tensor) -> Tensor:
        nodes = _curve_nodes(curve, m, s)
        w, d = nodes.weight, nodes.difference
        shift = (w * d).sum(-1)
        centred = d - shift[:, None]
        first = nodes.moving(shift, w, lambda _, at: at)
        second = nodes.moving(
            (w * centred * centred).sum(-1), 2 * w * centred, lambda _, at: (at - shift) ** 2
        )
        return torch.stack([first, second], -1)

    both = _chunked(moments, _count(curve), mean.reshape(-1), variance.reshape(-1).sqrt())
    return both[:, 0].reshape(mean.shape), both[:, 1].reshape(mean.shape)


@torch.no_grad()
def curve_misfit(curve: Curve, mean: Tensor, variance: Tensor) -> Tensor:
    """Root mean square difference between f(X) - f(m) as integrated from the derivative and its direct value.

    It reveals jumps that the curve does not declare.
    """

    def moment(m: Tensor, s: Tensor) -> Tensor:
        nodes = _curve_nodes(curve, m, s)
        direct = curve.function(m[:, None] + s[:, None] * nodes.u) - curve.function(m)[:, None]
        apart = torch.where(nodes.u.abs() <= _REACH, direct - nodes.difference, 0.0)
        return (nodes.weight * apart.square()).sum(-1).sqrt()

    return _chunked(moment, _count(curve), mean.reshape(-1), variance.reshape(-1).sqrt()).reshape(mean.shape)


def curve_mean_derivative(curve: Curve, mean: Tensor, variance: Tensor) -> Tensor:
    """E[f'(X)] including jumps, for positive variances."""

    def moment(m: Tensor, s: Tensor) -> Tensor:
        nodes = _curve_nodes(curve, m, s)
        weighted, u = nodes.weight * nodes.slope, nodes.u
        known = s.detach()
        # by Stein's lemma E f'' = E[f' U] / s, and the derivative by s is E[f' (U^2 - 1)] / s
        value = _tangent(
            weighted.sum(-1),
            ((weighted * u).sum(-1) / known, m),
            ((weighted * (u * u - 1)).sum(-1) / known, s),
        )
        for place, before, after in nodes.steps:
            value = value + (after - before) * pdf(place) / s
        return value

    return _chunked(moment, _count(curve), mean.reshape(-1), variance.reshape(-1).sqrt()).reshape(mean.shape)


def _hermite(u: Tensor, terms: int) -> Iterator[Tensor]:
    """Normalised Hermite polynomials of degrees 1 to `terms` at u."""
    before, last = torch.zeros_like(u), torch.ones_like(u)
    for k in range(terms):
        before, last = last, torch.addcmul(-math.sqrt(k) * before, u, last).div_(math.sqrt(k + 1))
        yield last


def _coefficients(curve: Curve, mean: Tensor, deviation: Tensor, terms: int) -> Tensor:
    """a_1 to a_terms of each law, shape (e, terms)."""

    def of(m: Tensor, s: Tensor) -> Tensor:
        nodes = _curve_nodes(curve, m, s)
        centred = nodes.difference - (nodes.weight * nodes.difference).sum(-1, keepdim=True)
        rows = [nodes.weight * centred]
        if m.requires_grad or s.requires_grad:
            rows += [nodes.weight * nodes.slope, nodes.weight * nodes.slope * nodes.u]
        stacked = torch.stack(rows, 1)
        found = torch.cat([stacked @ h[..., None] for h in _hermite(nodes.u, terms)], -1)
        slopes = list(zip(found.unbind(1)[1:], (m, s), strict=False))
        for place, before, after in nodes.steps:
            at = place.detach()
            density = (pdf(at) * (before - after))[:, None]
            slopes.append((density * torch.stack(list(_hermite(at, terms)), -1), place))
        return _tangent(found[:, 0], *slopes)

    return _chunked(of, _count(curve), mean, deviation)


def curve_covariance(
    curve: Curve, mean: Tensor, variance: Tensor, covariance: Tensor, outputs: Tensor, tolerance: float
) -> Tensor:
    """Covariances of f of jointly normal units, (B, n, n), with zero diagonal.

    `mean` and `variance` are (B, n), `outputs` the variances of f (B, n). Errors are at most `tolerance`
    times the two standard deviations of the input.

    With a_k = E[f(m + s Z) h_k(Z)] for normalised Hermite polynomials h_k, the covariance of two units is the
    sum over k >= 1 of rho^k a_k b_k (Mehler's formula; Wright et al. 2024). By the Cauchy-Schwarz inequality
    the remainder after K terms is at most abs(rho)^(K + 1) sqrt(Var f(X) - sum a_k^2) sqrt(Var f(Y) - sum
    b_k^2). Pairs that need more terms than the longest series has are integrated in two dimensions.
    """
    i, j = pairs(mean)
    point = variance == 0
    s = torch.where(point, 1.0, variance).sqrt()
    rho = off_points(covariance, point, i, j) / s[:, i] / s[:, j]
    rho = rho + (rho.clamp(-1, 1) - rho).detach()
    allowed = 0.5 * tolerance * (s[:, i] * s[:, j]).detach()  # the other half is for the quadrature
    values = torch.zeros_like(rho)
    rows = torch.arange(len(mean), device=mean.device)
    # All pairs of a matrix use the same number of terms: with the variances as diagonal, it is semidefinite.
    for terms in _TERMS:
        if not len(rows) or not len(i):
            break
        a = _coefficients(curve, mean[rows].flatten(), s[rows].flatten(), terms).unflatten(0, (len(rows), -1))
        bound = _remainder_bound(a, outputs[rows], rho[rows], i, j)
        enough = (bound <= allowed[rows]) | (rho[rows] == 0)
        done = enough.all(-1) | (terms == _TERMS[-1])
        if bool(done.any()):
            values = values.index_put((rows[done],), _series(a[done], i, j, rho[rows[done]]))
        near_row, near_pair = (~enough & done[:, None]).nonzero(as_tuple=True)
        if len(near_row):
            row, one, other = rows[near_row], i[near_pair], j[near_pair]
            integrals = _in_two_dimensions(
                curve, mean[row, one], s[row, one], mean[row, other], s[row, other], rho[row, near_pair]
            )
            values = values.index_put((row, near_pair), integrals)
        rows = rows[~done]
    largest = (outputs[:, i] * outputs[:, j]).clamp(min=0).sqrt().detach()
    values = values + (torch.maximum(torch.minimum(values, largest), -largest) - values).detach()
    return assembled(values, i, j, mean.shape[-1])


def _remainder_bound(coefficients: Tensor, outputs: Tensor, rho: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Largest remainder of the series after the K terms of `coefficients` (R, n, K), for the pairs (R, P)."""
    remainder = (outputs - coefficients.square().sum(-1)).detach()
    # a sum above the variance indicates coefficients that the nodes do not resolve
    unresolved = remainder < -_LOST * outputs
    remainder = torch.where(unresolved, torch.inf, remainder.clamp(min=0)).sqrt()
    return rho.detach().abs() ** (coefficients.shape[-1] + 1) * remainder[:, i] * remainder[:, j]


def _in_two_dimensions(curve: Curve, *laws: Tensor) -> Tensor:
    """Covariances of pairs by :func:`_conditional`, some pairs at a time."""
    count = (PANELS + 10 * len(KNOTS)) * _FEW_POINTS * (_FEW_PANELS + 8) * _FEW_POINTS
    return _chunked(lambda *chunk: recomputed(_conditional, curve, *chunk), count, *laws)


def _series(coefficient: Tensor, i: Tensor, j: Tensor, rho: Tensor) -> Tensor:
    """Sum over k of rho^k a_k b_k for the pairs (R, P) of coefficients (R, n, K)."""

    def of(pair: Tensor) -> Tensor:
        value = torch.zeros_like(rho[:, pair])
        for a in coefficient.flip(-1).unbind(-1):
            value = (value + a[:, i[pair]] * a[:, j[pair]]) * rho[:, pair]
        return value.mT

    return _chunked(of, 4 * len(rho), torch.arange(len(i), device=i.device)).mT


def _conditional(curve: Curve, m_i: Tensor, s_i: Tensor, m_j: Tensor, s_j: Tensor, rho: Tensor) -> Tensor:
    """Cov(f(X), f(Y)) as E[(f(X) - E f(X)) E[f(Y) | X]], pair by pair, for abs(rho) near 1."""
    rest = (1 - rho) * (1 + rho)
    r = (rest + (rest.clamp(min=_LEAST) - rest).detach()).sqrt()
    outer = _curve_nodes(curve, m_i, s_i, _edges(curve, m_j, s_j, rho, r).detach(), few=True)
    u, w = outer.u, outer.weight

    def conditional_mean(u: Tensor) -> Tensor:
        """E[f(Y) | X] minus f(m_j), at standardised points of X, shape (e, k)."""
        centre = m_j[:, None] + (s_j * rho)[:, None] * u
        nodes = _curve_nodes(curve, centre.flatten(), (s_j * r)[:, None].expand_as(u).flatten(), few=True)
        shift = nodes.moving((nodes.weight * nodes.difference).sum(-1), nodes.weight, lambda _, at: at)
        # `shift` has the gradient of the mean; the rest is added without a gradient
        level = curve.function(centre.detach()) - curve.function(m_j.detach())[:, None]
        return shift.reshape(u.shape) + level

    given = conditional_mean(u)
    mean = (w * given).sum(-1, keepdim=True)
    given = given - mean
    centred = outer.difference - (w * outer.difference).sum(-1, keepdim=True)

    def at_step(place: Tensor, at: Tensor) -> Tensor:
        with torch.no_grad():
            return at * (conditional_mean(place[:, None]) - mean).squeeze(1)

    return outer.moving((w * centred * given).sum(-1), w * given.detach(), at_step)


def _edges(curve: Curve, m: Tensor, s: Tensor, rho: Tensor, r: Tensor) -> Tensor:
    """Standardised points of X where E[f(Y) | X] bends or starts to bend."""
    along = torch.where(rho == 0, 1.0, rho)
    bends = curve.bends or (0.0,)
    ends = torch.tensor([*bends, *_around(curve, _FEW_KNOTS)], dtype=m.dtype, device=m.device)
    centre = (ends - m[:, None]) / (s * along)[:, None]
    steps = torch.tensor(_GRADED, dtype=m.dtype, device=m.device)
    around = centre[:, : len(bends), None] + (r / along.abs())[:, None, None] * steps
    return torch.cat([centre, around.flatten(1)], -1)
