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
    """Mean and variance of f(X), X ~ N(mean, variance), elementwise; all tensors have one shape.

    The variance is the mean of (f - E f)^2, a sum of non-negative terms, and therefore has a small relative
    error where f is nearly constant or nearly linear. Functions with f(x) -> 0 as x -> -inf keep their
    relative accuracy in that tail; reflect functions that saturate to the right.
    """
    m, v = mean.reshape(-1), variance.reshape(-1)
    small = v < _SMALL_VARIANCE
    safe = torch.where(small, 1.0, v)

    def moments(m_chunk: Tensor, v_chunk: Tensor) -> Tensor:
        return recomputed(_quadrature, function, m_chunk, v_chunk)

    nodes = (_PANELS + 2 * len(_KNOTS)) * _POINTS
    both = _chunked(moments, nodes, m, safe)
    # Taylor series to order v^2: quadrature would take differences of equal numbers here.
    f, slope, curvature = function(m), derivative(m), second_derivative(m)
    mean_f = torch.where(small, f + 0.5 * curvature * v, both[:, 0])
    variance_f = torch.where(small, slope * slope * v + 0.5 * (curvature * v) ** 2, both[:, 1])
    return mean_f.reshape(mean.shape), variance_f.reshape(mean.shape)


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
    mirrored = [-knot for knot in _KNOTS[1:]]
    knots = torch.tensor([*mirrored, *_KNOTS], dtype=m.dtype, device=m.device)
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
    def forward(ctx: Any, value: Tensor, *slopes_and_variables: Tensor) -> Tensor:
        """Return `value`; the arguments after it are a slope, its variable, the next slope, ..."""
        ctx.save_for_backward(*slopes_and_variables[::2])
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # with create_graph, the saved results would be treated as constants
            raise RuntimeError("moments by quadrature have first derivatives only")
        (g,) = gradients
        result: list[Tensor | None] = [g]
        for slope in ctx.saved_tensors:
            result += [None, g * slope]
        return tuple(result)


