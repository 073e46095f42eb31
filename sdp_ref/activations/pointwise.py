"""Non-linearities whose moments are quadratures, and with them any function of one value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.base import Activation
from sdp_ref.activations.numerics.covariances import ramp_covariance
from sdp_ref.activations.numerics.curves import (
    KNOTS,
    PANELS,
    Curve,
    Jump,
    curve_covariance,
    curve_mean_derivative,
    curve_mean_variance,
    curve_misfit,
)
from sdp_ref.errors import NoFormulaForLawError

_AGREEMENT = 1e-8
_MISFIT = 1e-4  # of the output's deviation; what a jump that is not known of moves is less than its square
_LOST = 1e-9  # of the value at the mean, which rounding may take
_REACH = 9.0  # deviations


@dataclass(frozen=True)
class Quadrature(Activation):
    """A function of one value whose moments come from itself, its derivative and the places where it bends.

    Means and variances are relatively accurate to about 1e-11, also where the function is nearly constant or
    nearly linear. Covariances are to the `tolerance` asked for. Gradients by mean and covariance are exact to
    first order; there are none of second order.
    """

    bends: ClassVar[tuple[float, ...]] = (0.0,)
    """Where it bends; see :class:`Curve`."""
    knots: ClassVar[tuple[float, ...]] = KNOTS
    """How far from its bends it still bends, in :attr:`unit`."""
    layer_seconds: ClassVar[float] = 0.1

    @property
    def corners(self) -> tuple[float, ...]:
        """Where it has two slopes, which :attr:`kinks` says of its usual parameters."""
        return self.kinks

    @property
    def jumps(self) -> tuple[Jump, ...]:
        """Where it has two values."""
        return ()

    @property
    def unit(self) -> float:
        """Width of its bends."""
        return 1.0

    def from_flat(self, x: Tensor) -> Tensor:
        """f(x) less a constant: what f tends to on one side, if it tends to something other than 0 there."""
        return self.function(x)

    @property
    def curve(self) -> Curve:
        """What the quadrature goes by."""
        places = (place for place, _, _ in self.jumps)
        bends = tuple(sorted({*self.bends, *self.corners, *places}))
        return Curve(self.from_flat, self.derivative, bends, self.jumps, self.unit, self.knots)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        point = variance == 0
        shift, v = curve_mean_variance(self.curve, mean, torch.where(point, 1.0, variance))
        m = self.function(mean.detach()) + shift
        linear = self.derivative(mean) ** 2 * variance
        return torch.where(point, self.function(mean), m), torch.where(point, linear, v)

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        point = variance == 0
        slope = curve_mean_derivative(self.curve, mean, torch.where(point, 1.0, variance))
        return torch.where(point, self.derivative(mean), slope)

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, tolerance: float) -> Tensor:
        outputs = self._mean_variance(mean.detach(), variance.detach())[1]
        return curve_covariance(self.curve, mean, variance, covariance, outputs, tolerance)


@dataclass(frozen=True)
class Pieces(Quadrature):
    """A function of straight pieces, which may jump between them."""

    bends: ClassVar[tuple[float, ...]] = ()
    layer_seconds: ClassVar[float] = 0.3

    @property
    def slopes(self) -> tuple[float, ...]:
        """Of the pieces, from left to right: one more than :attr:`corners`."""
        raise NotImplementedError

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise, but for jumps; the right derivative at a corner."""
        corners = torch.tensor(self.corners, dtype=x.dtype, device=x.device)
        slopes = torch.tensor(self.slopes, dtype=x.dtype, device=x.device)
        return slopes[torch.bucketize(x.detach().contiguous(), corners, right=True)]


@dataclass(frozen=True)
class Straight(Pieces):
    """A continuous function of straight pieces: covariances are sums of those of ramps, exact to 1e-11."""

    bends: ClassVar[tuple[float, ...]] = (0.0,)
    layer_seconds: ClassVar[float] = 0.015

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, _tolerance: float) -> Tensor:
        return ramp_covariance(mean, variance, covariance, self.slopes, self.corners)


