"""Non-linearities and their moments under a normal law, one table.

Every moment is computed in float64 and cast to the dtype that came in. Variances are exact or centred
quadratures; covariances follow from Price's theorem (see :mod:`sdp_ref.normal_integrals`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional as nn

from sdp_ref import pairs
from sdp_ref.normal_integrals import cdf, pdf, repeated_integrals
from sdp_ref.quadrature import smooth_mean_variance

TOLERANCE = 1e-6
_FINEST_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Activation:
    """An elementwise non-linearity with its Gaussian moments.

    Attributes
    ----------
    name : str
    parameters : Mapping of str to float
    """

    name: str
    parameters: Mapping[str, float] = field(default_factory=dict, hash=False)

    def function(self, x: Tensor) -> Tensor:
        """f(x), elementwise."""
        raise NotImplementedError

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise; at a kink the derivative from the right, as in the paper's eq. 2."""
        raise NotImplementedError

    def mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f(X), X ~ N(mean, variance), elementwise.

        Parameters
        ----------
        mean, variance : Tensor, one shape and dtype
            Variances are >= 0; zero is a point mass.

        Returns
        -------
        mean, variance : Tensor, shape and dtype of the input
        """
        m, v = self._mean_variance(mean.double(), variance.double())
        return m.to(mean.dtype), v.to(mean.dtype)

    def mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        """E[f'(X)], X ~ N(mean, variance), elementwise.

        By Stein's lemma Cov(f(X), Y) = E[f'(X)] Cov(X, Y) for jointly Gaussian X and Y.

        Parameters
        ----------
        mean, variance : Tensor, one shape and dtype
            Variances are >= 0; at a point mass it is :meth:`derivative`.

        Returns
        -------
        Tensor, shape and dtype of the input
        """
        return self._mean_derivative(mean.double(), variance.double()).to(mean.dtype)

    def mean_covariance(
        self, mean: Tensor, covariance: Tensor, *, tolerance: float = TOLERANCE
    ) -> tuple[Tensor, Tensor]:
        """Mean and covariance of f(X), X ~ N(mean, covariance).

        Parameters
        ----------
        mean : Tensor, shape (B, n)
        covariance : Tensor, shape (B, n, n)
            Symmetric positive semi-definite; rows of zero variance are point masses.
        tolerance : float
            Largest error of a covariance relative to s_i s_j, the standard deviations that came in. Only
            sigmoid, tanh and SiLU look at it; the others are exact to 1e-11.

        Returns
        -------
        mean : Tensor, shape (B, n)
        covariance : Tensor, shape (B, n, n)
            Exactly symmetric; its diagonal is the variance of :meth:`mean_variance`.

        Raises
        ------
        ValueError
            If a shape does not fit, or the tolerance is below 1e-10.
        """
        if mean.ndim != 2 or covariance.shape != (*mean.shape, mean.shape[-1]):
            raise ValueError(
                "mean_covariance takes a mean (B, n) and a covariance (B, n, n), got "
                f"{tuple(mean.shape)} and {tuple(covariance.shape)}"
            )
        if not tolerance >= _FINEST_TOLERANCE:
            raise ValueError(f"tolerance must be at least {_FINEST_TOLERANCE:g}, got {tolerance}")
        wide_mean, wide = mean.double(), covariance.double()
        variance = wide.diagonal(dim1=-2, dim2=-1)
        m, v = self._mean_variance(wide_mean, variance)
        c = self._covariance(wide_mean, variance, wide, tolerance)
        return m.to(mean.dtype), pairs.with_diagonal(c, v).to(mean.dtype)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        raise NotImplementedError

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, tolerance: float) -> Tensor:
        """Off-diagonal covariances (B, n, n); what stands on the diagonal is of no matter."""
        raise NotImplementedError


class LeakyReLU(Activation):
    """max(x, 0) + a min(x, 0); ReLU is a = 0. Closed forms, exactly scale equivariant."""

    @property
    def slope(self) -> float:
        """Slope a on the negative side."""
        return self.parameters.get("negative_slope", 0.0)

    def function(self, x: Tensor) -> Tensor:
        """f(x), elementwise."""
        return nn.leaky_relu(x, self.slope) if self.slope else nn.relu(x)

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise; the right derivative at 0."""
        return torch.where(x >= 0, torch.ones_like(x), self.slope)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        a = self.slope
        point = variance == 0
        s = torch.where(point, 1.0, variance).sqrt()
        h = mean / s
        away = torch.where(mean > 0, -h, h)
        beyond, spread, half = repeated_integrals(
            away
        )  # spread: mean of the ramp beyond its value at the mean
        m = self.function(mean) + (1 - a) * s * spread
        # Phi(h) - S(h) S(-h) cancels for h < 0, E[(h + Z)_+^2] - S(h)^2 for h > 0
        left = 2 * half - spread * spread
        above = torch.where(mean > 0, 1 - beyond, beyond)
        right = above - (h + spread) * spread
        ramp = torch.where(mean > 0, right, left)
        v = a * a * variance + (1 - a) * variance * (2 * a * above + (1 - a) * ramp)
        linear = self.derivative(mean) ** 2 * variance
        return torch.where(point, self.function(mean), m), torch.where(point, linear, v)

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        a, point = self.slope, variance == 0
        h = mean / torch.where(point, 1.0, variance).sqrt()
        return torch.where(point, self.derivative(mean), a + (1 - a) * cdf(h))

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, _tolerance: float) -> Tensor:
        return pairs.ramp_covariance(mean, variance, covariance, self.slope)


