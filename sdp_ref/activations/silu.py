"""SiLU: quadrature, and covariances from a mixture of GELUs of several widths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.base import Activation
from sdp_ref.activations.numerics.covariances import gated, like_exact
from sdp_ref.activations.numerics.logistic_mixture import mixture_for
from sdp_ref.activations.numerics.quadrature import smooth_mean_variance

_LARGEST_SLOPE = 1.1  # 1.0998, at x = 2.4


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
        mixture = mixture_for(tolerance / (2 * _LARGEST_SLOPE), silu=True)
        return like_exact(gated, mixture, mean, variance, covariance, self._mean_variance)