class Apply(nn.Module):
    """A function of one value, applied elementwise.

    Parameters
    ----------
    call : callable
        The function, of a tensor of any shape.
    kinks : sequence of float
        Where it has two slopes, or two values.
    text : str, optional
        What it is called in messages; by default the name of the function.
    """

    def __init__(
        self, call: Callable[[Tensor], Tensor], kinks: Sequence[float] = (), text: str | None = None
    ) -> None:
        super().__init__()
        self.call = call
        self.kinks = tuple(kinks)
        self.text = text or getattr(call, "__name__", type(call).__name__)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return self.call(x)


@dataclass(frozen=True)
class Pointwise(Quadrature):
    """Any function of one value: moments by quadrature, derivatives by autograd.

    The quadrature is done a second time with twice as many panels. Where the means or the standard deviations
    of the two differ by more than 1e-8 of the larger of the input's and the output's standard deviation, or
    are not finite, it is refused: the function bends where `places` does not say so, or grows too fast. So it
    is where its slope does not add up to it: it jumps elsewhere; and next to a place where it is infinite.

    Parameters
    ----------
    call : callable
        The function, of a tensor of any shape; differentiable by autograd.
    places : tuple of float
        Where it has two slopes or two values, or bends within less than about 1.
    text : str
        What it is called in messages.
    """

    module: ClassVar[type[nn.Module]] = Apply
    label: ClassVar[str] = "a function of one value"
    call: Callable[[Tensor], Tensor] = torch.nn.functional.softplus
    places: tuple[float, ...] = ()
    text: str = "a function of one value"

    @classmethod
    def of(cls, module: nn.Module) -> Pointwise:
        return cls(module.call, module.kinks, module.text)  # type: ignore[arg-type]  # attributes of an Apply

    def build(self) -> nn.Module:
        return Apply(self.call, self.places, self.text)

    @property
    def corners(self) -> tuple[float, ...]:
        return self.places

    @property
    def jumps(self) -> tuple[Jump, ...]:
        """Where the values next to a place differ."""
        return tuple(
            (place, left, right)
            for place, left, right in self._sides()
            if abs(right - left) > 1e-12 * max(1.0, abs(left), abs(right))
        )

    def _sides(self) -> list[Jump]:
        """Each of `places`, with the values next to it."""
        found = []
        for place in self.places:
            beside = torch.tensor([place] * 2, dtype=torch.float64)
            ends = torch.tensor([-torch.inf, torch.inf], dtype=torch.float64)
            left, right = self.call(torch.nextafter(beside, ends)).tolist()
            found.append((place, left, right))
        return found

    def function(self, x: Tensor) -> Tensor:
        """f(x), elementwise."""
        return self.call(x)

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise; at one of `places` the derivative from the right."""
        at = x.detach().clone()
        for place in self.places:
            just = torch.nextafter(at, torch.full_like(at, torch.inf))
            at = torch.where(at == place, just, at)
        with torch.enable_grad():
            at.requires_grad_()
            y = self.call(at)
            if not y.requires_grad:
                return torch.zeros_like(x)
            (slope,) = torch.autograd.grad(y.sum(), at)
        return slope

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        m, v = super()._mean_variance(mean, variance)
        with torch.no_grad():
            wide = torch.where(variance == 0, 1.0, variance)
            finer = replace(self.curve, panels=2 * PANELS)
            shift, again = curve_mean_variance(finer, mean, wide)
            largest = (again / wide).sqrt() + _AGREEMENT
            apart = (self.function(mean) + shift - m).abs() + (again.sqrt() - v.sqrt()).abs()
            agree = apart <= _AGREEMENT * wide.sqrt() * largest.clamp(min=1)
            agree &= curve_misfit(finer, mean, wide) <= _MISFIT * again.sqrt() + _LOST * m.abs()
            for place, left, right in self._sides():
                if not (math.isfinite(left) and math.isfinite(right)):
                    agree &= (mean - place).abs() > _REACH * wide.sqrt()
        if not bool((agree | (variance == 0)).all()):
            raise NoFormulaForLawError(f"moments of {self.text}, which its quadrature does not settle")
        return m, v

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        slope = super()._mean_derivative(mean, variance)
        with torch.no_grad():  # Cacoullos (1982): E[f'(X)]^2 Var X is no more than Var f(X)
            most = super()._mean_variance(mean, variance)[1]
            agree = slope.square() * variance <= (1 + _MISFIT) * most + _AGREEMENT**2 * variance
        if not bool(agree.all()):
            raise NoFormulaForLawError(
                f"the mean derivative of {self.text}, which its quadrature does not settle"
            )
        return slope
