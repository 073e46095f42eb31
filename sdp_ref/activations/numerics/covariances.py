"""The logistic function as a mixture of normal distribution functions.

If Z is standard normal and K has the Kolmogorov distribution, 2 K Z is logistic (Andrews & Mallows 1974,
section 3; Stefanski 1991): sigmoid(x) = E[Phi(x / (2 K))]. A Gauss rule for the law of log(2 K) yields a
short mixture, sum_i w_i Phi(x / sigma_i). With it, the moments of sigmoid, tanh and SiLU under a normal law
are sums of closed forms and normal integrals.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from sdp_ref.activations.numerics.normal import (
    assembled,
    by_correlation,
    cdf,
    off_points,
    pairs,
    pdf,
    price_integral,
)

_GRID = 400
_LOW, _HIGH = 0.12, 5.0  # the mass of K outside is below 1e-20
_LARGEST = 24


@dataclass(frozen=True, eq=False)
class LogisticMixture:
    """sum_i weights_i Phi(x / scales_i), close to the logistic function.

    The errors are the largest ones of the mixture's derivative and of that of x times the mixture.
    """

    scales: np.ndarray
    weights: np.ndarray
    sigmoid_slope_error: float
    silu_slope_error: float


@lru_cache(maxsize=32)
def logistic_mixture(terms: int) -> LogisticMixture:
    """Gauss rule with `terms` nodes; its errors decrease threefold per term, to 2e-8 and 1e-7 at 10 terms."""
    # The density of log K vanishes to all orders at both ends, where equal spacing is spectrally accurate.
    grid = np.linspace(np.log(_LOW), np.log(_HIGH), _GRID)
    k = np.exp(grid)
    nodes, weights = _gauss_rule(grid, k * _kolmogorov_density(k), terms)
    scales, weights = 2 * np.exp(nodes), weights / weights.sum()

    # Both errors are even or odd in x, and below 1e-26 beyond 60.
    x = np.linspace(0, 60, 6001)[:, None]
    z = x / scales
    density = np.exp(-0.5 * z * z) / (scales * np.sqrt(2 * np.pi))
    tail = 1 / (1 + np.exp(x[:, 0]))
    slope = density @ weights - tail * (1 - tail)
    value = _upper_tail(z) @ weights - tail
    return LogisticMixture(
        scales, weights, float(np.abs(slope).max()), float(np.abs(x[:, 0] * slope - value).max())
    )


def mixture_for(slope_error: float, *, silu: bool) -> LogisticMixture:
    """Shortest mixture with a slope error of at most `slope_error`, or the longest available one."""
    for terms in range(2, _LARGEST):
        mixture = logistic_mixture(terms)
        if (mixture.silu_slope_error if silu else mixture.sigmoid_slope_error) <= slope_error:
            return mixture
    return logistic_mixture(_LARGEST)


def _upper_tail(z: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return ndtr(-z)


def _kolmogorov_density(k: np.ndarray) -> np.ndarray:
    # Two series of the same function (Jacobi's transformation of theta functions): the alternating one
    # converges within a few terms above 1 and cancels below, where one term of the other suffices.
    j = np.arange(1, 40)[:, None]
    upper = np.maximum(k, 1.0)
    series = 8 * upper * np.sum((-1.0) ** (j - 1) * j**2 * np.exp(-2 * (j * upper) ** 2), axis=0)
    lower = np.minimum(k, 1.0)
    q = ((2 * j - 1) * np.pi) ** 2 / 8
    theta = np.exp(-q / lower**2) * (2 * q / lower**4 - 1 / lower**2)
    return np.where(k < 1, np.sqrt(2 * np.pi) * theta.sum(axis=0), series)


def _gauss_rule(y: np.ndarray, weights: np.ndarray, terms: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss rule of a discrete measure, by Lanczos with full orthogonalisation (Golub & Welsch 1969)."""
    basis = [np.sqrt(weights / weights.sum())]
    diagonal: list[float] = []
    off: list[float] = []
    for _ in range(terms):
        vector = y * basis[-1]
        diagonal.append(float(vector @ basis[-1]))
        for _ in range(
            2
        ):  # cancellation in the first pass reintroduces components (Parlett 1998: twice is enough)
            for b in basis:
                vector = vector - (b @ vector) * b
        off.append(float(np.linalg.norm(vector)))
        basis.append(vector / off[-1])
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off[:-1], 1) + np.diag(off[:-1], -1))
    return values, vectors[0] ** 2 * weights.sum()


_VARIANCE_FLOOR = 1e-8  # below it the relative error of a mixture does not depend on the variance

MeanVariance = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Terms = tuple[Tensor, Tensor]
"""Scales and weights of a mixture, each of shape (terms,)."""


def gelu_covariance(mean: Tensor, variance: Tensor, covariance: Tensor) -> Tensor:
    """Covariances of x Phi(x)."""
    one = mean.new_ones(1)
    return _over_layer(functools.partial(_over_pairs, gated, (one, one)), mean, variance, covariance)


