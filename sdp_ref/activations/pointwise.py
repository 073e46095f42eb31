"""Non-linearities whose moments are computed by quadrature, including user functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.base import (
    Activation,
    differentiating,
    on_the_right,
    with_right_derivative,
)
from sdp_ref.activations.numerics.normal import ramp_covariance
from sdp_ref.activations.numerics.quadrature import (
    KNOTS,
    PANELS,
    Curve,
    Jump,
    Units,
    curve_covariance,
    curve_mean_derivative,
    curve_mean_variance,
    curve_misfit,
)
from sdp_ref.errors import NoFormulaForLawError

_AGREEMENT = 1e-8
# relative to the output's standard deviation; an undeclared jump changes moments by less than its square
_MISFIT = 1e-4
_LOST = 1e-9  # relative to the value at the mean: allowance for rounding
_REACH = 9.0  # standard deviations


@dataclass(frozen=True)
class Quadrature(Activation):
    """A scalar function whose moments are computed by quadrature.

    The quadrature uses the values of the function, its derivative and the points where it bends. Means and
    variances have a relative error of about 1e-11, including where the function is nearly constant or nearly
    linear. Covariances have the requested `tolerance`. Gradients with respect to mean and covariance are
    exact to first order; second-order gradients are not available.
    """

    bends: ClassVar[tuple[float, ...]] = (0.0,)
    """Points where it bends; see :class:`Curve`."""
    knots: ClassVar[tuple[float, ...]] = KNOTS
    """Further panel edges, as distances from the outermost bends in :attr:`unit`."""
    layer_seconds: ClassVar[float] = 0.1

    @property
    def corners(self) -> tuple[float, ...]:
        """Points with different one-sided derivatives, unlike :attr:`kinks` for the actual parameters."""
        return self.kinks

    @property
    def jumps(self) -> tuple[Jump, ...]:
        """Points with different one-sided limits."""
        return ()

    @property
    def unit(self) -> float:
        return 1.0

    def from_flat(self, x: Tensor) -> Tensor:
        """f(x) minus its limit on one side, if that is not 0."""
        return self.function(x)

    @property
    def curve(self) -> Curve:
        jump_locations = [location for location, _, _ in self.jumps]
        bends = tuple(sorted({*self.bends, *self.corners, *jump_locations}))
        return Curve(self.from_flat, self.derivative, bends, self.jumps, self.unit, self.knots)

    def curve_of(self, deviation: Tensor) -> Curve:  # noqa: ARG002
        return self.curve

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
        return curve_covariance(Units(self.curve, mean, variance, outputs), covariance, tolerance)


@dataclass(frozen=True)
class PiecewiseLinear(Quadrature):
    """A piecewise linear function, which may jump between pieces."""

    bends: ClassVar[tuple[float, ...]] = ()
    layer_seconds: ClassVar[float] = 0.3

    @property
    def slopes(self) -> tuple[float, ...]:
        """Slopes of the pieces from left to right: one more than :attr:`corners`."""
        raise NotImplementedError

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise and without jumps; the right derivative at a corner."""
        corners = torch.tensor(self.corners, dtype=x.dtype, device=x.device)
        slopes = torch.tensor(self.slopes, dtype=x.dtype, device=x.device)
        return slopes[torch.bucketize(x.detach().contiguous(), corners, right=True)]


@dataclass(frozen=True)
class Straight(PiecewiseLinear):
    """A continuous piecewise linear function; covariances are sums of those of ramps, exact to 1e-11."""

    layer_seconds: ClassVar[float] = 0.015

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, _tolerance: float) -> Tensor:
        return ramp_covariance(mean, variance, covariance, self.slopes, self.corners)


class Apply(nn.Module):
    """Apply a scalar function elementwise, with the derivative from the right at kinks.

    Parameters
    ----------
    call : callable
        The function of a tensor of any shape.
    kinks : sequence of float
        Points with different one-sided derivatives or limits.
    text : str, optional
        Name in messages; by default that of the function.
    """

    def __init__(
        self, call: Callable[[Tensor], Tensor], kinks: Sequence[float] = (), text: str | None = None
    ) -> None:
        super().__init__()
        self.call = call
        self.kinks = tuple(kinks)
        self.text = text or getattr(call, "__name__", type(call).__name__)

    def forward(self, x: Tensor) -> Tensor:
        value = self.call(x)
        if not (self.kinks and differentiating()):
            return value
        return with_right_derivative(value, self.call(on_the_right(x)), _at_one_of(self.kinks, x))


def _at_one_of(points: Sequence[float], x: Tensor) -> Tensor:
    at = torch.zeros_like(x, dtype=torch.bool)
    for point in points:
        at = at | (x.detach() == point)
    return at


@dataclass(frozen=True)
class Pointwise(Quadrature):
    """Any scalar function: moments by quadrature, derivatives by autograd.

    The quadrature is repeated with twice as many panels. If the means or the standard deviations of the two
    differ by more than 1e-8 of the larger of the input's and the output's standard deviation, or are not
    finite, the function is rejected: it bends at points that `places` does not contain, or grows too fast. It
    is also rejected if its derivative does not integrate to its values, because it has an undeclared jump,
    and close to a singularity.

    Parameters
    ----------
    call : callable
        The function of a tensor of any shape; differentiable by autograd.
    places : tuple of float
        Points with different one-sided derivatives or limits, or where it bends within less than about 1.
    text : str
        Name in messages.
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
        """Those of `places` where the one-sided limits differ."""
        jumps = []
        for point, left, right in self._sides():
            if abs(right - left) > 1e-12 * max(1.0, abs(left), abs(right)):
                jumps.append((point, left, right))
        return tuple(jumps)

    def _sides(self) -> list[Jump]:
        """Each of `places` with the neighbouring values."""
        sides = []
        for point in self.places:
            points = torch.tensor([point] * 2, dtype=torch.float64)
            ends = torch.tensor([-torch.inf, torch.inf], dtype=torch.float64)
            left, right = self.call(torch.nextafter(points, ends)).tolist()
            sides.append((point, left, right))
        return sides

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise; the derivative from the right at one of `places`."""
        at = x.detach().clone()
        if self.places:
            at = torch.where(_at_one_of(self.places, at), on_the_right(at), at)
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
            shift, finer_variance = curve_mean_variance(finer, mean, wide)
            largest = (finer_variance / wide).sqrt() + _AGREEMENT
            difference = (self.function(mean) + shift - m).abs() + (finer_variance.sqrt() - v.sqrt()).abs()
            agree = difference <= _AGREEMENT * wide.sqrt() * largest.clamp(min=1)
            agree &= curve_misfit(finer, mean, wide) <= _MISFIT * finer_variance.sqrt() + _LOST * m.abs()
            for point, left, right in self._sides():
                if not (math.isfinite(left) and math.isfinite(right)):
                    agree &= (mean - point).abs() > _REACH * wide.sqrt()
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
