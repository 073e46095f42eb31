"""tanh: the sigmoid, rescaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.base import Activation
from sdp_ref.activations.sigmoid import Sigmoid

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
