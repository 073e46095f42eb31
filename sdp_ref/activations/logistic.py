"""The sigmoid, tanh, SiLU and GELU: functions that are smooth steps or have one as a factor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.base import Activation
from sdp_ref.activations.numerics.covariances import gate, gated, gelu_covariance, like_exact, mixture_for
from sdp_ref.activations.numerics.normal import cdf, pdf
from sdp_ref.activations.numerics.quadrature import smooth_mean_variance
from sdp_ref.activations.pointwise import Quadrature

_LARGEST_SLOPE = 0.25  # attained at 0


@dataclass(frozen=True)
class Sigmoid(Activation):
    """1 / (1 + exp(-x))."""

    name: ClassVar[str] = "sigmoid"
    label: ClassVar[str] = "sigmoid"
    rank: ClassVar[int] = 30
    module: ClassVar[type[nn.Module]] = nn.Sigmoid
    ops: ClassVar[tuple[str, ...]] = ("sigmoid",)
    value_seconds: ClassVar[float] = 0.6e-9
    layer_seconds: ClassVar[float] = 0.04

    def function(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)

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

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        def second(x: Tensor) -> Tensor:
            return self.derivative(x) * (1 - 2 * torch.sigmoid(x))

        def third(x: Tensor) -> Tensor:
            slope = self.derivative(x)
            return slope * (1 - 6 * slope)

        # f' is even and decays on both sides; the quadrature searches for mass to the right of the mean
        return smooth_mean_variance(self.derivative, second, third, -mean.abs(), variance)[0]

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, tolerance: float) -> Tensor:
        # Cov(f, g) changes by at most s_i s_j times the slope error of one times the slope of the other,
        # twice.
        mixture = mixture_for(tolerance / (2 * _LARGEST_SLOPE), silu=False)
        return like_exact(gate, mixture, mean, variance, covariance, self._mean_variance)


_SIGMOID = Sigmoid()


@dataclass(frozen=True)
class Tanh(Activation):
    """tanh(x) = 2 sigmoid(2 x) - 1."""

    name: ClassVar[str] = "tanh"
    label: ClassVar[str] = "tanh"
    rank: ClassVar[int] = 60
    module: ClassVar[type[nn.Module]] = nn.Tanh
    ops: ClassVar[tuple[str, ...]] = ("tanh",)
    value_seconds: ClassVar[float] = 0.6e-9
    layer_seconds: ClassVar[float] = 0.05

    def function(self, x: Tensor) -> Tensor:
        return torch.tanh(x)

    def derivative(self, x: Tensor) -> Tensor:
        return 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        m, v = _SIGMOID._mean_variance(2 * mean, 4 * variance)
        return 2 * m - 1, 4 * v

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        return 4 * _SIGMOID._mean_derivative(2 * mean, 4 * variance)

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, tolerance: float) -> Tensor:
        return 4 * _SIGMOID._covariance(2 * mean, 4 * variance, 4 * covariance, tolerance / 16)


_LARGEST_SILU_SLOPE = 1.1  # 1.0998, at x = 2.4


@dataclass(frozen=True)
class SiLU(Activation):
    """x sigmoid(x)."""

    name: ClassVar[str] = "silu"
    label: ClassVar[str] = "SiLU"
    rank: ClassVar[int] = 40
    module: ClassVar[type[nn.Module]] = nn.SiLU
    ops: ClassVar[tuple[str, ...]] = ("silu",)
    value_seconds: ClassVar[float] = 0.7e-9
    layer_seconds: ClassVar[float] = 0.12

    def function(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    def derivative(self, x: Tensor) -> Tensor:
        y = torch.sigmoid(x)
        return y + x * y * torch.sigmoid(-x)

    def _second_derivative(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x) * torch.sigmoid(-x) * (2 - x * torch.tanh(x / 2))

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        return smooth_mean_variance(self.function, self.derivative, self._second_derivative, mean, variance)

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        def third(x: Tensor) -> Tensor:
            slope, t = torch.sigmoid(x) * torch.sigmoid(-x), torch.tanh(x / 2)
            return -slope * (3 * t - x * t * t + 2 * x * slope)

        return smooth_mean_variance(self.derivative, self._second_derivative, third, mean, variance)[0]

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, tolerance: float) -> Tensor:
        # The same bound as for the sigmoid.
        mixture = mixture_for(tolerance / (2 * _LARGEST_SILU_SLOPE), silu=True)
        return like_exact(gated, mixture, mean, variance, covariance, self._mean_variance)


@dataclass(frozen=True)
class GELU(Activation):
    """x Phi(x), the exact (erf) form."""

    name: ClassVar[str] = "gelu"
    label: ClassVar[str] = "GELU"
    rank: ClassVar[int] = 50
    module: ClassVar[type[nn.Module]] = nn.GELU
    ops: ClassVar[tuple[str, ...]] = ("gelu",)
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
        tau = (1 + variance).sqrt()
        t = mean / tau
        m = mean * cdf(t) + variance / tau * pdf(t)
        _, v = smooth_mean_variance(
            self.function, self.derivative, lambda x: (2 - x * x) * pdf(x), mean, variance
        )
        return m, v

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        square = 1 + variance
        t = mean / square.sqrt()
        return cdf(t) + t * pdf(t) / square

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, _tolerance: float) -> Tensor:
        return gelu_covariance(mean, variance, covariance)


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
