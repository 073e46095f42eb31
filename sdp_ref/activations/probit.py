"""The distribution function of the normal law, and the error function, which is an affine version of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.base import module_of
from sdp_ref.activations.numerics.normal import (
    assembled,
    by_correlation,
    cdf,
    off_points,
    pairs,
    pdf,
    price_integral,
)
from sdp_ref.activations.numerics.quadrature import smooth_mean_variance
from sdp_ref.activations.pointwise import Quadrature

Ndtr = module_of(__name__, "Ndtr", torch.special.ndtr)
Erf = module_of(__name__, "Erf", torch.erf)

_steps = partial(price_integral, order=0)


@dataclass(frozen=True)
class Probit(Quadrature):
    """Phi(x), the standard normal distribution function.

    With Z standard normal, Phi(X) is the probability of Z < X given X: its moments are those of steps of the
    normal variable X - Z.
    """

    name: ClassVar[str] = "probit"
    label: ClassVar[str] = "probit"
    module: ClassVar[type[nn.Module]] = Ndtr
    ops: ClassVar[tuple[str, ...]] = ("special_ndtr",)
    layer_seconds: ClassVar[float] = 0.005

    def function(self, x: Tensor) -> Tensor:
        return cdf(x)

    def derivative(self, x: Tensor) -> Tensor:
        return pdf(x)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        # Phi(x) = 1 - Phi(-x): on the left its values and their errors are small
        right = mean > 0
        m, v = smooth_mean_variance(
            self.function, self.derivative, lambda x: -x * pdf(x), torch.where(right, -mean, mean), variance
        )
        return torch.where(right, 1 - m, m), v

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        s = (1 + variance).sqrt()
        return pdf(mean / s) / s

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, _tolerance: float) -> Tensor:
        """P(Z < X, Z' < Y) - P(Z < X) P(Z' < Y), by Price's theorem."""
        i, j = pairs(mean)
        s = (1 + variance).sqrt()
        t = mean / s
        rho = off_points(covariance, variance == 0, i, j) / (s[:, i] * s[:, j])
        values = by_correlation(_steps, rho.clamp(-1, 1), t[:, i], t[:, j], rho)
        return assembled(values, i, j, mean.shape[-1])


@dataclass(frozen=True)
class ErrorFunction(Quadrature):
    """erf(x) = 2 Phi(sqrt(2) x) - 1."""

    name: ClassVar[str] = "erf"
    label: ClassVar[str] = "erf"
    module: ClassVar[type[nn.Module]] = Erf
    ops: ClassVar[tuple[str, ...]] = ("erf", "special_erf")
    layer_seconds: ClassVar[float] = 0.005

    def function(self, x: Tensor) -> Tensor:
        return x.erf()

    def from_flat(self, x: Tensor) -> Tensor:
        """f(x) + 1, without cancellation for negative x."""
        return 2 * cdf(math.sqrt(2) * x)

    def derivative(self, x: Tensor) -> Tensor:
        return 2 * math.sqrt(2) * pdf(math.sqrt(2) * x)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        m, v = Probit()._mean_variance(math.sqrt(2) * mean, 2 * variance)
        return 2 * m - 1, 4 * v

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        return 2 * math.sqrt(2) * Probit()._mean_derivative(math.sqrt(2) * mean, 2 * variance)

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, tolerance: float) -> Tensor:
        return 4 * Probit()._covariance(math.sqrt(2) * mean, 2 * variance, 2 * covariance, tolerance)
