"""Gaussian mean and variance of a smooth non-linearity by composite Gauss-Legendre quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from sdp_ref.activations.numerics.normal_integrals import gauss_legendre, recomputed

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
    step = max(1, _ELEMENTS // ((_PANELS + 2 * len(_KNOTS)) * _POINTS))
    chunks = [
        recomputed(_quadrature, function, a, b) for a, b in zip(m.split(step), safe.split(step), strict=True)
    ]
    # Taylor series to order v^2: quadrature would take differences of equal numbers here.
    f, df, d2f = function(m), derivative(m), second_derivative(m)
    ef = torch.where(small, f + 0.5 * d2f * v, torch.cat([c[0] for c in chunks]))
    varf = torch.where(small, df * df * v + 0.5 * (d2f * v) ** 2, torch.cat([c[1] for c in chunks]))
    return ef.reshape(shape), varf.reshape(shape)


def _quadrature(function: Callable[[Tensor], Tensor], m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    s = v.sqrt()
    # The integral does not depend on the node positions: their gradient would only add quadrature error.
    u, weight = _nodes(m.detach(), s.detach())
    at_mean = function(m)
    # Relative to f(m), not 0: a nearly constant function keeps all digits of its variance.
    difference = function(m[:, None] + s[:, None] * u) - at_mean[:, None]
    shift = (weight * difference).sum(-1)
    return at_mean + shift, (weight * (difference - shift[:, None]) ** 2).sum(-1)


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
