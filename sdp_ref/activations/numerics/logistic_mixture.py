"""The logistic function as a mixture of normal distribution functions.

If Z is standard normal and K has the Kolmogorov distribution, 2 K Z is logistic (Andrews & Mallows 1974,
section 3; Stefanski 1991): sigmoid(x) = E[Phi(x / (2 K))]. A Gauss rule for the law of log(2 K) yields a
short mixture, sum_i w_i Phi(x / sigma_i). With it, the moments of sigmoid, tanh and SiLU under a normal law
are sums of closed forms and normal integrals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

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

    tail: np.ndarray = ndtr(-z)
    return tail


def _kolmogorov_density(k: np.ndarray) -> np.ndarray:
    # Two series of the same function (Jacobi's transformation of theta functions): the alternating one
    # converges within a few terms above 1 and cancels below, where one term of the other suffices.
    j = np.arange(1, 40)[:, None]
    upper = np.maximum(k, 1.0)
    series = 8 * upper * np.sum((-1.0) ** (j - 1) * j**2 * np.exp(-2 * (j * upper) ** 2), axis=0)
    lower = np.minimum(k, 1.0)
    q = ((2 * j - 1) * np.pi) ** 2 / 8
    theta = np.exp(-q / lower**2) * (2 * q / lower**4 - 1 / lower**2)
    density: np.ndarray = np.where(k < 1, np.sqrt(2 * np.pi) * theta.sum(axis=0), series)
    return density


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
