"""The function x / sqrt(x^2 + eps), to which norms over one or two components reduce."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sdp_ref.activations.numerics.quadrature import Jump
from sdp_ref.activations.pointwise import Quadrature

_SIGN = 1e-18
"""Largest `eps` at which the function is treated as the sign of x."""


@dataclass(frozen=True)
class Direction(Quadrature):
    """x / sqrt(x^2 + eps), a smooth sign."""

    label: ClassVar[str] = "x / sqrt(x^2 + eps)"
    # up to a distance at which 1 - f(x) is below 1e-10
    knots: ClassVar[tuple[float, ...]] = tuple(0.5 * 2.5**k for k in range(14))
    eps: float

    @property
    def jumps(self) -> tuple[Jump, ...]:
        return ((0.0, 0.0, 2.0),) if self.eps <= _SIGN else ()

    @property
    def unit(self) -> float:
        return 1.0 if self.jumps else math.sqrt(self.eps)

    def _length(self, x: Tensor) -> Tensor:
        return torch.hypot(x, torch.full_like(x, self.unit))

    def function(self, x: Tensor) -> Tensor:
        return x.sign() if self.jumps else x / self._length(x)

    def derivative(self, x: Tensor) -> Tensor:
        if self.jumps:
            return 0 * x
        length = self._length(x)
        return (self.unit / length).square() / length

    def from_flat(self, x: Tensor) -> Tensor:
        """f(x) + 1, without cancellation for negative x."""
        if self.jumps:
            return 2 * (x >= 0).to(x.dtype)
        length = self._length(x)
        below = self.unit / length * (self.unit / (length + x.abs()))
        return torch.where(x < 0, below, 2 - below)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        right = mean > 0
        m, v = super()._mean_variance(torch.where(right, -mean, mean), variance)
        return torch.where(right, -m, m), v
