"""Integrals of the normal law for the Gaussian moments of non-linearities.

Two families suffice. The repeated integrals of the density, I_n(h) = E[(h + Z)_+^n] / n!, give all
moments of one rectified variable. Price's theorem gives the covariances of two: for X, Y jointly normal,
d/dc E[f(X) g(Y)] = E[f'(X) g'(Y)] with c their covariance (Price 1958). A covariance is therefore an
integral over c of smooth positive functions, and not a difference of two large numbers.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

_CHUNK = 2**16  # values per chunk: few calls, and temporaries stay in cache
_ELEMENTS = 2**18  # elements of a temporary in a chunk: 2 MiB, which fits in cache; some tens exist at once
# Below it the repeated integrals are computed from their continued fraction: I_1 = pdf(h) + h I_0(h) cancels
# to 1 / h^2 of its terms, and I_2 to 1 / h^4.
_TAIL = -2.0
# Bands of -h, and the number of terms whose result agrees with that of a thousand to rounding. From 40 on the
# density and all repeated integrals are 0 in float64.
_TAIL_BANDS = ((2.0, 3.0, 96), (3.0, 5.0, 56), (5.0, 8.0, 28), (8.0, 16.0, 20), (16.0, 40.0, 12))

# Number of nodes by the largest abs(rho) for which the rule errs by less than 1e-12.
_NODES = ((0.1, 6), (0.3, 8), (0.6, 12), (0.85, 16), (0.95, 20), (0.99, 32), (0.999, 48), (1.0, 96))

Factor = Callable[[Tensor, Tensor], Tensor]


def pdf(h: Tensor) -> Tensor:
    """Density of the standard normal law, elementwise."""
    return torch.exp(-0.5 * h * h) * (1 / math.sqrt(2 * math.pi))


def cdf(h: Tensor) -> Tensor:
    """Distribution function of the standard normal law, with small relative error in the left tail."""
    return 0.5 * torch.special.erfc(h * -math.sqrt(0.5))  # 1 + erf is 0 below h = -8.3


class _RepeatedIntegrals(torch.autograd.Function):
    """I_0, I_1 and I_2, with I_n' = I_{n-1} down to I_{-1} = pdf, differentiable to any order."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(h)
        values = h.new_empty(3, h.numel())
        for part, target in zip(h.reshape(-1).split(_CHUNK), values.split(_CHUNK, 1), strict=True):
            _integrate(part, target)
        first, second, third = values.reshape(3, *h.shape)
        return first, second, third

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (h,) = ctx.saved_tensors
        lower, middle, _ = repeated_integrals(h)
        return gradients[0] * pdf(h) + gradients[1] * lower + gradients[2] * middle


def _integrate(h: Tensor, out: Tensor) -> None:
    """Write I_0, I_1 and I_2 of `h`, shape (n,), into `out`, shape (3, n)."""
    density = pdf(h)
    below = torch.mul(torch.special.erfc(h * -math.sqrt(0.5)), 0.5, out=out[0])
    ramp = torch.addcmul(density, h, below, out=out[1])
    torch.mul(torch.addcmul(below, h, ramp), 0.5, out=out[2])  # 2 I_2 = I_0 + h I_1
    tail = (h < _TAIL).nonzero().squeeze(1)
    if len(tail) == 0:
        return
    a = -h[tail]
    fixed = a.new_zeros(2, len(tail))
    bands = in_bands(a, [(low, high) for low, high, _ in _TAIL_BANDS])
    for band, (_, _, terms) in zip(bands, _TAIL_BANDS, strict=True):
        if len(band):
            fixed[:, band] = _tail_integrals(a[band], terms)
    out[1:, tail] = fixed


def in_bands(values: Tensor, bands: Sequence[tuple[float, float]]) -> tuple[Tensor, ...]:
    """Indices of the values inside each band (low, high]; synchronises twice with a device."""
    inside = torch.stack([(values > low) & (values <= high) for low, high in bands])
    parts = inside.flatten().nonzero().squeeze(1).split(inside.sum(1).tolist())
    return tuple(part - row * len(values) for row, part in enumerate(parts))


