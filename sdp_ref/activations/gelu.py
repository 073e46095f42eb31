"""GELU: x times the normal distribution function, and its approximation by tanh."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.base import Activation
from sdp_ref.activations.numerics.covariances import gelu_covariance
from sdp_ref.activations.numerics.normal_integrals import cdf, pdf
from sdp_ref.activations.numerics.quadrature import smooth_mean_variance
from sdp_ref.activations.pointwise import Quadrature


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
