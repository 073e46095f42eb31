"""The logistic function: quadrature, and covariances from a mixture of normal distribution functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.base import Activation
from sdp_ref.activations.numerics.covariances import gate, like_exact
from sdp_ref.activations.numerics.logistic_mixture import mixture_for
from sdp_ref.activations.numerics.quadrature import smooth_mean_variance

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
