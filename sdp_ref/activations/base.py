"""What an elementwise non-linearity is to the rules: a function with its Gaussian moments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from sdp_ref.activations.numerics.covariances import with_diagonal
from sdp_ref.errors import NoFormulaError

TOLERANCE = 1e-6
SHORT = 1e-5
"""Relative error of means and standard deviations by short formulas."""
_FINEST_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Activation(ABC):
    """An elementwise non-linearity with its Gaussian moments.

    A subclass is a frozen dataclass whose fields are the parameters, under the names that :attr:`module`
    gives them. It has to say :meth:`function`, :meth:`derivative` and :meth:`_mean_variance`, with which the
    marginal rules work; without the other two the rules with full covariances refuse it.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    """Name for people."""
    rank: ClassVar[int] = 100
    """Place in tables, the lowest first."""
    module: ClassVar[type[nn.Module]]
    """The module that applies it."""
    ops: ClassVar[tuple[str, ...]] = ()
    """Names of the ATen operators that apply it; see :meth:`from_op`."""
    kinks: ClassVar[tuple[float, ...]] = ()
    """Where it has two slopes."""
    moments: ClassVar[bool] = True
    """Whether it has moments under a normal law."""
    homogeneous: ClassVar[bool] = False
    """Whether f(a x) = a f(x) for all a > 0."""
    short: ClassVar[bool] = False
    """Whether there are formulas for its mean and variance that lose little in float32."""
    value_seconds: ClassVar[float] = 1e-9
    """Time of f for one value on one core, about: what a plan of work reckons with."""
    layer_seconds: ClassVar[float] = 0.1
    """Time of :meth:`mean_covariance` for a layer of 100 units on one core, about."""

    @classmethod
    def of(cls, module: nn.Module) -> Self:
        """Non-linearity that a module of type :attr:`module` applies.

        Parameters
        ----------
        module : nn.Module

        Raises
        ------
        NoFormulaError
            If it has options for which there are no formulas.
        """
        return cls(**{f.name: getattr(module, f.name) for f in fields(cls) if f.init})

    @classmethod
    def from_op(cls, name: str, *args: Any, **kwargs: Any) -> nn.Module:  # noqa: ARG003
        """Module that does what an ATen operator does.

        Parameters
        ----------
        name : str
            One of :attr:`ops`.
        *args, **kwargs
            What the operator is given after the tensor, under its own names.

        Returns
        -------
        nn.Module
            In evaluation mode, and not in place.

        Raises
        ------
        NoFormulaError
            If there is no formula for these arguments.
        """
        return cls.module(*args, **kwargs).eval()

    def flattened(self, event: torch.Size) -> Self:  # noqa: ARG002
        """The same for values of shape `event` that were flattened.

        Parameters
        ----------
        event : torch.Size
            Parameters that are tensors broadcast against values (B, *event).

        Returns
        -------
        Activation
            Itself, if its parameters are numbers.
        """
        return self

    @property
    def uniform(self) -> bool:
        """Whether it is the same function for all components of a value."""
        return True

    @property
    def parameters(self) -> dict[str, Any]:
        """What tells it from others of its name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    def build(self) -> nn.Module:
        """Make a module that applies it."""
        return self.module(**self.parameters)

    @abstractmethod
    def function(self, x: Tensor) -> Tensor:
        """f(x), elementwise."""

    @abstractmethod
    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise; at a kink the derivative from the right, as in the paper's eq. 2."""

    def mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f(X), X ~ N(mean, variance), elementwise.

        Parameters
        ----------
        mean, variance : Tensor, one shape and dtype
            Variances are >= 0; zero is a point mass.
        """
        m, v = self._mean_variance(mean.double(), variance.double())
        return m.to(mean.dtype), v.to(mean.dtype)

    def short_mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`mean_variance`, by :attr:`short` formulas if there are any.

        Parameters
        ----------
        mean, variance : Tensor, one shape and dtype
            Variances are >= 0; zero is a point mass.

        Returns
        -------
        mean, variance : Tensor, shape and dtype of the input
            Means and standard deviations to a relative :data:`SHORT`, down to 1e-37 of the input's standard
            deviation; where a mean is a sum of a positive and a negative term, relative to these.
        """
        if not self.short:
            return self.mean_variance(mean, variance)
        wide = torch.promote_types(mean.dtype, torch.float32)
        m, v = self._short_mean_variance(mean.to(wide), variance.to(wide))
        return m.to(mean.dtype), v.to(mean.dtype)

    def mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        """E[f'(X)], X ~ N(mean, variance), elementwise.

        By Stein's lemma Cov(f(X), Y) = E[f'(X)] Cov(X, Y) for jointly Gaussian X and Y.

        Parameters
        ----------
        mean, variance : Tensor, one shape and dtype
            Variances are >= 0; at a point mass it is :meth:`derivative`.

        Raises
        ------
        NoFormulaError
            If there is none.
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
            Largest error of a covariance relative to s_i s_j, the standard deviations that came in. Those of
            straight pieces, GELU and the elementary functions do not look at it; they are exact to 1e-11.

        Returns
        -------
        mean : Tensor, shape (B, n)
        covariance : Tensor, shape (B, n, n)
            Exactly symmetric; its diagonal is the variance of :meth:`mean_variance`.

        Raises
        ------
        ValueError
            If a shape does not fit, or the tolerance is below 1e-10.
        NoFormulaError
            If there is none.
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
        return m.to(mean.dtype), with_diagonal(c, v).to(mean.dtype)

    @abstractmethod
    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`mean_variance`, in float64."""

    def _short_mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`short_mean_variance`, in the dtype that comes in; for :attr:`short` formulas."""
        raise NotImplementedError

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:  # noqa: ARG002
        """As :meth:`mean_derivative`, in float64."""
        raise NoFormulaError(f"the mean derivative of {self.label}")

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, tolerance: float) -> Tensor:  # noqa: ARG002
        """Off-diagonal covariances (B, n, n), in float64; what stands on the diagonal is of no matter."""
        raise NoFormulaError(f"covariances of {self.label}")
