"""Piecewise linear functions with a threshold: Softshrink, and two that jump, Hardshrink and Threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.activations.numerics.curves import Jump
from sdp_ref.activations.pointwise import Pieces, Straight


@dataclass(frozen=True)
class _Shrink(Pieces):
    """A function that is 0 within lambd >= 0 of 0 and has slope 1 beyond."""

    kinks: ClassVar[tuple[float, ...]] = (-0.5, 0.5)
    lambd: float = 0.5

    def __post_init__(self) -> None:
        if not (isinstance(self.lambd, int | float) and 0 <= self.lambd < math.inf):
            raise ValueError(f"lambd must be a finite number of at least 0, got {self.lambd!r}")

    @property
    def corners(self) -> tuple[float, ...]:
        return (-float(self.lambd), float(self.lambd))

    @property
    def slopes(self) -> tuple[float, ...]:
        return (1.0, 0.0, 1.0)


@dataclass(frozen=True)
class Softshrink(_Shrink, Straight):
    """x moved towards 0 by lambd, and 0 within lambd of 0."""

    name: ClassVar[str] = "softshrink"
    label: ClassVar[str] = "Softshrink"
    module: ClassVar[type[nn.Module]] = nn.Softshrink
    ops: ClassVar[tuple[str, ...]] = ("softshrink",)

    def function(self, x: Tensor) -> Tensor:
        return F.softshrink(x, self.lambd)


@dataclass(frozen=True)
class Hardshrink(_Shrink):
    """x, and 0 within lambd of 0."""

    name: ClassVar[str] = "hardshrink"
    label: ClassVar[str] = "Hardshrink"
    module: ClassVar[type[nn.Module]] = nn.Hardshrink
    ops: ClassVar[tuple[str, ...]] = ("hardshrink",)

    @property
    def jumps(self) -> tuple[Jump, ...]:
        edge = float(self.lambd)
        return ((-edge, -edge, 0.0), (edge, 0.0, edge)) if edge else ()

    def function(self, x: Tensor) -> Tensor:
        return F.hardshrink(x, self.lambd)


@dataclass(frozen=True)
class Threshold(Pieces):
    """x above a threshold, and a constant up to it."""

    name: ClassVar[str] = "threshold"
    label: ClassVar[str] = "Threshold"
    module: ClassVar[type[nn.Module]] = nn.Threshold
    ops: ClassVar[tuple[str, ...]] = ("threshold",)
    kinks: ClassVar[tuple[float, ...]] = (0.0,)
    threshold: float = 0.0
    value: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.threshold) and math.isfinite(self.value)):
            raise ValueError(f"threshold and value must be finite, got {self.threshold!r} and {self.value!r}")

    @property
    def corners(self) -> tuple[float, ...]:
        return (float(self.threshold),)

    @property
    def slopes(self) -> tuple[float, ...]:
        return (0.0, 1.0)

    @property
    def jumps(self) -> tuple[Jump, ...]:
        place, before = float(self.threshold), float(self.value)
        return () if place == before else ((place, 0.0, place - before),)

    def from_flat(self, x: Tensor) -> Tensor:
        return torch.where(x > self.threshold, x - self.value, torch.zeros_like(x))

    def function(self, x: Tensor) -> Tensor:
        return F.threshold(x, self.threshold, self.value)
