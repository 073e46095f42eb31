"""Functions that jump: Hardshrink and Threshold."""

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
class Hardshrink(Quadrature):
    """x, and 0 within lambd of 0.

    Parameters
    ----------
    lambd : float
        At least 0.

    Raises
    ------
    ValueError
        If it is not.
    """

    name: ClassVar[str] = "hardshrink"
    label: ClassVar[str] = "Hardshrink"
    module: ClassVar[type[nn.Module]] = nn.Hardshrink
    ops: ClassVar[tuple[str, ...]] = ("hardshrink",)
    kinks: ClassVar[tuple[float, ...]] = (-0.5, 0.5)
    bends: ClassVar[tuple[float, ...]] = ()
    layer_seconds: ClassVar[float] = 0.3
    lambd: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.lambd < math.inf:
            raise ValueError(f"lambd must be a finite number of at least 0, got {self.lambd!r}")

    @property
    def corners(self) -> tuple[float, ...]:
        """See :class:`Quadrature`."""
        return (-self.lambd, self.lambd) if self.lambd else ()

    @property
    def jumps(self) -> tuple[Jump, ...]:
        """See :class:`Quadrature`."""
        edge = float(self.lambd)
        return ((-edge, -edge, 0.0), (edge, 0.0, edge)) if edge else ()

    def function(self, x: Tensor) -> Tensor:
        """f(x), elementwise."""
        return F.hardshrink(x, self.lambd)

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise, but for the jumps; at these the derivative from the right."""
        return ((x < -self.lambd) | (x >= self.lambd)).to(x.dtype)


@dataclass(frozen=True)
class Threshold(Quadrature):
    """x above a threshold, and one value up to it.

    Parameters
    ----------
    threshold, value : float

    Raises
    ------
    ValueError
        If one is not finite.
    """

    name: ClassVar[str] = "threshold"
    label: ClassVar[str] = "Threshold"
    module: ClassVar[type[nn.Module]] = nn.Threshold
    ops: ClassVar[tuple[str, ...]] = ("threshold",)
    kinks: ClassVar[tuple[float, ...]] = (0.0,)
    bends: ClassVar[tuple[float, ...]] = ()
    layer_seconds: ClassVar[float] = 0.3
    threshold: float = 0.0
    value: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.threshold) and math.isfinite(self.value)):
            raise ValueError(f"threshold and value must be finite, got {self.threshold!r} and {self.value!r}")

    @property
    def corners(self) -> tuple[float, ...]:
        """See :class:`Quadrature`."""
        return (float(self.threshold),)

    @property
    def jumps(self) -> tuple[Jump, ...]:
        """See :class:`Quadrature`."""
        place, before = float(self.threshold), float(self.value)
        return () if place == before else ((place, 0.0, place - before),)

    def from_flat(self, x: Tensor) -> Tensor:
        """See :class:`Quadrature`."""
        return torch.where(x > self.threshold, x - self.value, torch.zeros_like(x))

    def function(self, x: Tensor) -> Tensor:
        """f(x), elementwise."""
        return F.threshold(x, self.threshold, self.value)

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise, but for the jump; at it the derivative from the right."""
        return (x >= self.threshold).to(x.dtype)
