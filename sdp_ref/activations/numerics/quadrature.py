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
# Tolerances of covariances, relative to the standard deviations of the input:
_FEW_PANELS = 8
_FEW_KNOTS = (1.25, 5.0, 15.0)
_FEW_POINTS = 12
_NARROW = 1.0  # largest standard deviation for which differences are integrated from the derivative
_FEW_NARROW = 1e-3
_NEAR = 3.0  # standard deviations within which f is determined by its derivative there
_FAR = 40.0  # distance to the next bend, in standard deviations, from which they are, too
_TERMS = (8, 32, 128, 512)  # lengths of the series, tried in this order
_GRADED = (-9.0, -4.0, -1.5, 1.5, 4.0, 9.0)  # distances from a bend, in standard deviations of Y given X
_LOST = 1e-9  # relative to the variance
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
    outermost = {min(curve.bends), max(curve.bends)} if curve.bends else ()
    beside = (bend + sign * x * curve.unit for bend in outermost for x in knots for sign in (-1, 1))
    return sorted({*curve.bends, *beside})


def _between(core: Tensor, m: Tensor, s: Tensor, parts: Tensor) -> Iterator[Tensor]:
    """Standardised edges (e, k) beyond the nearest bend on either side, for laws between bends."""
    inside = (core.min() < m) & (m < core.max())
    for side in (-1, 1):
        away = side * (core - m) / s
        nearest = torch.where(away > 0, away, math.inf).amin(-1, keepdim=True)
        beyond = inside & (nearest > _NEAR) & (nearest <= _TAIL_REACH)
        if bool(beyond.any()):
            start = nearest.clamp(_REACH, _TAIL_REACH)
            ends = start + (nearest.clamp(max=_TAIL_REACH) + _REACH - start) * parts
            yield side * torch.where(beyond, ends, _REACH)