def _tangent(value: Tensor, *derivatives: tuple[Tensor, Tensor]) -> Tensor:
    """Give `value` (e, ...) known derivatives: pairs of a slope of its shape and the variable (e, ...)."""
    arguments: list[Tensor] = []
    for slope, x in derivatives:
        if x.requires_grad:
            trailing = [1] * (value.ndim - x.ndim)
            arguments += [slope.detach(), x.reshape(*x.shape, *trailing).expand_as(value)]
    return _Tangent.apply(value, *arguments) if arguments else value  # type: ignore[no-untyped-call]


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

    def with_gradient(
        self, value: Tensor, slope: Tensor, at_step: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Give an integral over the nodes its gradient with respect to mean and standard deviation.

        `value` (e,) is a sum over nodes of g(f - f(m)), and `slope` (e, N) the weighted derivatives g'. At
        X = m + s u, the chain rule gives the derivatives g' f' by m and g' f' u by s. A jump at the location
        h moves with the law: its derivative by h is the density times the difference of g across the jump,
        where ``at_step(h, d)`` is g at f - f(m) = d.
        """
        by_mean = slope * self.slope
        derivatives = [(by_mean.sum(-1), self.mean), ((by_mean * self.u).sum(-1), self.deviation)]
        for location, before, after in self.steps:
            h = location.detach()
            derivatives.append((pdf(h) * (at_step(h, before) - at_step(h, after)), location))
        return _tangent(value, *derivatives)


@lru_cache(maxsize=8)
def _primitive(count: int) -> np.ndarray:
    """Matrix that integrates a function from 0 to each Gauss-Legendre node on [0, 1] from its node values.

    The integral of P_k from -1 to x is (P_(k+1)(x) - P_(k-1)(x)) / (2 k + 1), and x + 1 for k = 0.
    """
    x = np.polynomial.legendre.leggauss(count)[0]
    polynomials = np.polynomial.legendre.legvander(x, count)
    integrals = np.empty((count, count))
    integrals[:, 0] = x + 1
    for k in range(1, count):
        integrals[:, k] = (polynomials[:, k + 1] - polynomials[:, k - 1]) / (2 * k + 1)
    # of the coefficients c, `polynomials` c are the node values, and `integrals` c the integrals on [-1, 1]
    return np.linalg.solve(polynomials[:, :count].T, integrals.T).T / 2


def _around(curve: Curve, knots: Sequence[float]) -> list[float]:
    """The bends of a curve, and points at increasing distances on both sides of the outermost ones."""
    points = set(curve.bends)
    if curve.bends:
        for bend in (min(curve.bends), max(curve.bends)):
            for knot in knots:
                points.add(bend - knot * curve.unit)
                points.add(bend + knot * curve.unit)
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
    u = edges[:, :-1, None] + width * t  # (e, panels, points)
    weight = width * w * pdf(u)
    slope = curve.derivative(m[..., None] + s[..., None] * u)
    difference = _differences_from_mean(curve, m, s, edges, u, slope, few=few)
    at_mean = curve.function(m)[:, 0]
    steps = []
    for location, left_limit, right_limit in curve.jumps:
        h = ((location - mean) / deviation).clamp(-50, 50)  # the density is 0 there, and its square finite
        steps.append((h, left_limit - at_mean, right_limit - at_mean))
    return _Nodes(
        mean, deviation, u.flatten(1), weight.flatten(1), difference.flatten(1), slope.flatten(1), steps
    )


def _differences_from_mean(
    curve: Curve, m: Tensor, s: Tensor, edges: Tensor, u: Tensor, slope: Tensor, *, few: bool
) -> Tensor:
    """Differences f - f(m) at the nodes u (e, panels, points), without cancellation.

    Where f(m) is larger than the change of f near the mean, the direct difference would lose digits, and f'
    is integrated instead if the panels resolve it. Where f(m) is small, the direct difference keeps its
    digits, and f may decay faster than a panel resolves.
    """
    at_mean = curve.function(m)
    change = s * torch.where(u.abs() <= _NEAR, slope, 0.0).abs().flatten(1).amax(-1, keepdim=True)
    integrated = (at_mean.abs() > change) & _resolves_slope(curve, m, s, few=few)
    difference = torch.zeros_like(u)
    if bool(integrated.any()):
        difference = _with_jumps(_integrated_slope(s, edges, slope), curve, m, s, edges)
    if not bool(integrated.all()):
        direct = curve.function(m[..., None] + s[..., None] * u) - at_mean[..., None]
        difference = torch.where(integrated[..., None], difference, direct)
    return difference


def _panel_edges(curve: Curve, m: Tensor, s: Tensor, extra: Tensor | None, *, few: bool) -> Tensor:
    """Sorted standardised edges of the panels, (e, k); 0 is one of them.

    They divide the range of the law evenly, continue towards bends outside it, and surround bends within it.
    """
    panels = _few_panels(curve) if few else curve.panels
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


def _few_panels(curve: Curve) -> int:
    return curve.panels * _FEW_PANELS // PANELS


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
    one_sided = torch.where(to_the_left > 0, left_edges, right_edges)
    if len(bends) == 1:
        return one_sided
    return torch.cat([one_sided, *_edges_between_bends(bends, m, s, fractions)], -1)


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
    for location, left_limit, right_limit in curve.jumps:
        h = (location - m) / s
        # at the jump itself, f has one of the two values
        value = float(curve.function(m.new_tensor(location)))
        is_right = abs(value - right_limit) <= abs(value - left_limit)
        mean_passed = h <= 0 if is_right else h < 0
        panel_passed = edges[:, :-1] + edges[:, 1:] > 2 * h
        crossings = panel_passed.to(m.dtype) - mean_passed.to(m.dtype)  # -1 to the left of the mean
        difference = difference + (right_limit - left_limit) * crossings[..., None]
    return difference


def _chunked(function: Callable[..., Tensor], count: int, *arguments: Tensor) -> Tensor:
    """Apply `function` to some rows of `arguments` (e, ...) at a time; it needs `count` numbers per row."""
    step = max(1, _ELEMENTS // count)
    chunks_by_argument = [argument.split(step) for argument in arguments]
    return torch.cat([function(*chunk) for chunk in zip(*chunks_by_argument, strict=True)])


def _node_count(curve: Curve) -> int:
    """Upper bound of the number of nodes per law."""
    return (curve.panels + _TAIL_PANELS + 2 * 2 * len(curve.knots) + len(curve.bends)) * _POINTS


def curve_mean_variance(curve: Curve, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of f(X) minus f(m), and variance of f(X), X ~ N(m, variance), elementwise; all of one shape.

    Gradients are those of the integrals, of first order only: a second derivative raises a RuntimeError.
    """

    def moments(m: Tensor, s: Tensor) -> Tensor:
        nodes = _curve_nodes(curve, m, s)
        weight = nodes.weight
        shift = (weight * nodes.difference).sum(-1)
        centred = nodes.difference - shift[:, None]
        f_mean = nodes.with_gradient(shift, weight, lambda _, step: step)
        f_variance = nodes.with_gradient(
            (weight * centred * centred).sum(-1), 2 * weight * centred, lambda _, step: (step - shift) ** 2
        )
        return torch.stack([f_mean, f_variance], -1)

    both = _chunked(moments, _node_count(curve), mean.reshape(-1), variance.reshape(-1).sqrt())
    return both[:, 0].reshape(mean.shape), both[:, 1].reshape(mean.shape)


@torch.no_grad()
def curve_misfit(curve: Curve, mean: Tensor, variance: Tensor) -> Tensor:
    """Root mean square difference between f(X) - f(m) as integrated from the derivative and its direct value.

    It reveals jumps that the curve does not declare. `mean`, `variance` and the result have one shape.
    """

    def moment(m: Tensor, s: Tensor) -> Tensor:
        nodes = _curve_nodes(curve, m, s)
        direct = curve.function(m[:, None] + s[:, None] * nodes.u) - curve.function(m)[:, None]
        misfit = torch.where(nodes.u.abs() <= _REACH, direct - nodes.difference, 0.0)
        return (nodes.weight * misfit.square()).sum(-1).sqrt()

    return _chunked(moment, _node_count(curve), mean.reshape(-1), variance.reshape(-1).sqrt()).reshape(
        mean.shape
    )


def curve_mean_derivative(curve: Curve, mean: Tensor, variance: Tensor) -> Tensor:
    """E[f'(X)] including jumps, for positive variances; `mean`, `variance` and the result have one shape."""

    def moment(m: Tensor, s: Tensor) -> Tensor:
        nodes = _curve_nodes(curve, m, s)
        weighted_slope, u = nodes.weight * nodes.slope, nodes.u
        constant_s = s.detach()
        # by Stein's lemma E f'' = E[f' U] / s, and the derivative by s is E[f' (U^2 - 1)] / s
        value = _tangent(
            weighted_slope.sum(-1),
            ((weighted_slope * u).sum(-1) / constant_s, m),
            ((weighted_slope * (u * u - 1)).sum(-1) / constant_s, s),
        )
        # a jump adds its height times the density of X there
        for location, before, after in nodes.steps:
            value = value + (after - before) * pdf(location) / s
        return value

    return _chunked(moment, _node_count(curve), mean.reshape(-1), variance.reshape(-1).sqrt()).reshape(
        mean.shape
    )


def _hermite(u: Tensor, terms: int) -> Iterator[Tensor]:
    """Normalised Hermite polynomials of degrees 1 to `terms` at u."""
    before, last = torch.zeros_like(u), torch.ones_like(u)
    for k in range(terms):
        before, last = last, torch.addcmul(-math.sqrt(k) * before, u, last).div_(math.sqrt(k + 1))
        yield last


def _coefficients(curve: Curve, mean: Tensor, deviation: Tensor, terms: int) -> Tensor:
    """Hermite coefficients a_k = E[f(m + s Z) h_k(Z)] of laws (R, n), k = 1, ..., terms: (R, n, terms).

    Their derivatives by m and s are E[f' h_k] and E[f' Z h_k], sums over the same nodes.
    """

    def coefficients(m: Tensor, s: Tensor) -> Tensor:
        nodes = _curve_nodes(curve, m, s)
        centred = nodes.difference - (nodes.weight * nodes.difference).sum(-1, keepdim=True)
        factors = [nodes.weight * centred]
        if m.requires_grad or s.requires_grad:
            factors += [nodes.weight * nodes.slope, nodes.weight * nodes.slope * nodes.u]
        stacked = torch.stack(factors, 1)
        sums = torch.cat([stacked @ h[..., None] for h in _hermite(nodes.u, terms)], -1)
        derivatives = list(zip(sums.unbind(1)[1:], (m, s), strict=False))
        for location, before, after in nodes.steps:
            h = location.detach()
            density = (pdf(h) * (before - after))[:, None]
            derivatives.append((density * torch.stack(list(_hermite(h, terms)), -1), location))
        return _tangent(sums[:, 0], *derivatives)

    flat = _chunked(coefficients, _node_count(curve), mean.flatten(), deviation.flatten())
    return flat.unflatten(0, mean.shape)


@dataclass(frozen=True, eq=False)
class Units:
    """A function of normal variables: its curve, their means and variances (B, n), and those of the results.

    The standard deviations are `deviation`, and 1 at the point masses `point`.
    """

    curve: Curve
    mean: Tensor
    variance: Tensor
    outputs: Tensor

    @property
    def point(self) -> Tensor:
        return self.variance == 0

    @property
    def deviation(self) -> Tensor:
        return torch.where(self.point, 1.0, self.variance).sqrt()


def curve_covariance(units: Units, covariance: Tensor, tolerance: float) -> Tensor:
    """Covariances of f of jointly normal units of covariance (B, n, n), with zero diagonal, (B, n, n).

    Errors are at most `tolerance` times the two standard deviations of the input.
    """
    i, j = pairs(units.mean)
    c = off_points(covariance, units.point, i, j)
    return assembled(_pair_covariances(units, units, i, j, c, tolerance), i, j, units.mean.shape[-1])


def cross_covariance(first: Units, second: Units, block: Tensor, tolerance: float) -> Tensor:
    """Covariances of f(X) and g(Y) of jointly normal units with Cov(X, Y) = `block`, all (B, n, m).

    Errors are at most `tolerance` times the two standard deviations of the input.
    """
    shape = block.shape[1:]
    i, j = torch.meshgrid(*[torch.arange(n, device=block.device) for n in shape], indexing="ij")
    c = torch.where(first.point.unsqueeze(2) | second.point.unsqueeze(1), 0.0, block)
    values = _pair_covariances(first, second, i.flatten(), j.flatten(), c.flatten(1), tolerance)
    return values.unflatten(1, shape)


def _pair_covariances(
    first: Units, second: Units, i: Tensor, j: Tensor, covariance: Tensor, tolerance: float
) -> Tensor:
    """Covariances of f(X_i) and g(Y_j) for pairs i and j (P,) with Cov(X_i, Y_j) = `covariance` (B, P).

    With a_k = E[f(m + s Z) h_k(Z)] for normalised Hermite polynomials h_k, and b_k likewise, the covariance
    is the sum over k >= 1 of rho^k a_k b_k (Mehler's formula; Wright et al. 2024). By the Cauchy-Schwarz
    inequality the remainder after K terms is at most abs(rho)^(K + 1) sqrt(Var f(X) - sum a_k^2) sqrt(Var
    g(Y) - sum b_k^2). Pairs that need more terms than the longest series are integrated in two dimensions.
    """
    s, t = first.deviation, second.deviation
    rho = covariance / s[:, i] / t[:, j]
    rho = _limited(rho, torch.ones_like(rho))
    allowed = 0.5 * tolerance * (s[:, i] * t[:, j]).detach()  # the other half is for the quadrature
    values = torch.zeros_like(rho)
    rows = torch.arange(len(rho), device=rho.device)  # matrices that need more terms
    # All pairs of a matrix use the same number of terms: with the variances as diagonal, it is semidefinite.
    for terms in _TERMS:
        if not len(rows) or not len(i):
            break
        a = _coefficients(first.curve, first.mean[rows], s[rows], terms)
        b = a if second is first else _coefficients(second.curve, second.mean[rows], t[rows], terms)
        remainders = _remainder(a, first.outputs[rows])[:, i] * _remainder(b, second.outputs[rows])[:, j]
        bound = rho[rows].detach().abs() ** (terms + 1) * remainders
        accurate = (bound <= allowed[rows]) | (rho[rows] == 0)
        done = accurate.all(-1) | (terms == _TERMS[-1])
        if bool(done.any()):
            values = values.index_put((rows[done],), _series(a[done], b[done], i, j, rho[rows[done]]))
        # after the longest series, the pairs that it does not resolve
        unresolved_row, pair = (~accurate & done[:, None]).nonzero(as_tuple=True)
        if len(pair):
            row = rows[unresolved_row]
            x, y = i[pair], j[pair]
            integrals = _in_two_dimensions(
                (first.curve, second.curve),
                first.mean[row, x],
                s[row, x],
                second.mean[row, y],
                t[row, y],
                rho[row, pair],
            )
            values = values.index_put((row, pair), integrals)
        rows = rows[~done]
    largest = (first.outputs[:, i] * second.outputs[:, j]).clamp(min=0).sqrt().detach()
    return _limited(values, largest)


def _limited(values: Tensor, largest: Tensor) -> Tensor:
    """Limit absolute values, elementwise, and keep the gradients of those that exceed the limit."""
    limited = torch.maximum(torch.minimum(values, largest), -largest)
    return values + (limited - values).detach()


def _remainder(coefficients: Tensor, outputs: Tensor) -> Tensor:
    """Standard deviations (R, n) of f without the first K terms, from `coefficients` (R, n, K)."""
    remainder = (outputs - coefficients.square().sum(-1)).detach()
    # a sum above the variance indicates coefficients that the nodes do not resolve
    unresolved = remainder < -_LOST * outputs
    return torch.where(unresolved, torch.inf, remainder.clamp(min=0)).sqrt()


def _in_two_dimensions(curves: tuple[Curve, Curve], *laws: Tensor) -> Tensor:
    """Covariances of pairs by :func:`_conditional`, some pairs at a time."""

    def covariance(*chunk: Tensor) -> Tensor:
        return recomputed(_conditional, curves, *chunk)

    outer, inner = curves
    outer_nodes = (outer.panels + 10 * len(KNOTS)) * _FEW_POINTS
    inner_nodes = (_few_panels(inner) + 8) * _FEW_POINTS
    return _chunked(covariance, outer_nodes * inner_nodes, *laws)


def _series(first: Tensor, second: Tensor, i: Tensor, j: Tensor, rho: Tensor) -> Tensor:
    """Sum over k of rho^k a_k b_k for the pairs (R, P) of coefficients (R, n, K), by Horner's method."""

    def sums(pair: Tensor) -> Tensor:
        value = torch.zeros_like(rho[:, pair])
        for a, b in zip(first.flip(-1).unbind(-1), second.flip(-1).unbind(-1), strict=True):
            value = (value + a[:, i[pair]] * b[:, j[pair]]) * rho[:, pair]
        return value.mT

    return _chunked(sums, 4 * len(rho), torch.arange(len(i), device=i.device)).mT


def _conditional(
    curves: tuple[Curve, Curve], m_i: Tensor, s_i: Tensor, m_j: Tensor, s_j: Tensor, rho: Tensor
) -> Tensor:
    """Cov(f(X), g(Y)) as E[(f(X) - E f(X)) E[g(Y) | X]], pair by pair, for abs(rho) near 1.

    With U the standardised X, Y given X is normal with mean m_j + s_j rho U and standard deviation s_j r,
    r^2 = 1 - rho^2. All arguments and the result are (e,).
    """
    first, second = curves
    r_square = (1 - rho) * (1 + rho)
    r = (r_square + (r_square.clamp(min=_LEAST) - r_square).detach()).sqrt()
    outer = _curve_nodes(first, m_i, s_i, _conditional_edges(second, m_j, s_j, rho, r).detach(), few=True)
    weight = outer.weight

    def conditional_mean(u: Tensor) -> Tensor:
        """E[g(Y) | X] minus g(m_j), at standardised points of X, shape (e, k)."""
        centre = m_j[:, None] + (s_j * rho)[:, None] * u
        nodes = _curve_nodes(second, centre.flatten(), (s_j * r)[:, None].expand_as(u).flatten(), few=True)
        shift = nodes.with_gradient(
            (nodes.weight * nodes.difference).sum(-1), nodes.weight, lambda _, step: step
        )
        # `shift` has the gradient of the mean; the rest is added without a gradient
        level = second.function(centre.detach()) - second.function(m_j.detach())[:, None]
        return shift.reshape(u.shape) + level

    y_given_x = conditional_mean(outer.u)
    y_mean = (weight * y_given_x).sum(-1, keepdim=True)
    y_centred = y_given_x - y_mean
    x_centred = outer.difference - (weight * outer.difference).sum(-1, keepdim=True)

    def at_step(location: Tensor, step: Tensor) -> Tensor:
        with torch.no_grad():
            return step * (conditional_mean(location[:, None]) - y_mean).squeeze(1)

    covariance = (weight * x_centred * y_centred).sum(-1)
    return outer.with_gradient(covariance, weight * y_centred.detach(), at_step)


def _conditional_edges(curve: Curve, m: Tensor, s: Tensor, rho: Tensor, r: Tensor) -> Tensor:
    """Standardised points (e, k) of X where E[g(Y) | X] bends or starts to bend; `curve` is that of g.

    Y bends at x where m + s rho x is a bend of g; noise of size r smooths it over a distance r / abs(rho).
    """
    safe_rho = torch.where(rho == 0, 1.0, rho)
    bends = curve.bends or (0.0,)
    ends = torch.tensor([*bends, *_around(curve, _FEW_KNOTS)], dtype=m.dtype, device=m.device)
    centre = (ends - m[:, None]) / (s * safe_rho)[:, None]
    distances = torch.tensor(_GRADED, dtype=m.dtype, device=m.device)
    graded = centre[:, : len(bends), None] + (r / safe_rho.abs())[:, None, None] * distances
    return torch.cat([centre, graded.flatten(1)], -1)
