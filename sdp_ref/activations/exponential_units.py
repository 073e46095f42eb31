"""The exponential linear units: ELU, SELU and CELU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.pointwise import Quadrature
from sdp_ref.errors import NoFormulaError

_SELU_SCALE = 1.0507009873554804934193349852946
_SELU_ALPHA = 1.6732632423543772848170429916717


@dataclass(frozen=True)
class _Unit(Quadrature):
    """scale x for x > 0, and scale depth (exp(x / unit) - 1) below."""

    @property
    def scale(self) -> float:
        """Slope for x > 0."""
        return 1.0

    @property
    def depth(self) -> float:
        """Limit for x -> -inf, divided by -scale."""
        return 1.0

    def from_flat(self, x: Tensor) -> Tensor:
        """On the left it tends to -scale depth."""
        below = self.depth * torch.exp(x.clamp(max=0) / self.unit)
        return self.scale * torch.where(x > 0, x + self.depth, below)

    def function(self, x: Tensor) -> Tensor:
        below = self.depth * torch.expm1(x.clamp(max=0) / self.unit)
        return self.scale * torch.where(x > 0, x, below)

    def derivative(self, x: Tensor) -> Tensor:
        below = self.depth / self.unit * torch.exp(x.clamp(max=0) / self.unit)
        return self.scale * torch.where(x >= 0, torch.ones_like(x), below)


@dataclass(frozen=True)
class ELU(_Unit):
    """x for x > 0, and alpha (exp(x) - 1) below."""

    name: ClassVar[str] = "elu"
    label: ClassVar[str] = "ELU"
    module: ClassVar[type[nn.Module]] = nn.ELU
    ops: ClassVar[tuple[str, ...]] = ("elu",)
    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.alpha):
            raise ValueError(f"alpha must be a finite number, got {self.alpha!r}")

    @classmethod
    def from_op(
        cls, name: str, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
    ) -> nn.Module:
        """SELU and CELU are this operator with other arguments."""
        if scale == input_scale == 1:
            return nn.ELU(alpha).eval()
        if input_scale == 1 and math.isclose(scale, _SELU_SCALE) and math.isclose(alpha, _SELU_ALPHA):
            return nn.SELU().eval()
        if scale == 1 and math.isclose(alpha * input_scale, 1.0):
            return nn.CELU(alpha).eval()
        raise NoFormulaError(f"{name} of alpha {alpha}, scale {scale} and input scale {input_scale}")

    @property
    def depth(self) -> float:
        return self.alpha


@dataclass(frozen=True)
class SELU(_Unit):
    """ELU with the scale and depth that keep mean 0 and variance 1 (Klambauer et al. 2017)."""

    name: ClassVar[str] = "selu"
    label: ClassVar[str] = "SELU"
    module: ClassVar[type[nn.Module]] = nn.SELU
    ops: ClassVar[tuple[str, ...]] = ("selu",)
    kinks: ClassVar[tuple[float, ...]] = (0.0,)
    scale: ClassVar[float] = _SELU_SCALE
    depth: ClassVar[float] = _SELU_ALPHA


@dataclass(frozen=True)
class CELU(_Unit):
    """x for x > 0, and alpha (exp(x / alpha) - 1) below, for alpha > 0."""

    name: ClassVar[str] = "celu"
    label: ClassVar[str] = "CELU"
    module: ClassVar[type[nn.Module]] = nn.CELU
    ops: ClassVar[tuple[str, ...]] = ("celu",)
    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            raise ValueError(f"alpha must be a finite number above 0, got {self.alpha!r}")

    @property
    def depth(self) -> float:
        return self.alpha

    @property
    def unit(self) -> float:
        return self.alpha