def _curve_nodes(
    curve: Curve, mean: Tensor, deviation: Tensor, extra: Tensor | None = None, *, few: bool = False
) -> _Nodes:
    """Quadrature under N(mean, deviation^2), shape (e,); `extra` (e, k) are additional standardised edges."""
    m, s = mean.detach()[:, None], deviation.detach()[:, None]

    def tensor(values: Any) -> Tensor:
        return torch.tensor(values, dtype=m.dtype, device=m.device)

    points, panels = (_FEW_POINTS, _FEW_PANELS) if few else (_POINTS, curve.panels)
    core = tensor(curve.bends)
    knots = tensor(_around(curve, _FEW_KNOTS if few else curve.knots))
    # extend the range towards the bends, which are on one side of the law or around it
    above, below = torch.zeros_like(m), torch.zeros_like(m)
    if len(core):
        above = ((core.min() - m) / s).clamp(0, _TAIL_REACH)
        below = ((m - core.max()) / s).clamp(0, _TAIL_REACH)
    low, high = -_REACH - below, _REACH + above
    parts = torch.linspace(0, 1, _TAIL_PANELS + 1, dtype=m.dtype, device=m.device)[1:]
    tail = torch.where(below > 0, -_REACH - below * parts, _REACH + above * parts)
    if len(core) > 1:
        tail = torch.cat([tail, *_between(core, m, s, parts)], -1)
        low, high = (f(tail, -1, keepdim=True).values for f in (torch.min, torch.max))
        low, high = low.clamp(max=-_REACH), high.clamp(min=_REACH)
    fractions = torch.linspace(0, 1, panels + 1, dtype=m.dtype, device=m.device)
    inner = [(knots - m) / s, torch.zeros_like(m), *([] if extra is None else [extra])]
    inner = [x.clamp(low, high) for x in inner]
    edges = torch.cat([(_REACH * (2 * fractions - 1)).expand(len(m), -1), tail, *inner], -1).sort(-1).values
    t, w = gauss_legendre(points, m.device)
    width = edges.diff(dim=-1)[..., None]
    u = edges[:, :-1, None] + width * t
    weight = width * w * pdf(u)
    slope = curve.derivative(m[..., None] + s[..., None] * u)
    distance = (core - m).abs().amin(-1, keepdim=True) if len(core) else torch.full_like(m, math.inf)
    narrow = (_FEW_NARROW if few else _NARROW) * curve.unit
    integrated = (s <= narrow) | (distance > _FAR * s)
    # where f(m) is small there is no cancellation, and f may decay faster than a panel can resolve
    moves = s * torch.where(u.abs() <= _NEAR, slope, 0.0).abs().flatten(1).amax(-1, keepdim=True)
    at_mean = curve.function(m)
    integrated = integrated & (at_mean.abs() > moves)
    difference = torch.zeros_like(u)
    if bool(integrated.any()):
        # integrate outwards from the mean: the derivative at one end may be larger by many orders of
        # magnitude
        right = edges[:, :-1] >= 0
        upward = tensor(_primitive(points).T.copy())
        piece = s[..., None] * width * slope
        whole = piece @ w
        above, below = torch.where(right, whole, 0.0), torch.where(right, 0.0, whole)
        before = above.cumsum(-1) - above - (below.flip(-1).cumsum(-1).flip(-1) - below)
        start, rows = before.reshape(-1, 1), piece.flatten(0, 1)
        forward = torch.addmm(start, rows, upward).reshape(piece.shape)
        backward = torch.addmm(start, rows, upward - w[:, None]).reshape(piece.shape)
        difference = torch.where(right[..., None], forward, backward)
        for place, before_it, after_it in curve.jumps:
            h = (place - m) / s
            at_place = float(curve.function(tensor(place)))
            passed = h <= 0 if abs(at_place - after_it) <= abs(at_place - before_it) else h < 0
            beyond = (edges[:, :-1] + edges[:, 1:] > 2 * h).to(m.dtype) - passed.to(m.dtype)
            difference = difference + (after_it - before_it) * beyond[..., None]
    if not bool(integrated.all()):
        direct = curve.function(m[..., None] + s[..., None] * u) - at_mean[..., None]
        difference = torch.where(integrated[..., None], difference, direct)
    steps = []
    for place, before_it, after_it in curve.jumps:
        h = ((place - mean) / deviation).clamp(-50, 50)
        steps.append((h, before_it - at_mean[:, 0], after_it - at_mean[:, 0]))
    u, weight, difference, slope = (x.flatten(1) for x in (u, weight, difference, slope))
    return _Nodes(mean, deviation, u, weight, difference, slope, steps)


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
    """Covariances of f of jointly normal units, with zero diagonal."""
    i, j = pairs(mean)
    point = variance == 0
    s = torch.where(point, 1.0, variance).sqrt()
    rho = off_points(covariance, point, i, j) / s[:, i] / s[:, j]
    rho = rho + (rho.clamp(-1, 1) - rho).detach()
    allowed = 0.5 * tolerance * (s[:, i] * s[:, j]).detach()
    values = torch.zeros_like(rho)
    rows = torch.arange(len(mean), device=mean.device)
    # All pairs of a matrix use the same number of terms: with the variances as diagonal, it is semidefinite.
    for terms in _TERMS:
        if not len(rows) or not len(i):
            break
        a = _coefficients(curve, mean[rows].flatten(), s[rows].flatten(), terms).unflatten(0, (len(rows), -1))
        rest = (outputs[rows] - a.square().sum(-1)).detach()
        # a sum above the variance indicates coefficients that the nodes do not resolve
        rest = torch.where(rest < -_LOST * outputs[rows], torch.inf, rest.clamp(min=0)).sqrt()
        bound = rho[rows].detach().abs() ** (terms + 1) * rest[:, i] * rest[:, j]
        enough = (bound <= allowed[rows]) | (rho[rows] == 0)
        done = enough.all(-1) | (terms == _TERMS[-1])
        if bool(done.any()):
            values = values.index_put((rows[done],), _series(a[done], i, j, rho[rows[done]]))
        near = (~enough & done[:, None]).nonzero()
        if len(near):
            r, p = rows[near[:, 0]], near[:, 1]
            inputs = (mean[r, i[p]], s[r, i[p]], mean[r, j[p]], s[r, j[p]], rho[r, p])
            count = (PANELS + 10 * len(KNOTS)) * _FEW_POINTS * (_FEW_PANELS + 8) * _FEW_POINTS
            found = _chunked(lambda *x: recomputed(_conditional, curve, *x), count, *inputs)
            values = values.index_put((r, p), found)
        rows = rows[~done]
    most = (outputs[:, i] * outputs[:, j]).clamp(min=0).sqrt().detach()
    values = values + (torch.maximum(torch.minimum(values, most), -most) - values).detach()
    return assembled(values, i, j, mean.shape[-1])


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
