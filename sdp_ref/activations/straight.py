"""Continuous piecewise linear functions: clips and the absolute value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.base import module_of
from sdp_ref.activations.numerics.quadrature import Jump
from sdp_ref.activations.pointwise import PiecewiseLinear, Straight
from sdp_ref.errors import NoFormulaError


@dataclass(frozen=True)
class Hardtanh(Straight):
    """min(max(x, min_val), max_val) with min_val < max_val, either of which may be infinite."""

    name: ClassVar[str] = "hardtanh"
    label: ClassVar[str] = "Hardtanh"
    module: ClassVar[type[nn.Module]] = nn.Hardtanh
    ops: ClassVar[tuple[str, ...]] = ("hardtanh", "clamp", "clamp_min", "clamp_max", "clip")
    kinks: ClassVar[tuple[float, ...]] = (-1.0, 1.0)
    min_val: float = -1.0
    max_val: float = 1.0

    def __post_init__(self) -> None:
        if not (_are_numbers(self.min_val, self.max_val) and self.min_val < self.max_val):
            raise ValueError(f"min_val must be below max_val, got {self.min_val!r} and {self.max_val!r}")

    @classmethod
    def from_op(cls, name: str, *args: Any, **kwargs: Any) -> nn.Module:
        """Clamps may have one or two bounds, which must be numbers."""
        if name == "hardtanh":
            return super().from_op(name, *args, **kwargs)
        names = {"clamp_min": ("min",), "clamp_max": ("max",)}.get(name, ("min", "max"))
        bounds = {**dict(zip(names, args, strict=False)), **kwargs}
        low, high = bounds.get("min"), bounds.get("max")
        low, high = -math.inf if low is None else low, math.inf if high is None else high
        if not _are_numbers(low, high):
            raise NoFormulaError(f"{name} with a bound that is not a number")
        if not low < high:
            raise NoFormulaError(f"{name} from {low} to {high}")
        return nn.Hardtanh(low, high).eval()

    @property
    def corners(self) -> tuple[float, ...]:
        return tuple(float(x) for x in (self.min_val, self.max_val) if math.isfinite(x))

    @property
    def slopes(self) -> tuple[float, ...]:
        slopes = [1.0]
        if math.isfinite(self.min_val):
            slopes.insert(0, 0.0)
        if math.isfinite(self.max_val):
            slopes.append(0.0)
        return tuple(slopes)

    def function(self, x: Tensor) -> Tensor:
        return x.clamp(self.min_val, self.max_val)


@dataclass(frozen=True)
class ReLU6(Straight):
    """min(max(x, 0), 6)."""

    name: ClassVar[str] = "relu6"
    label: ClassVar[str] = "ReLU6"
    module: ClassVar[type[nn.Module]] = nn.ReLU6
    kinks: ClassVar[tuple[float, ...]] = (0.0, 6.0)
    slopes: ClassVar[tuple[float, ...]] = (0.0, 1.0, 0.0)

    def function(self, x: Tensor) -> Tensor:
        return x.clamp(0, 6)


@dataclass(frozen=True)
class Hardsigmoid(Straight):
    """min(max(x / 6 + 1 / 2, 0), 1)."""

    name: ClassVar[str] = "hardsigmoid"
    label: ClassVar[str] = "Hardsigmoid"
    module: ClassVar[type[nn.Module]] = nn.Hardsigmoid
    kinks: ClassVar[tuple[float, ...]] = (-3.0, 3.0)
    slopes: ClassVar[tuple[float, ...]] = (0.0, 1 / 6, 0.0)

    def function(self, x: Tensor) -> Tensor:
        return (x + 3).clamp(0, 6) / 6


Abs = module_of(__name__, "Abs", torch.abs)


@dataclass(frozen=True)
class Absolute(Straight):
    """The absolute value; exactly scale equivariant."""

    name: ClassVar[str] = "abs"
    label: ClassVar[str] = "abs"
    module: ClassVar[type[nn.Module]] = Abs
    kinks: ClassVar[tuple[float, ...]] = (0.0,)
    slopes: ClassVar[tuple[float, ...]] = (-1.0, 1.0)


def _are_numbers(*values: object) -> bool:
    return all(isinstance(v, int | float) and not math.isnan(v) for v in values)


@dataclass(frozen=True)
class _Shrink(PiecewiseLinear):
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


@dataclass(frozen=True)
class Hardshrink(_Shrink):
    """x, and 0 within lambd of 0."""

    name: ClassVar[str] = "hardshrink"
    label: ClassVar[str] = "Hardshrink"
    module: ClassVar[type[nn.Module]] = nn.Hardshrink

    @property
    def jumps(self) -> tuple[Jump, ...]:
        edge = float(self.lambd)
        return ((-edge, -edge, 0.0), (edge, 0.0, edge)) if edge else ()


@dataclass(frozen=True)
class Threshold(PiecewiseLinear):
    """x above a threshold, and a constant up to it."""

    name: ClassVar[str] = "threshold"
    label: ClassVar[str] = "Threshold"
    module: ClassVar[type[nn.Module]] = nn.Threshold
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
        threshold, before = float(self.threshold), float(self.value)
        return () if threshold == before else ((threshold, 0.0, threshold - before),)

    def from_flat(self, x: Tensor) -> Tensor:
        return torch.where(x > self.threshold, x - self.value, torch.zeros_like(x))
