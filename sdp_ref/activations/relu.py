"""ReLU, leaky ReLU and PReLU: closed forms throughout."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.activations.base import Activation
from sdp_ref.activations.numerics.normal import cdf, ramp_covariance, ramp_moments, repeated_integrals
from sdp_ref.errors import NoFormulaError


@dataclass(frozen=True)
class LeakyReLU(Activation):
    """max(x, 0) + a min(x, 0) with a = `negative_slope`; moments are closed forms and scale equivariant."""

    name: ClassVar[str] = "leaky_relu"
    label: ClassVar[str] = "Leaky-ReLU"
    rank: ClassVar[int] = 20
    module: ClassVar[type[nn.Module]] = nn.LeakyReLU
    kinks: ClassVar[tuple[float, ...]] = (0.0,)
    homogeneous: ClassVar[bool] = True
    short: ClassVar[bool] = True
    value_seconds: ClassVar[float] = 0.2e-9
    layer_seconds: ClassVar[float] = 0.002
    negative_slope: float = 0.01

    def __post_init__(self) -> None:
        slope = self.negative_slope
        if not (isinstance(slope, int | float) and math.isfinite(slope)):
            raise ValueError(f"negative_slope must be a finite number, got {slope!r}")

    def _slope(self, x: Tensor) -> Any:  # noqa: ARG002
        """Return a for values of the shape of `x`: a number, or a tensor that broadcasts against them."""
        return self.negative_slope

    def function(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.negative_slope) if self.negative_slope else F.relu(x)

    def derivative(self, x: Tensor) -> Tensor:
        return torch.where(x >= 0, torch.ones_like(x), self._slope(x))

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        a = self._slope(mean)
        point = variance == 0
        s = torch.where(point, 1.0, variance).sqrt()
        h = mean / s
        away = torch.where(mean > 0, -h, h)
        # `spread`, I_1(-abs(h)), is the difference between the mean of the ramp and the ramp of the mean. It
        # is small where the kink is in the tail, so it is not computed as this difference.
        beyond, spread, half = repeated_integrals(away)
        m = self.function(mean) + (1 - a) * s * spread
        # Phi(h) - S(h) S(-h) cancels for h < 0, E[(h + Z)_+^2] - S(h)^2 for h > 0
        left = 2 * half - spread * spread
        above = torch.where(mean > 0, 1 - beyond, beyond)
        right = above - (h + spread) * spread
        ramp = torch.where(mean > 0, right, left)
        v = a * a * variance + (1 - a) * variance * (2 * a * above + (1 - a) * ramp)
        linear = self.derivative(mean) ** 2 * variance
        return torch.where(point, self.function(mean), m), torch.where(point, linear, v)

    def _short_mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        slope = self._slope(mean)
        if not isinstance(slope, Tensor) and slope == 0:
            return ramp_moments(mean, variance)
        a = torch.as_tensor(slope, dtype=mean.dtype, device=mean.device)
        # The part on the other side of the kink from the mean: small terms there are not computed as
        # differences.
        away = torch.where(mean > 0, -mean, mean)
        gain, spread = ramp_moments(away, variance)
        point = variance == 0
        h = away / torch.where(point, 1.0, variance).sqrt()
        beyond = torch.where(point, (away >= 0).to(h.dtype), cdf(h))
        near, bend = torch.where(mean > 0, 1.0, a), torch.where(mean > 0, a - 1, 1 - a)
        m = self.function(mean) + (1 - a) * gain
        return m, near * near * variance + bend * (2 * near * variance * beyond + bend * spread)

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        a, point = self._slope(mean), variance == 0
        h = mean / torch.where(point, 1.0, variance).sqrt()
        return torch.where(point, self.derivative(mean), a + (1 - a) * cdf(h))

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, _tolerance: float) -> Tensor:
        return ramp_covariance(mean, variance, covariance, (self.negative_slope, 1.0))


@dataclass(frozen=True, eq=False)
class PReLU(LeakyReLU):
    """max(x, 0) + a min(x, 0) with learned a. Moments are closed forms; gradients flow to the slopes as well.

    Parameters
    ----------
    weight : float or Tensor, shape (1,) or (C,)
        a, or one a per channel of values (B, C, ...).
    """

    name: ClassVar[str] = "prelu"
    label: ClassVar[str] = "PReLU"
    rank: ClassVar[int] = 100
    module: ClassVar[type[nn.Module]] = nn.PReLU
    ops: ClassVar[tuple[str, ...]] = ("prelu", "_prelu_kernel")
    negative_slope: float = field(default=0.0, init=False, repr=False)
    weight: float | Tensor = 0.25

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PReLU):
            return NotImplemented
        a, b = self.weight, other.weight
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
            return a is b or (type(a), a) == (type(b), b)
        return a is b or (not a.requires_grad and not b.requires_grad and torch.equal(a, b))

    def __hash__(self) -> int:
        return hash((PReLU, self.weight.shape if isinstance(self.weight, Tensor) else self.weight))

    @classmethod
    def from_op(cls, name: str, weight: Any) -> nn.Module:
        """The module holds the given tensor itself, with its graph."""
        if not isinstance(weight, Tensor):
            raise NoFormulaError(f"{name} with slopes that are no tensor")
        module = nn.PReLU(weight.numel(), device="meta")
        del module.weight
        setattr(module, "weight", weight.reshape(-1))  # noqa: B010  # a traced one is of shape (1, C, 1, 1)
        return module.eval()

    def build(self) -> nn.Module:
        weight = torch.as_tensor(self.weight).reshape(-1)
        module = nn.PReLU(weight.numel(), dtype=weight.dtype if weight.is_floating_point() else None)
        with torch.no_grad():
            module.weight.copy_(weight)
        return module

    @property
    def uniform(self) -> bool:
        return not isinstance(self.weight, Tensor) or self.weight.numel() == 1

    def flattened(self, event: torch.Size) -> PReLU:
        if self.uniform:
            return self
        return replace(self, weight=self._slope(torch.empty(1, *event)).expand(1, *event).flatten())

    def _slope(self, x: Tensor) -> Any:
        if not isinstance(self.weight, Tensor):
            return self.weight
        weight = self.weight.to(x.dtype)
        return weight.reshape(-1, *[1] * (x.ndim - 2))

    def function(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x, self._slope(x) * x)

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, _tolerance: float) -> Tensor:
        slope = torch.as_tensor(self._slope(mean), dtype=mean.dtype, device=mean.device)
        return ramp_covariance(mean, variance, covariance, (slope.expand(mean.shape[-1]), 1.0))


@dataclass(frozen=True)
class ReLU(LeakyReLU):
    """max(x, 0)."""

    name: ClassVar[str] = "relu"
    label: ClassVar[str] = "ReLU"
    rank: ClassVar[int] = 10
    module: ClassVar[type[nn.Module]] = nn.ReLU
    value_seconds: ClassVar[float] = 0.0  # computed in place while the product of the layer is in cache
    negative_slope: float = field(default=0.0, init=False)
