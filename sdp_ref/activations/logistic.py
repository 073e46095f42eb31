"""The sigmoid, tanh, SiLU and GELU: functions that are smooth steps or have one as a factor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.base import Activation
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


@dataclass(frozen=True)
class Sigmoid(Quadrature):
    """1 / (1 + exp(-x))."""

    name: ClassVar[str] = "sigmoid"
    label: ClassVar[str] = "sigmoid"
    rank: ClassVar[int] = 30
    module: ClassVar[type[nn.Module]] = nn.Sigmoid
    value_seconds: ClassVar[float] = 0.6e-9
    layer_seconds: ClassVar[float] = 0.016

    def derivative(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x) * torch.sigmoid(-x)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        # sigmoid(x) = 1 - sigmoid(-x): on the left its values and their errors are small
        right = mean > 0
        m, v = smooth_mean_variance(
            self.function,
            self.derivative,
            lambda x: self.derivative(x) * (1 - 2 * torch.sigmoid(x)),
            torch.where(right, -mean, mean),
            variance,
        )
        return torch.where(right, 1 - m, m), v


@dataclass(frozen=True)
class Tanh(Quadrature):
    """tanh(x), elementwise."""

    name: ClassVar[str] = "tanh"
    label: ClassVar[str] = "tanh"
    rank: ClassVar[int] = 60
    module: ClassVar[type[nn.Module]] = nn.Tanh
    value_seconds: ClassVar[float] = 0.6e-9
    layer_seconds: ClassVar[float] = 0.012

    def derivative(self, x: Tensor) -> Tensor:
        return 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        m, v = Sigmoid()._mean_variance(2 * mean, 4 * variance)  # tanh(x) = 2 sigmoid(2 x) - 1
        return 2 * m - 1, 4 * v


@dataclass(frozen=True)
class SiLU(Quadrature):
    """x sigmoid(x)."""

    name: ClassVar[str] = "silu"
    label: ClassVar[str] = "SiLU"
    rank: ClassVar[int] = 40
    module: ClassVar[type[nn.Module]] = nn.SiLU
    value_seconds: ClassVar[float] = 0.7e-9
    layer_seconds: ClassVar[float] = 0.014

    def function(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    def derivative(self, x: Tensor) -> Tensor:
        y = torch.sigmoid(x)
        return y + x * y * torch.sigmoid(-x)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        def second(x: Tensor) -> Tensor:
            return torch.sigmoid(x) * torch.sigmoid(-x) * (2 - x * torch.tanh(x / 2))

        return smooth_mean_variance(self.function, self.derivative, second, mean, variance)


@dataclass(frozen=True)
class GELU(Quadrature):
    """x Phi(x), the exact (erf) form."""

    name: ClassVar[str] = "gelu"
    label: ClassVar[str] = "GELU"
    rank: ClassVar[int] = 50
    module: ClassVar[type[nn.Module]] = nn.GELU
    value_seconds: ClassVar[float] = 1e-9
    layer_seconds: ClassVar[float] = 0.005

    @classmethod
    def of(cls, module: nn.Module) -> Activation:  # type: ignore[override]
        """The tanh approximation is :class:`GELUTanh`."""
        return cls() if module.approximate == "none" else GELUTanh()

    def function(self, x: Tensor) -> Tensor:
        return x * cdf(x)

    def derivative(self, x: Tensor) -> Tensor:
        return cdf(x) + x * pdf(x)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        return smooth_mean_variance(
            self.function, self.derivative, lambda x: (2 - x * x) * pdf(x), mean, variance
        )

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, _tolerance: float) -> Tensor:
        """Closed form up to a normal integral: Phi(x) is P(Z < x), a step of the normal variable X - Z."""
        i, j = pairs(mean)
        s = (1 + variance).sqrt()
        t = mean / s
        slope = cdf(t) + t * pdf(t) / (1 + variance)
        c, product = off_points(covariance, variance == 0, i, j), s[:, i] * s[:, j]
        rho = c / product
        arguments = (t[:, i], t[:, j], rho, 1 / s[:, i], 1 / s[:, j])
        bend = by_correlation(_gelu_bend, rho.clamp(-1, 1), *arguments)
        return assembled(c * slope[:, i] * slope[:, j] + product * bend, i, j, mean.shape[-1])


def _gelu_bend(h: Tensor, k: Tensor, rho: Tensor, a: Tensor, b: Tensor, count: int, limit: float) -> Tensor:
    x, y, a, b = h[..., None], k[..., None], a[..., None], b[..., None]

    def factor(r: Tensor, cosine2: Tensor) -> Tensor:
        # f'' is the density times 2 - z^2, which leaves the mean of (2 - X^2) (2 - Y^2) given X = Z, Y = Z'.
        inverse = 1 / cosine2
        mu_i, mu_j = a * (x - r * y) * inverse, b * (y - r * x) * inverse
        cross = a * b * r * inverse
        squares = (1 + a * a * inverse - mu_i * mu_i) * (1 + b * b * inverse - mu_j * mu_j)
        return squares + 2 * cross * (cross + 2 * mu_i * mu_j)

    return price_integral(h, k, rho, count, limit, factor)


@dataclass(frozen=True)
class GELUTanh(Quadrature):
    """x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, which ``nn.GELU(approximate="tanh")`` applies."""

    name: ClassVar[str] = "gelu_tanh"
    label: ClassVar[str] = "GELU (tanh)"
    rank: ClassVar[int] = 100
    module: ClassVar[type[nn.Module]] = nn.GELU

    @classmethod
    def of(cls, module: nn.Module) -> Activation:  # type: ignore[override]
        return GELU.of(module)

    def build(self) -> nn.Module:
        return nn.GELU("tanh")

    def function(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(_inner(x))

    def derivative(self, x: Tensor) -> Tensor:
        z = _inner(x)
        slope = 2 * math.sqrt(2 / math.pi) * (1 + 3 * _CUBE * x * x)
        return torch.sigmoid(z) * (1 + x * slope * torch.sigmoid(-z))


_CUBE = 0.044715


def _inner(x: Tensor) -> Tensor:
    return 2 * math.sqrt(2 / math.pi) * (x + _CUBE * x**3)
