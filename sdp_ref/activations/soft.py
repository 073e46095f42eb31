"""Softplus, functions derived from it (LogSigmoid, Mish), Hardswish, Softsign and Tanhshrink."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.numerics.quadrature import KNOTS, Jump
from sdp_ref.activations.pointwise import Quadrature


@dataclass(frozen=True)
class Hardswish(Quadrature):
    """x min(max(x + 3, 0), 6) / 6."""

    name: ClassVar[str] = "hardswish"
    label: ClassVar[str] = "Hardswish"
    module: ClassVar[type[nn.Module]] = nn.Hardswish
    kinks: ClassVar[tuple[float, ...]] = (-3.0, 3.0)

    def derivative(self, x: Tensor) -> Tensor:
        middle = torch.where(x < -3, torch.zeros_like(x), (2 * x + 3) / 6)
        return torch.where(x < 3, middle, torch.ones_like(x))


@dataclass(frozen=True)
class Softsign(Quadrature):
    """x / (1 + abs(x))."""

    name: ClassVar[str] = "softsign"
    label: ClassVar[str] = "Softsign"
    module: ClassVar[type[nn.Module]] = nn.Softsign
    knots: ClassVar[tuple[float, ...]] = KNOTS + tuple(2.0**k * KNOTS[-1] for k in range(1, 12))

    def derivative(self, x: Tensor) -> Tensor:
        return (1 + x.abs()).square().reciprocal()


@dataclass(frozen=True)
class Tanhshrink(Quadrature):
    """x - tanh(x)."""

    name: ClassVar[str] = "tanhshrink"
    label: ClassVar[str] = "Tanhshrink"
    module: ClassVar[type[nn.Module]] = nn.Tanhshrink

    def function(self, x: Tensor) -> Tensor:
        return x - torch.tanh(x)

    def from_flat(self, x: Tensor) -> Tensor:
        """For small x the difference x - tanh(x) cancels."""
        square = x * x
        series = 1 / 3 - square * (2 / 15 - square * (17 / 315 - square * 62 / 2835))
        return torch.where(x.abs() < 0.02, x * square * series, x - torch.tanh(x))

    def derivative(self, x: Tensor) -> Tensor:
        return torch.tanh(x).square()


@dataclass(frozen=True)
class Softplus(Quadrature):
    """log(1 + exp(beta x)) / beta, and x where beta x is above a threshold, as in torch.

    At the threshold it jumps, by 2e-9 at the default of 20.
    """

    name: ClassVar[str] = "softplus"
    label: ClassVar[str] = "Softplus"
    module: ClassVar[type[nn.Module]] = nn.Softplus
    beta: float = 1.0
    threshold: float = 20.0

    def __post_init__(self) -> None:
        if not (0 < self.beta < math.inf and math.isfinite(self.threshold)):
            raise ValueError(
                f"beta must be above 0, and both finite; got {self.beta!r} and threshold {self.threshold!r}"
            )

    @property
    def unit(self) -> float:
        return 1 / self.beta

    @property
    def jumps(self) -> tuple[Jump, ...]:
        knee = self.threshold / self.beta
        below = max(self.threshold, 0.0) + math.log1p(math.exp(-abs(self.threshold)))
        return () if below == self.threshold else ((knee, below / self.beta, knee),)

    def derivative(self, x: Tensor) -> Tensor:
        z = x * self.beta
        return torch.where(z >= self.threshold, torch.ones_like(x), torch.sigmoid(z))


@dataclass(frozen=True)
class LogSigmoid(Quadrature):
    """log(sigmoid(x)) = -log(1 + exp(-x))."""

    name: ClassVar[str] = "logsigmoid"
    label: ClassVar[str] = "LogSigmoid"
    module: ClassVar[type[nn.Module]] = nn.LogSigmoid
    ops: ClassVar[tuple[str, ...]] = ("log_sigmoid",)

    def derivative(self, x: Tensor) -> Tensor:
        return torch.sigmoid(-x)


@dataclass(frozen=True)
class Mish(Quadrature):
    """x tanh(log(1 + exp(x)))."""

    name: ClassVar[str] = "mish"
    label: ClassVar[str] = "Mish"
    module: ClassVar[type[nn.Module]] = nn.Mish

    def derivative(self, x: Tensor) -> Tensor:
        gate = torch.tanh(torch.logaddexp(x, torch.zeros_like(x)))
        return gate + x * (1 - gate) * (1 + gate) * torch.sigmoid(x)
