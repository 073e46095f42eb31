"""Continuous piecewise linear functions: clips and the absolute value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from sdp_ref.activations.pointwise import Straight
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
            raise NoFormulaError(f"{name} with a bound that is no number")
        if not low < high:
            raise NoFormulaError(f"{name} from {low} to {high}")
        return nn.Hardtanh(low, high).eval()

    @property
    def corners(self) -> tuple[float, ...]:
        return tuple(float(x) for x in (self.min_val, self.max_val) if math.isfinite(x))

    @property
    def slopes(self) -> tuple[float, ...]:
        below = (0.0,) if math.isfinite(self.min_val) else ()
        return (*below, 1.0, *((0.0,) if math.isfinite(self.max_val) else ()))

    def function(self, x: Tensor) -> Tensor:
        return x.clamp(self.min_val, self.max_val)


@dataclass(frozen=True)
class ReLU6(Straight):
    """min(max(x, 0), 6)."""

    name: ClassVar[str] = "relu6"
    label: ClassVar[str] = "ReLU6"
    module: ClassVar[type[nn.Module]] = nn.ReLU6
    ops: ClassVar[tuple[str, ...]] = ("relu6",)
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
    ops: ClassVar[tuple[str, ...]] = ("hardsigmoid",)
    kinks: ClassVar[tuple[float, ...]] = (-3.0, 3.0)
    slopes: ClassVar[tuple[float, ...]] = (0.0, 1 / 6, 0.0)

    def function(self, x: Tensor) -> Tensor:
        return (x + 3).clamp(0, 6) / 6


class Abs(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


@dataclass(frozen=True)
class Absolute(Straight):
    """The absolute value; exactly scale equivariant."""

    name: ClassVar[str] = "abs"
    label: ClassVar[str] = "abs"
    module: ClassVar[type[nn.Module]] = Abs
    ops: ClassVar[tuple[str, ...]] = ("abs",)
    kinks: ClassVar[tuple[float, ...]] = (0.0,)
    slopes: ClassVar[tuple[float, ...]] = (-1.0, 1.0)

    def function(self, x: Tensor) -> Tensor:
        return x.abs()


def _are_numbers(*values: object) -> bool:
    return all(isinstance(v, int | float) and not math.isnan(v) for v in values)
