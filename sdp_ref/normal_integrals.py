"""Integrals of the normal law under the Gaussian moments of non-linearities.

Two families suffice. The repeated integrals of the density, I_n(h) = E[(h + Z)_+^n] / n!, give every
moment of one rectified variable. Price's theorem gives every moment of two: for X, Y jointly normal,
d/dc E[f(X) g(Y)] = E[f'(X) g'(Y)] with c their covariance (Price 1958), so that a covariance is an
integral over c of smooth positive functions and never the difference of two large numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

_ELEMENTS = 2**18  # of one temporary in a chunk: 2 MiB, which a cache holds; some tens live at once
_TAIL = -2.0  # below it the repeated integrals are taken from their continued fraction
# Bands of -h, and the terms after which the fraction agrees with a thousand to rounding in them. From 40
# on the density, and with it every repeated integral, is 0 in float64.
_TAIL_BANDS = ((2.0, 3.0, 96), (3.0, 5.0, 56), (5.0, 8.0, 28), (8.0, 16.0, 20), (16.0, 40.0, 12))

# Nodes by the largest abs(rho) they serve: the rule of order 2 then errs by less than 1e-12.
_NODES = ((0.1, 6), (0.3, 8), (0.6, 12), (0.85, 16), (0.95, 20), (0.99, 32), (0.999, 48), (1.0, 96))

Factor = Callable[[Tensor, Tensor], Tensor]


def pdf(h: Tensor) -> Tensor:
    """Density of the standard normal law at `h`."""
    return torch.exp(-0.5 * h * h) * (1 / math.sqrt(2 * math.pi))


def cdf(h: Tensor) -> Tensor:
    """Distribution function of the standard normal law at `h`, relatively accurate in the left tail."""
    return 0.5 * torch.special.erfc(h * -math.sqrt(0.5))


class _RepeatedIntegral(torch.autograd.Function):
    """I_n(h), with I_n' = I_{n-1} down to I_{-1} = pdf, so differentiable to any order."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, order: int) -> Tensor:
        ctx.save_for_backward(h)
        ctx.order = order
        value = pdf(h) + h * cdf(h) if order == 1 else 0.5 * ((1 + h * h) * cdf(h) + h * pdf(h))
        value[h < _TAIL] = 0.0
        for low, high, terms in _TAIL_BANDS:
            band = (h < -low) & (h >= -high)
            value[band] = _tail_integral(-h[band], order, terms)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (h,) = ctx.saved_tensors
        return gradients[0] * repeated_integral(h, ctx.order - 1), None


def _tail_integral(a: Tensor, order: int, terms: int) -> Tensor:
    # J_n = I_n(-a) / pdf(a) is the minimal solution of J_{n-1} = a J_n + (n + 1) J_{n+1}, J_{-1} = 1:
    # its ratios are a continued fraction of positive terms (Gautschi 1961), where the closed form cancels.
    ratio = torch.zeros_like(a)
    product = pdf(a)
    for n in range(terms, -1, -1):
        ratio = 1 / (a + (n + 1) * ratio)
        if n <= order:
            product = product * ratio
    return product


def repeated_integral(h: Tensor, order: int) -> Tensor:
    """E[(h + Z)_+^n] / n! of a standard normal Z, to full relative accuracy on both sides.

    Parameters
    ----------
    h : Tensor, any shape, float64
    order : int
        n, from -1 (the density) and 0 (the distribution function) to 2.

    Returns
    -------
    Tensor, shape of `h`
    """
    if order == -1:
        return pdf(h)
    if order == 0:
        return cdf(h)
    return _RepeatedIntegral.apply(h, order)


@lru_cache(maxsize=64)
def _legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


