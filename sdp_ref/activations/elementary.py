"""Elementary functions with closed-form moments, and powers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.base import Activation, module_of
from sdp_ref.activations.numerics.quadrature import PANELS, Curve
from sdp_ref.activations.pointwise import Quadrature
from sdp_ref.activations.roots import Reciprocal, Rsqrt, Sqrt
from sdp_ref.errors import NoFormulaError

Exp = module_of(__name__, "Exp", torch.exp)
Square = module_of(__name__, "Square", torch.square)
Sin = module_of(__name__, "Sin", torch.sin)
Cos = module_of(__name__, "Cos", torch.cos)


class Power(nn.Module):
    """x^exponent, elementwise, for a whole exponent."""

    def __init__(self, exponent: int) -> None:
        super().__init__()
        self.exponent = exponent

    def forward(self, x: Tensor) -> Tensor:
        return x**self.exponent


@dataclass(frozen=True)
class _Closed(Activation):
    """A function with closed-form moments and pairwise covariances."""

    layer_seconds: ClassVar[float] = 0.002

    def _mean(self, mean: Tensor, variance: Tensor) -> Tensor:
        raise NotImplementedError

    def _pair(self, m: Tensor, n: Tensor, v: Tensor, w: Tensor, c: Tensor) -> Tensor:
        """Cov(f(X), f(Y)) for means m and n, variances v and w and covariance c."""
        raise NotImplementedError

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        return self._mean(mean, variance), self._pair(mean, mean, variance, variance, variance)

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, _tolerance: float) -> Tensor:
        symmetric = 0.5 * covariance + 0.5 * covariance.mT
        spread = (variance[:, :, None] * variance[:, None, :]).detach().sqrt()
        within = symmetric + (torch.maximum(torch.minimum(symmetric, spread), -spread) - symmetric).detach()
        i, j = (mean[:, :, None], variance[:, :, None]), (mean[:, None, :], variance[:, None, :])
        c = self._pair(i[0], j[0], i[1], j[1], within)
        return 0.5 * c + 0.5 * c.mT


@dataclass(frozen=True)
class Exponential(_Closed):
    """exp(x), with the moments of the log-normal law; they overflow for large variances."""

    name: ClassVar[str] = "exp"
    label: ClassVar[str] = "exp"
    module: ClassVar[type[nn.Module]] = Exp

    def derivative(self, x: Tensor) -> Tensor:
        return x.exp()

    def curve_of(self, deviation: Tensor) -> Curve:  # noqa: ARG002
        # a bend far to the right extends the range to where exp(2 s u) pdf(u) is largest, u = 2 s
        return Curve(self.function, self.derivative, bends=(1e9,))

    def _mean(self, mean: Tensor, variance: Tensor) -> Tensor:
        return torch.exp(mean + variance / 2)

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        return self._mean(mean, variance)

    def _pair(self, m: Tensor, n: Tensor, v: Tensor, w: Tensor, c: Tensor) -> Tensor:
        # for a large point mass the product of the means may overflow, but its covariance is 0
        both = m + n + (v + w) / 2
        return torch.where(c == 0, torch.exp(both.clamp(max=700)) * c, torch.exp(both) * torch.expm1(c))


@dataclass(frozen=True)
class Squaring(_Closed):
    """x^2, elementwise. E = m^2 + v, Var = 4 m^2 v + 2 v^2, Cov = 4 m_i m_j c + 2 c^2."""

    name: ClassVar[str] = "square"
    label: ClassVar[str] = "square"
    module: ClassVar[type[nn.Module]] = Square

    def derivative(self, x: Tensor) -> Tensor:
        return 2 * x

    def _mean(self, mean: Tensor, variance: Tensor) -> Tensor:
        return mean.square() + variance

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:  # noqa: ARG002
        return 2 * mean

    def _pair(self, m: Tensor, n: Tensor, v: Tensor, w: Tensor, c: Tensor) -> Tensor:  # noqa: ARG002
        return 4 * m * n * c + 2 * c * c


@dataclass(frozen=True)
class Sine(_Closed):
    """sin(x), elementwise; its moments follow from E exp(i X) = exp(i m - v / 2)."""

    name: ClassVar[str] = "sin"
    label: ClassVar[str] = "sin"
    module: ClassVar[type[nn.Module]] = Sin

    def derivative(self, x: Tensor) -> Tensor:
        return x.cos()

    def curve_of(self, deviation: Tensor) -> Curve:
        return _wave(self, deviation)

    def _mean(self, mean: Tensor, variance: Tensor) -> Tensor:
        return mean.sin() * torch.exp(-variance / 2)

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        return mean.cos() * torch.exp(-variance / 2)

    def _pair(self, m: Tensor, n: Tensor, v: Tensor, w: Tensor, c: Tensor) -> Tensor:
        odd, even = _damped(v, w, c)
        return m.cos() * n.cos() * odd + m.sin() * n.sin() * even


@dataclass(frozen=True)
class Cosine(_Closed):
    """cos(x), elementwise; its moments follow from E exp(i X) = exp(i m - v / 2)."""

    name: ClassVar[str] = "cos"
    label: ClassVar[str] = "cos"
    module: ClassVar[type[nn.Module]] = Cos

    def derivative(self, x: Tensor) -> Tensor:
        return -x.sin()

    def curve_of(self, deviation: Tensor) -> Curve:
        return _wave(self, deviation)

    def _mean(self, mean: Tensor, variance: Tensor) -> Tensor:
        return mean.cos() * torch.exp(-variance / 2)

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        return -mean.sin() * torch.exp(-variance / 2)

    def _pair(self, m: Tensor, n: Tensor, v: Tensor, w: Tensor, c: Tensor) -> Tensor:
        odd, even = _damped(v, w, c)
        return m.sin() * n.sin() * odd + m.cos() * n.cos() * even


_WAVE = 4.0
"""Largest standard deviation for which the usual number of panels resolves a sine."""


def _wave(activation: Activation, deviation: Tensor) -> Curve:
    """Curve of a sine or cosine, with panels in proportion to the number of periods."""
    periods = math.ceil(float(deviation.max()) / _WAVE) if deviation.numel() else 1
    panels = PANELS * max(1, periods)
    return Curve(activation.function, activation.derivative, bends=(), panels=panels)


def _damped(v: Tensor, w: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """exp(-(v + w) / 2) times sinh(c) and cosh(c) - 1, which would overflow without the factor."""
    sign = torch.where(c < 0, -1.0, 1.0)
    size = c * sign
    rest = -torch.expm1(-size)
    # exp(size - (v + w) / 2) / 2; both are this factor times a sum of positive terms
    half = 0.5 * torch.exp(size - (v + w) / 2)
    return sign * half * rest * (2 - rest), half * rest * rest


@dataclass(frozen=True)
class Powers(Quadrature):
    """x^n, elementwise, for a whole n of at least 1 (`Square` is the formula for 2)."""

    name: ClassVar[str] = "power"
    label: ClassVar[str] = "power"
    module: ClassVar[type[nn.Module]] = Power
    ops: ClassVar[tuple[str, ...]] = ("pow.Tensor_Scalar",)
    bends: ClassVar[tuple[float, ...]] = ()
    exponent: int = 3

    def __post_init__(self) -> None:
        if not (isinstance(self.exponent, int) and self.exponent > 0):
            raise ValueError(f"exponent must be an integer above 0, got {self.exponent!r}")

    @classmethod
    def from_op(cls, name: str, exponent: Any) -> nn.Module:
        """Return the module of x ** exponent.

        Raises NoFormulaError unless the exponent is a whole number of at least 1, or 1/2, -1/2 or -1.
        """
        special_modules = {2: Square, 0.5: Sqrt, -0.5: Rsqrt, -1: Reciprocal}
        if not isinstance(exponent, int | float):
            raise NoFormulaError(f"{name} with an exponent that is not a number")
        if exponent in special_modules:
            return special_modules[exponent]().eval()
        # is_integer is False for infinity and NaN
        if not (exponent >= 1 and float(exponent).is_integer()):
            raise NoFormulaError(f"x ** {exponent}")
        return Power(int(exponent)).eval()

    def derivative(self, x: Tensor) -> Tensor:
        return self.exponent * x ** (self.exponent - 1)


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
    kinks: ClassVar[tuple[float, ...]] = (0.0,)
    scale: ClassVar[float] = _SELU_SCALE
    depth: ClassVar[float] = _SELU_ALPHA


@dataclass(frozen=True)
class CELU(_Unit):
    """x for x > 0, and alpha (exp(x / alpha) - 1) below, for alpha > 0."""

    name: ClassVar[str] = "celu"
    label: ClassVar[str] = "CELU"
    module: ClassVar[type[nn.Module]] = nn.CELU
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