def gate(
    terms: Terms,
    m_i: Tensor,
    m_j: Tensor,
    v_i: Tensor,
    v_j: Tensor,
    c: Tensor,
    count: int,
    limit: float,
) -> Tensor:
    """Cov(f(X), f(Y)) of f(x) = sum_a weights_a Phi(x / scales_a), pair by pair."""
    scales, weights = terms
    # Phi(x / sigma) = P(sigma Z < x): each term is a step of X - sigma Z, of variance v + sigma^2.
    s_i, s_j = _smoothed(v_i, scales)[:, :, None], _smoothed(v_j, scales)[:, None, :]
    h, k = torch.broadcast_tensors(m_i[:, None, None] / s_i, m_j[:, None, None] / s_j)
    return price_integral(h, k, c[:, None, None] / (s_i * s_j), 1, count, limit) @ weights @ weights


def gated(
    terms: Terms,
    m_i: Tensor,
    m_j: Tensor,
    v_i: Tensor,
    v_j: Tensor,
    c: Tensor,
    count: int,
    limit: float,
) -> Tensor:
    """Cov(f(X), f(Y)) of f(x) = sum_a weights_a x Phi(x / scales_a), pair by pair."""
    scales, weights = terms
    s_i, s_j = _smoothed(v_i, scales), _smoothed(v_j, scales)
    t_i, t_j = m_i[:, None] / s_i, m_j[:, None] / s_j
    slope_i = (cdf(t_i) + t_i * pdf(t_i) * (scales / s_i) ** 2) @ weights
    slope_j = (cdf(t_j) + t_j * pdf(t_j) * (scales / s_j) ** 2) @ weights

    product = s_i[:, :, None] * s_j[:, None, :]
    h, k = torch.broadcast_tensors(t_i[:, :, None], t_j[:, None, :])
    a, b = (scales / s_i)[:, :, None, None], (scales / s_j)[:, None, :, None]
    x, y = h[..., None], k[..., None]

    def factor(r: Tensor, cosine2: Tensor) -> Tensor:
        # f'' is a density of scale sigma times 2 - z^2, z = x / sigma, which leaves the mean of (2 - z_i^2)
        # (2 - z_j^2) under the law of (X, Y) given X + sigma_i Z_i = Y + sigma_j Z_j = 0.
        inverse = 1 / cosine2
        mu_i, mu_j = a * (x - r * y) * inverse, b * (y - r * x) * inverse
        across = a * b * r * inverse
        own = (1 + a * a * inverse - mu_i * mu_i) * (1 + b * b * inverse - mu_j * mu_j)
        return own + 2 * across * (across + 2 * mu_i * mu_j)

    bend = price_integral(h, k, c[:, None, None] / product, 2, count, limit, factor)
    return c * slope_i * slope_j + (bend * product) @ weights @ weights


def _over_pairs(
    kernel: Callable[..., Tensor],
    terms: Terms,
    m_i: Tensor,
    m_j: Tensor,
    v_i: Tensor,
    v_j: Tensor,
    c: Tensor,
) -> Tensor:
    # The least smoothed term has the largest correlation; its number of nodes is sufficient for all terms.
    scales = terms[0]
    narrowest = scales.min()
    correlation = (c / (_smoothed(v_i, narrowest) * _smoothed(v_j, narrowest))[..., 0]).clamp(-1, 1)
    kernel = functools.partial(kernel, terms)
    return by_correlation(kernel, correlation, m_i, m_j, v_i, v_j, c, width=len(scales) ** 2)


def _over_layer(values: Callable[..., Tensor], mean: Tensor, variance: Tensor, covariance: Tensor) -> Tensor:
    i, j = pairs(mean)
    c = off_points(covariance, variance == 0, i, j)
    flat = values(mean[:, i], mean[:, j], variance[:, i], variance[:, j], c)
    return assembled(flat, i, j, mean.shape[-1])


def like_exact(
    kernel: Callable[..., Tensor],
    mixture: LogisticMixture,
    mean: Tensor,
    variance: Tensor,
    covariance: Tensor,
    exact: MeanVariance,
) -> Tensor:
    """Rescale covariances under a mixture so that each unit has its exact standard deviation.

    This is a congruence, so the result with its exact diagonal remains positive semidefinite, and no
    covariance exceeds the bound from its variances, even where both are far below the error of the mixture.
    """
    terms = (mean.new_tensor(mixture.scales), mean.new_tensor(mixture.weights))
    values = functools.partial(_over_pairs, kernel, terms)
    rough = _over_layer(values, mean, variance, covariance)
    floored = variance.clamp(min=_VARIANCE_FLOOR)
    own, true = values(mean, mean, floored, floored, floored), exact(mean, floored)[1]
    known = (own > 0) & (true > 0)
    ratio = torch.where(known, true, 1.0) / torch.where(known, own, 1.0)
    scale = torch.where(known, ratio.sqrt(), 0.0)
    # exactly symmetric, unlike a product of three factors
    return rough * (scale[:, :, None] * scale[:, None, :])


def _smoothed(variance: Tensor, scales: Tensor) -> Tensor:
    return (variance[..., None] + scales * scales).sqrt()
