"""Gaussian mean and variance of a smooth non-linearity by composite Gauss-Legendre quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from sdp_ref.activations.numerics.normal_integrals import gauss_legendre, recomputed

_KNOTS = (0.0, 2.0, 6.0, 14.0, 40.0)  # the non-linearities bend within a few units of 0
_PANELS = 14  # across the range of the law, to which the knots are added
_POINTS = 16  # a panel
_REACH = 9.0  # standard deviations; the mass beyond is 2e-19
_TAIL_REACH = 30.0  # further ones towards 0, where a function that decays in its tail has its mass
_ELEMENTS = 2**18  # of one temporary in a chunk
_SMALL_VARIANCE = 1e-11  # below it two terms of Taylor's series leave less than rounding


def smooth_mean_variance(
    function: Callable[[Tensor], Tensor],
    derivative: Callable[[Tensor], Tensor],
    second_derivative: Callable[[Tensor], Tensor],
    mean: Tensor,
    variance: Tensor,
) -> tuple[Tensor, Tensor]:
    """Mean and variance of f(X), X ~ N(mean, variance), elementwise.

    The variance is the mean of (f - E f)^2, a sum of non-negative terms, and so relatively accurate
    where f is nearly constant or nearly linear. Functions with f(x) -> 0 as x -> -inf keep relative accuracy
    in that tail; reflect one that saturates to the right.
    """
    shape = mean.shape
    m, v = mean.reshape(-1), variance.reshape(-1)
    small = v < _SMALL_VARIANCE
    safe = torch.where(small, 1.0, v)
    step = max(1, _ELEMENTS // ((_PANELS + 2 * len(_KNOTS)) * _POINTS))
    chunks = [
        recomputed(_quadrature, function, a, b) for a, b in zip(m.split(step), safe.split(step), strict=True)
    ]
    # Taylor's series to order v^2: a rule of nodes would take the differences of equal numbers there.
    f, df, d2f = function(m), derivative(m), second_derivative(m)
    ef = torch.where(small, f + 0.5 * d2f * v, torch.cat([c[0] for c in chunks]))
    varf = torch.where(small, df * df * v + 0.5 * (d2f * v) ** 2, torch.cat([c[1] for c in chunks]))
    return ef.reshape(shape), varf.reshape(shape)


def _quadrature(function: Callable[[Tensor], Tensor], m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    s = v.sqrt()
    # Where the nodes lie is no part of the integral: moving them adds nothing but the quadrature's own error.
    u, weight = _nodes(m.detach(), s.detach())
    at_mean = function(m)
    # From f(m), and not from 0: a function that is nearly constant keeps all digits of its variance.
    difference = function(m[:, None] + s[:, None] * u) - at_mean[:, None]
    shift = (weight * difference).sum(-1)
    return at_mean + shift, (weight * (difference - shift[:, None]) ** 2).sum(-1)


def _nodes(m: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Standardized nodes and their weights, the density included, each of shape (elements, nodes)."""
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
