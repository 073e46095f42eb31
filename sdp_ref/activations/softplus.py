"""Softplus, and functions derived from it: LogSigmoid and Mish."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.activations.numerics.curves import Jump
from sdp_ref.activations.pointwise import Quadrature


@dataclass(frozen=True)
class Softplus(Quadrature):
    """log(1 + exp(beta x)) / beta, and x where beta x is above a threshold, as in torch.

    At the threshold it jumps, by 2e-9 at the default of 20.
    """

    name: ClassVar[str] = "softplus"
    label: ClassVar[str] = "Softplus"
    module: ClassVar[type[nn.Module]] = nn.Softplus
    ops: ClassVar[tuple[str, ...]] = ("softplus",)
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
        place = self.threshold / self.beta
        below = max(self.threshold, 0.0) + math.log1p(math.exp(-abs(self.threshold)))
        return () if below == self.threshold else ((place, below / self.beta, place),)

    def function(self, x: Tensor) -> Tensor:
        return F.softplus(x, self.beta, self.threshold)

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

    def function(self, x: Tensor) -> Tensor:
        return F.logsigmoid(x)

    def derivative(self, x: Tensor) -> Tensor:
        return torch.sigmoid(-x)


@dataclass(frozen=True)
class Mish(Quadrature):
    """x tanh(log(1 + exp(x)))."""

    name: ClassVar[str] = "mish"
    label: ClassVar[str] = "Mish"
    module: ClassVar[type[nn.Module]] = nn.Mish
    ops: ClassVar[tuple[str, ...]] = ("mish",)

    def function(self, x: Tensor) -> Tensor:
        return F.mish(x)

    def derivative(self, x: Tensor) -> Tensor:
        gate = torch.tanh(torch.logaddexp(x, torch.zeros_like(x)))
        return gate + x * (1 - gate) * (1 + gate) * torch.sigmoid(x)