class GELU(Activation):
    """x Phi(x), the exact (erf) form."""

    def function(self, x: Tensor) -> Tensor:
        """f(x), elementwise."""
        return x * cdf(x)

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise."""
        return cdf(x) + x * pdf(x)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        tau = (1 + variance).sqrt()
        t = mean / tau
        m = mean * cdf(t) + variance / tau * pdf(t)
        _, v = smooth_mean_variance(
            self.function, self.derivative, lambda x: (2 - x * x) * pdf(x), mean, variance
        )
        return m, v

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        square = 1 + variance
        t = mean / square.sqrt()
        return cdf(t) + t * pdf(t) / square

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, _tolerance: float) -> Tensor:
        return pairs.gelu_covariance(mean, variance, covariance)


class Sigmoid(Activation):
    """1 / (1 + exp(-x))."""

    def function(self, x: Tensor) -> Tensor:
        """f(x), elementwise."""
        return torch.sigmoid(x)

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise."""
        return torch.sigmoid(x) * torch.sigmoid(-x)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        # sigmoid(x) = 1 - sigmoid(-x): on the left it is small, and so are its errors
        right = mean > 0
        m, v = smooth_mean_variance(
            self.function,
            self.derivative,
            lambda x: self.derivative(x) * (1 - 2 * torch.sigmoid(x)),
            torch.where(right, -mean, mean),
            variance,
        )
        return torch.where(right, 1 - m, m), v

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        def second(x: Tensor) -> Tensor:
            return self.derivative(x) * (1 - 2 * torch.sigmoid(x))

        def third(x: Tensor) -> Tensor:
            slope = self.derivative(x)
            return slope * (1 - 6 * slope)

        # f' is even and decays on both sides; the quadrature looks for mass to the right of the mean
        return smooth_mean_variance(self.derivative, second, third, -mean.abs(), variance)[0]

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, tolerance: float) -> Tensor:
        return pairs.sigmoid_covariance(mean, variance, covariance, self._mean_variance, tolerance)


class Tanh(Activation):
    """tanh(x) = 2 sigmoid(2 x) - 1."""

    def function(self, x: Tensor) -> Tensor:
        """f(x), elementwise."""
        return torch.tanh(x)

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise."""
        return 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        m, v = _SIGMOID._mean_variance(2 * mean, 4 * variance)
        return 2 * m - 1, 4 * v

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        return 4 * _SIGMOID._mean_derivative(2 * mean, 4 * variance)

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, tolerance: float) -> Tensor:
        return 4 * _SIGMOID._covariance(2 * mean, 4 * variance, 4 * covariance, tolerance / 16)


class SiLU(Activation):
    """x sigmoid(x)."""

    def function(self, x: Tensor) -> Tensor:
        """f(x), elementwise."""
        return x * torch.sigmoid(x)

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise."""
        y = torch.sigmoid(x)
        return y + x * y * torch.sigmoid(-x)

    def _second_derivative(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x) * torch.sigmoid(-x) * (2 - x * torch.tanh(x / 2))

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        return smooth_mean_variance(self.function, self.derivative, self._second_derivative, mean, variance)

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        def third(x: Tensor) -> Tensor:
            slope, t = torch.sigmoid(x) * torch.sigmoid(-x), torch.tanh(x / 2)
            return -slope * (3 * t - x * t * t + 2 * x * slope)

        return smooth_mean_variance(self.derivative, self._second_derivative, third, mean, variance)[0]

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, tolerance: float) -> Tensor:
        return pairs.silu_covariance(mean, variance, covariance, self._mean_variance, tolerance)


_SIGMOID = Sigmoid("sigmoid")


def _relu() -> Activation:
    return LeakyReLU("relu")


def _leaky_relu(negative_slope: float = 0.01) -> Activation:
    if not (isinstance(negative_slope, int | float) and math.isfinite(negative_slope)):
        raise ValueError(f"negative_slope must be a finite number, got {negative_slope!r}")
    return LeakyReLU("leaky_relu", {"negative_slope": float(negative_slope)})


_TABLE: Mapping[str, Callable[..., Activation]] = MappingProxyType(
    {
        "relu": _relu,
        "leaky_relu": _leaky_relu,
        "sigmoid": lambda: Sigmoid("sigmoid"),
        "silu": lambda: SiLU("silu"),
        "gelu": lambda: GELU("gelu"),
        "tanh": lambda: Tanh("tanh"),
    }
)


def activations() -> tuple[str, ...]:
    """Names of the non-linearities there are."""
    return tuple(_TABLE)


def activation(name: str, **parameters: float) -> Activation:
    """Non-linearity of that name.

    Parameters
    ----------
    name : str
        One of :func:`activations`.
    **parameters : float
        `leaky_relu` takes ``negative_slope`` (0.01); the others take none.

    Raises
    ------
    ValueError
        If there is no such non-linearity or it has no such parameter; the message names the valid ones.
    """
    if name not in _TABLE:
        raise ValueError(f"unknown activation {name!r}; valid ones are {', '.join(_TABLE)}")
    make = _TABLE[name]
    valid = inspect.signature(make).parameters
    unknown = [p for p in parameters if p not in valid]
    if unknown:
        takes = ", ".join(valid) if valid else "no parameters"
        raise ValueError(f"activation {name!r} has no parameter {unknown[0]!r}; it takes {takes}")
    return make(**parameters)