def gauss_legendre(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes and weights of the Gauss-Legendre rule on [0, 1], each of shape (count,), float64."""
    nodes, weights = _legendre(count)
    return torch.tensor(nodes, device=device), torch.tensor(weights, device=device)


def price_integral(
    h: Tensor, k: Tensor, rho: Tensor, order: int, count: int, limit: float, factor: Factor | None = None
) -> Tensor:
    r"""Integral of the bivariate normal density over its correlation, weighted by what is left to go.

    .. math:: \int_0^\rho (\rho - r)^{n-1} \, p(h, k; r) \, \mathrm{factor}(r) \, dr

    with p the density of two standard normals of correlation r. Without a factor, n = 1 gives the
    covariance of two Heaviside functions 1(h + U > 0), 1(k + V > 0), and n = 2 that of two ramps but for
    the term rho Phi(h) Phi(k) (Price 1958).

    Parameters
    ----------
    h, k, rho : Tensor, one shape, float64
    order : int
        n, 1 or 2.
    count : int
        Number of nodes. They lie at r = rho sin(limit (1 - t^2)) / sin(limit), t those of Gauss and
        Legendre, whose clustering at rho takes up the singularity of the density at abs(r) = 1. They do
        not depend on the arguments: derivatives of the rule are the rule for the derivatives.
    limit : float
        Arc sine of the largest abs(rho).
    factor : callable, optional
        factor(r, 1 - r^2) of tensors with a last axis of nodes.
    """
    t, weight = gauss_legendre(count, h.device)
    left = limit * t * t
    angle = limit - left
    u = torch.sin(angle) / math.sin(limit)
    rest = 2 * torch.cos((limit + angle) / 2) * torch.sin(left / 2) / math.sin(limit)  # 1 - u
    weight = weight * t * torch.cos(angle) * (limit / math.sin(limit) / math.pi)
    if order == 2:
        weight = weight * rest

    sign = torch.where(rho < 0, -1.0, 1.0)
    size = rho * sign
    k = k * sign
    r = size[..., None] * u
    cosine2 = (rest + (1 - size)[..., None] * u) * (1 + r)
    # h^2 - 2 h k r + k^2 over 2 (1 - r^2), without its cancellation near r = 1
    exponent = (0.5 * (h - k) ** 2)[..., None] / cosine2 + (h * k)[..., None] / (1 + r)
    density = torch.exp(-exponent) * torch.rsqrt(cosine2)
    if factor is not None:
        density = density * factor(r * sign[..., None], cosine2)
    return (density @ weight) * rho**order


def by_correlation(
    kernel: Callable[..., Tensor], correlation: Tensor, *arguments: Tensor, width: int = 1
) -> Tensor:
    """Evaluate `kernel` on pairs grouped by abs(correlation), in chunks of bounded memory.

    Parameters
    ----------
    kernel : callable
        kernel(*arguments, count, limit) -> Tensor, for some of the pairs as vectors; `count` and `limit`
        are those of :func:`price_integral`.
    correlation : Tensor, any shape
        Decides how many nodes a pair needs; a NaN skips the pair, its value is 0.
    arguments : Tensor, shape of `correlation`
    width : int
        Integrals a pair.

    Returns
    -------
    Tensor, shape of `correlation`
    """
    size = correlation.detach().abs().flatten()
    flat = [a.flatten() for a in arguments]
    places, values = [torch.arange(0, device=size.device)], [torch.zeros_like(size[:0])]
    low = -1.0
    for high, count in _NODES:
        found = ((size > low) & (size <= high)).nonzero().squeeze(-1)
        low = high
        if not len(found):
            continue
        places.append(found)
        step = max(1, _ELEMENTS // (count * width))
        chunks = zip(*(a[found].split(step) for a in flat), strict=True)
        values += [recomputed(kernel, *chunk, count, math.asin(high)) for chunk in chunks]
    scattered = torch.zeros_like(size).index_put((torch.cat(places),), torch.cat(values))
    return scattered.view_as(correlation)


def recomputed(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """Call `kernel`, dropping its temporaries and computing them again in the backward pass."""
    needed = (isinstance(a, Tensor) and a.requires_grad for a in arguments)
    if torch.is_grad_enabled() and any(needed):
        return checkpoint(kernel, *arguments, use_reentrant=False, preserve_rng_state=False)
    return kernel(*arguments)
