"""Hardswish, Softsign and Tanhshrink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.activations.numerics.curves import KNOTS
from sdp_ref.activations.pointwise import Quadrature


@dataclass(frozen=True)
class Hardswish(Quadrature):
    """x min(max(x + 3, 0), 6) / 6."""

    name: ClassVar[str] = "hardswish"
    label: ClassVar[str] = "Hardswish"
    module: ClassVar[type[nn.Module]] = nn.Hardswish
    ops: ClassVar[tuple[str, ...]] = ("hardswish",)
    kinks: ClassVar[tuple[float, ...]] = (-3.0, 3.0)

    def function(self, x: Tensor) -> Tensor:
        return F.hardswish(x)

    def derivative(self, x: Tensor) -> Tensor:
        middle = torch.where(x < -3, torch.zeros_like(x), (2 * x + 3) / 6)
        return torch.where(x < 3, middle, torch.ones_like(x))


@dataclass(frozen=True)
class Softsign(Quadrature):
    """x / (1 + abs(x))."""

    name: ClassVar[str] = "softsign"
    label: ClassVar[str] = "Softsign"
    module: ClassVar[type[nn.Module]] = nn.Softsign
    ops: ClassVar[tuple[str, ...]] = ("softsign",)
    knots: ClassVar[tuple[float, ...]] = (*KNOTS, *(2.0**k * KNOTS[-1] for k in range(1, 12)))

    def function(self, x: Tensor) -> Tensor:
        return x / (1 + x.abs())

    def derivative(self, x: Tensor) -> Tensor:
        return (1 + x.abs()).square().reciprocal()


@dataclass(frozen=True)
class Tanhshrink(Quadrature):
    """x - tanh(x)."""

    name: ClassVar[str] = "tanhshrink"
    label: ClassVar[str] = "Tanhshrink"
    module: ClassVar[type[nn.Module]] = nn.Tanhshrink
    ops: ClassVar[tuple[str, ...]] = ("tanhshrink",)

    def function(self, x: Tensor) -> Tensor:
        return x - torch.tanh(x)

    def from_flat(self, x: Tensor) -> Tensor:
        """For small x the difference x - tanh(x) cancels."""
        square = x * x
        series = 1 / 3 - square * (2 / 15 - square * (17 / 315 - square * 62 / 2835))
        return torch.where(x.abs() < 0.02, x * square * series, x - torch.tanh(x))

    def derivative(self, x: Tensor) -> Tensor:
        return torch.tanh(x).square()