def _tail_integrals(a: Tensor, terms: int) -> Tensor:
    """I_1(-a) and I_2(-a), shape (2, n)."""
    # J_n = I_n(-a) / pdf(a) is the minimal solution of J_{n-1} = a J_n + (n + 1) J_{n+1}, J_{-1} = 1: its
    # ratios are a continued fraction of positive terms (Gautschi 1961), while the closed form cancels.
    ratio = torch.zeros_like(a)
    for n in range(terms, 2, -1):
        ratio = torch.add(a, ratio, alpha=n + 1).reciprocal_()
    second = 1 / (a + 3 * ratio)
    first = 1 / (a + 2 * second)
    ramp = pdf(a) * first / (a + first)
    return torch.stack([ramp, ramp * second])


def repeated_integrals(h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """I_n(h) = E[(h + Z)_+^n] / n! of a standard normal Z for n = 0, 1 and 2."""
    first, second, third = _RepeatedIntegrals.apply(h)
    return first, second, third


@lru_cache(maxsize=64)
def _legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


def gauss_legendre(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes and weights of the Gauss-Legendre rule on [0, 1], each of shape (count,), float64."""
    nodes, weights = _legendre(count)
    return torch.tensor(nodes, device=device), torch.tensor(weights, device=device)


def price_integral(
    h: Tensor,
    k: Tensor,
    rho: Tensor,
    count: int,
    limit: float,
    factor: Factor | None = None,
    order: int = 1,
) -> Tensor:
    r"""Integral of the bivariate normal density over its correlation, weighted by the remaining distance.

    .. math:: \int_0^\rho (\rho - r)^\mathrm{order} \, p(h, k; r) \, \mathrm{factor}(r) \, dr

    with p the density of two standard normals of correlation r. Without a factor, it is the covariance of two
    steps for order 0, and for order 1 that of two ramps except for the term rho Phi(h) Phi(k) (Price 1958).
    """
    t, weight = gauss_legendre(count, h.device)
    left = limit * t * t
    angle = limit - left
    u = torch.sin(angle) / math.sin(limit)
    # 1 - u as a product: close to rho the sines agree in all their digits
    rest = 2 * torch.cos((limit + angle) / 2) * torch.sin(left / 2) / math.sin(limit)
    # du = 2 t limit cos(angle) / sin(limit) dt, and 1 / (2 pi) of the density
    weight = weight * t * torch.cos(angle) * (limit / math.sin(limit) / math.pi)
    if order:
        weight = weight * rest

    # p(h, k; -r) = p(h, -k; r), so the only singularity is at r = 1
    sign = torch.where(rho < 0, -1.0, 1.0)
    size = rho * sign
    k = k * sign
    r = size[..., None] * u
    # 1 - r^2 = (1 - r) (1 + r) with 1 - r = (1 - u) + (1 - size) u, a sum of positive terms
    cosine2 = (rest + (1 - size)[..., None] * u) * (1 + r)
    # minus (h^2 - 2 h k r + k^2) over 2 (1 - r^2), without its cancellation near r = 1
    exponent = (-0.5 * (h - k) ** 2)[..., None] / cosine2 - (h * k)[..., None] / (1 + r)
    density = torch.exp(exponent) * torch.rsqrt(cosine2)
    if factor is not None:
        density = density * factor(r * sign[..., None], cosine2)
    return (density @ weight) * rho ** (order + 1)


def by_correlation(kernel: Callable[..., Tensor], correlation: Tensor, *arguments: Tensor) -> Tensor:
    """Evaluate `kernel` on pairs grouped by abs(correlation), in chunks of bounded memory."""
    size = correlation.detach().abs().flatten()
    flat = [a.flatten() for a in arguments]
    places, values = [torch.arange(0, device=size.device)], [torch.zeros_like(size[:0])]
    ends = [high for high, _ in _NODES]
    bands = in_bands(size, list(zip([-1.0, *ends], ends, strict=False)))
    for indices, (high, count) in zip(bands, _NODES, strict=True):
        if not len(indices):
            continue
        places.append(indices)
        step = _ELEMENTS // count
        for chunk in indices.split(step):
            of_chunk = [argument[chunk] for argument in flat]
            values.append(recomputed(kernel, *of_chunk, count, math.asin(high)))
    scattered = torch.zeros_like(size).index_put((torch.cat(places),), torch.cat(values))
    return scattered.view_as(correlation)


def recomputed(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """Call `kernel` without keeping its temporaries, and recompute them in the backward pass."""
    needs_gradient = any(isinstance(a, Tensor) and a.requires_grad for a in arguments)
    if torch.is_grad_enabled() and needs_gradient:
        return checkpoint(kernel, *arguments, use_reentrant=False, preserve_rng_state=False)
    return kernel(*arguments)


_RAMP_CHUNK = 2**17  # values per chunk: few calls, and temporaries stay in cache

# I_1(-a) / (exp(-a^2 / 2) t^2) and 2 I_2(-a) / (exp(-a^2 / 2) t^3) as polynomials in t = 4 / (4 + a), lowest
# power first, with I_n(h) = E[(h + Z)_+^n] / n!: these ratios are smooth and lose no digits, while the closed
# forms cancel. Fitted by least squares, reweighted to minimise the relative error: 2e-7 and 9e-7 for a in [0,
# 40].
_FIRST = (
    0.024935084195623985,
    0.04983144786874799,
    0.07055241654022333,
    0.0786611141741117,
    0.08495580464309807,
    0.06912340150647497,
    -0.016880996465820433,
    0.15707598156290986,
    -0.1653293069345373,
    0.046017403321633565,
)
_SECOND = (
    0.0124719664773517,
    0.03723319278642988,
    0.07237165037507351,
    0.0856654500243445,
    0.17982094628620976,
    -0.0134665555432231,
    0.1815458537624377,
    0.14457490698745346,
    -0.3013351014896059,
    0.10111810849800303,
)


def ramp_moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of max(X, 0), X ~ N(mean, variance), to a relative 1e-5; differentiable to any order.

    The computation is in the dtype of the input, since float32 does not lose more than that.
    """
    m, v = _Ramp.apply(mean, variance)
    return m, v


class _Ramp(torch.autograd.Function):
    """Both moments; derivatives of an expectation are expectations of derivatives."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(mean, variance)
        m = torch.empty_like(mean, memory_format=torch.contiguous_format)
        v = torch.empty_like(m)
        first = [mean.new_full((), coefficient) for coefficient in _FIRST]
        second = [mean.new_full((), coefficient) for coefficient in _SECOND]
        step = _RAMP_CHUNK if mean.device.type == "cpu" else max(1, mean.numel())
        flat = [tensor.reshape(-1) for tensor in (mean, variance, m, v)]
        for start in range(0, mean.numel(), step):
            of_x, of_variance, of_m, of_v = [tensor[start : start + step] for tensor in flat]
            _moments(of_x, of_variance, of_m, of_v, first, second)
        return m, v

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = ctx.saved_tensors
        of_mean, of_variance = gradients
        point = variance == 0
        s = torch.where(point, 1.0, variance).sqrt()
        h = mean / s
        # A point mass has the derivatives of max(x, 0), at 0 those from the right.
        above = torch.where(point, (mean >= 0).to(h.dtype), cdf(h))
        below = torch.where(point, 0.0, cdf(-h))
        density = torch.where(point, 0.0, pdf(h) / s)  # of X at 0
        ramp = ramp_moments(mean, variance)[0]
        by_mean = of_mean * above + of_variance * 2 * ramp * below
        return by_mean, of_mean * density / 2 + of_variance * (above - ramp * density)


def _moments(
    mean: Tensor, variance: Tensor, m: Tensor, v: Tensor, firsts: list[Tensor], seconds: list[Tensor]
) -> None:
    """Write the moments of vectors to `m` and `v`, with few passes over memory, which dominate the time."""
    s = variance.sqrt()
    # h^2, whose rounding error is amplified h^2 / 2 times, by one quotient and one product. Point masses get
    # any finite h: their integrals are multiplied by 0.
    quotient = (mean / variance).nan_to_num_(0)
    a = (quotient * s).abs_()
    density = quotient.mul_(mean).mul_(-0.5).exp_()
    t = (a + 4).reciprocal_().mul_(4)
    power = density.mul_(t).mul_(t)
    first = _polynomial(firsts, t).mul_(power)
    second = _polynomial(seconds, t).mul_(power.mul_(t))
    torch.clamp_min(mean, 0, out=m).addcmul_(s, first)
    left = second.addcmul_(first, first, value=-1)  # the variance at -a, relative to s^2
    # The variance at a, since Var (X)_+ + Var (-X)_+ + 2 E (X)_+ E (-X)_+ = Var X
    right = torch.addcmul(left, a.add_(first), first, value=2, out=a).neg_().add_(1)
    positive = torch.gt(mean, 0, out=power)
    # where() would take ten times as long
    torch.mul(variance, left.lerp_(right, positive), out=v)


def _polynomial(coefficients: list[Tensor], t: Tensor) -> Tensor:
    """Evaluate at `t` by Horner's scheme, with one pass over memory per step."""
    *rest, last = coefficients
    value = t * last
    value.add_(rest.pop())
    for coefficient in reversed(rest):
        torch.addcmul(coefficient, value, t, out=value)
    return value


_UNDERFLOW = 40.0  # exp(-40^2 / 2) is 0 in float64


def pairs(mean: Tensor) -> tuple[Tensor, Tensor]:
    """Indices i < j of all pairs of a layer (B, n), each of shape (P,)."""
    n = mean.shape[-1]
    i, j = torch.triu_indices(n, n, 1, device=mean.device)
    return i, j


def off_points(covariance: Tensor, point: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Covariances of the pairs (B, P), with equal gradients for both triangles and zero at point masses."""
    c = 0.5 * covariance[:, i, j] + 0.5 * covariance[:, j, i]
    return torch.where(point[:, i] | point[:, j], 0.0, c)


def assembled(values: Tensor, i: Tensor, j: Tensor, n: int) -> Tensor:
    """Symmetric matrices (B, n, n) from the values (B, P) of their pairs i < j, zero on the diagonal."""
    pair_index = torch.full((n, n), len(i), device=values.device)
    pair_index[i, j] = pair_index[j, i] = torch.arange(len(i), device=values.device)
    return torch.cat([values, values.new_zeros(len(values), 1)], -1)[:, pair_index]


def ramp_covariance(
    mean: Tensor,
    variance: Tensor,
    covariance: Tensor,
    slopes: Sequence[float | Tensor],
    corners: Sequence[float] = (0.0,),
) -> Tensor:
    """Covariances of a continuous piecewise linear function; scale equivariant if its only corner is 0."""
    i, j = pairs(mean)
    point = variance == 0
    s = torch.where(point, 1.0, variance).sqrt()
    bends = [
        (torch.where(point, 0.0, (mean - corner) / s), right - left)
        for corner, (left, right) in zip(corners, itertools.pairwise(slopes), strict=True)
    ]
    rho = off_points(covariance, point, i, j) / s[:, i] / s[:, j]
    # clamp without zeroing the gradient where rounding exceeds 1
    rho = rho + (rho.clamp(-1, 1) - rho).detach()
    bent = []
    for (h, of_i), (k, of_j) in itertools.product(bends, repeat=2):
        h_i, h_j = h[:, i], k[:, j]
        reached = torch.maximum(h_i.abs(), h_j.abs()) < _UNDERFLOW
        # If one unit of a pair never reaches its corner, the density there is 0.
        bend = by_correlation(price_integral, torch.where(reached, rho, torch.nan), h_i, h_j, rho)
        bent.append((_product(of_i, of_j, i, j), bend))
    mean_slope = slopes[0] + functools.reduce(torch.add, [bend * cdf(h) for h, bend in bends])
    unit = rho * mean_slope[:, i] * mean_slope[:, j]
    for weight, bend in bent:
        unit = unit + weight * bend
    return assembled(unit * s[:, i] * s[:, j], i, j, mean.shape[-1])


def _product(a: float | Tensor, b: float | Tensor, i: Tensor, j: Tensor) -> float | Tensor:
    """a[i] b[j], where each of a and b is one value for all units or a tensor with one per unit."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a[i] * b[j]
    return a**2 if a is b else a * b  # a power and a product may differ in the last digit
