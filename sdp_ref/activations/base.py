"""The interface between non-linearities and rules: a function and its Gaussian moments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from sdp_ref.activations.numerics.quadrature import Curve
from sdp_ref.errors import NoFormulaError

TOLERANCE = 1e-6
SHORT = 1e-5
"""Relative error of means and standard deviations computed by short formulas."""
_FINEST_TOLERANCE = 1e-10


def module_of(home: str, name: str, function: Callable[[Tensor], Tensor]) -> type[nn.Module]:
    """Return a module class for a function that torch.nn has no module for; `home` defines it as `name`."""
    return type(name, (nn.Module,), {"forward": lambda _, x: function(x), "__module__": home})


def on_the_right(x: Tensor) -> Tensor:
    """Return points just above `x`, with its gradient, where an op has its derivative from the right at `x`.

    The distance is at least the spacing of the dtype.
    """
    at, digits = x.detach(), torch.finfo(x.dtype)
    return x + (digits.eps * at.abs().clamp(max=digits.max) + digits.tiny)


def with_right_derivative(value: Tensor, right: Tensor, kink: Tensor) -> Tensor:
    """Replace the derivative of `value` by that of `right` where the mask `kink` is true."""
    return torch.where(kink, value.detach() + (right - right.detach()), value)


def differentiating() -> bool:
    """Whether autograd or a transform of torch.func is active."""
    return torch.is_grad_enabled() or transformed()


def transformed() -> bool:
    """Whether a transform of torch.func is active."""
    return torch._C._functorch.maybe_current_level() is not None


@dataclass(frozen=True)
class Activation(ABC):
    """An elementwise non-linearity with its Gaussian moments.

    A subclass is a frozen dataclass. Its fields are the parameters, with the names that they have in
    :attr:`module`. It must define :meth:`derivative` and :meth:`_mean_variance`, which marginal rules need.
    Rules with full covariances also need :meth:`_mean_derivative` and :meth:`_covariance`, and reject the
    non-linearity otherwise.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    """Display name."""
    rank: ClassVar[int] = 100
    """Sort key in tables."""
    module: ClassVar[type[nn.Module]]
    """The torch module that applies it."""
    ops: ClassVar[tuple[str, ...]] = ()
    """Names of the ATen operators that apply it, by default its `name`; see :meth:`from_op`."""
    kinks: ClassVar[tuple[float, ...]] = ()
    """Points with different one-sided derivatives."""
    moments: ClassVar[bool] = True
    """Whether its moments under a normal law exist."""
    homogeneous: ClassVar[bool] = False
    """Whether f(a x) = a f(x) for all a > 0."""
    short: ClassVar[bool] = False
    """Whether it has formulas for mean and variance that remain accurate in float32."""
    value_seconds: ClassVar[float] = 1e-9
    """Approximate time of f per value on one core, for planning."""
    layer_seconds: ClassVar[float] = 0.1
    """Approximate time of :meth:`mean_covariance` for a layer of 100 units on one core, for planning."""

    @classmethod
    def of(cls, module: nn.Module) -> Self:
        """Return the non-linearity that a module of type :attr:`module` applies.

        Options of the module without formulas raise :class:`~sdp_ref.errors.NoFormulaError`.
        """
        return cls(**{f.name: getattr(module, f.name) for f in fields(cls) if f.init})

    @classmethod
    def from_op(cls, name: str, *args: Any, **kwargs: Any) -> nn.Module:  # noqa: ARG003
        """Return a module that is equivalent to an ATen operator, in evaluation mode and not in place.

        `name` is one of :attr:`ops`, and the other arguments are those of the operator after the tensor.
        Arguments without formulas raise :class:`~sdp_ref.errors.NoFormulaError`.
        """
        return cls.module(*args, **kwargs).eval()

    def flattened(self, event: torch.Size) -> Self:  # noqa: ARG002
        """Return the same non-linearity for flattened values, whose shape was `event`.

        This affects parameters that are tensors, which broadcast against values (B, *event).
        """
        return self

    @property
    def uniform(self) -> bool:
        """Whether it is the same function for all components."""
        return True

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that distinguish it from others of the same name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    def build(self) -> nn.Module:
        """Return a module that applies it."""
        return self.module(**self.parameters)

    def function(self, x: Tensor) -> Tensor:
        """f(x), elementwise; by default as a module computes it."""
        return self.build()(x)

    @abstractmethod
    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise; the derivative from the right at a kink, as in eq. 2 of the paper."""

    def curve_of(self, deviation: Tensor) -> Curve:  # noqa: ARG002
        """Return the function as quadratures of its covariances with other functions need it.

        `deviation` are the standard deviations of its arguments. The default suits functions that bend only
        at 0 and at :attr:`kinks`.
        """
        return Curve(self.function, self.derivative, tuple(sorted({0.0, *self.kinks})))

    def mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return the elementwise mean and variance of f(X), X ~ N(mean, variance).

        `mean` and `variance` have the same shape and dtype; a variance of zero is a point mass.
        """
        m, v = self._mean_variance(mean.double(), variance.double())
        return m.to(mean.dtype), v.to(mean.dtype)

    def short_mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same as :meth:`mean_variance`, by :attr:`short` formulas if there are any.

        Means and standard deviations then have a relative error of :data:`SHORT`, down to 1e-37 of the
        standard deviation of the input; in float32, variances below 1e-38 become 0. Where a mean is the sum
        of a positive and a negative term, the error is relative to these.
        """
        if not self.short:
            return self.mean_variance(mean, variance)
        wide = torch.promote_types(mean.dtype, torch.float32)
        m, v = self._short_mean_variance(mean.to(wide), variance.to(wide))
        return m.to(mean.dtype), v.to(mean.dtype)

    def mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Return E[f'(X)], X ~ N(mean, variance), elementwise; at a point mass this is :meth:`derivative`.

        By Stein's lemma Cov(f(X), Y) = E[f'(X)] Cov(X, Y) for jointly Gaussian X and Y. Raises
        :class:`~sdp_ref.errors.NoFormulaError` if it is not defined.
        """
        return self._mean_derivative(mean.double(), variance.double()).to(mean.dtype)

    def mean_covariance(
        self, mean: Tensor, covariance: Tensor, *, tolerance: float = TOLERANCE
    ) -> tuple[Tensor, Tensor]:
        """Return the mean (B, n) and the covariance (B, n, n) of f(X), X ~ N(mean, covariance).

        The covariance must be symmetric and positive semidefinite; rows of zero variance are point masses.
        The result is exactly symmetric, and its diagonal is the variance of :meth:`mean_variance`.

        `tolerance`, at least 1e-10, is the largest error of a covariance relative to s_i s_j, the standard
        deviations of the input. Piecewise linear functions, GELU and the elementary functions ignore it; they
        are exact to 1e-11. Raises :class:`~sdp_ref.errors.NoFormulaError` if there is no formula.
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
        eye = torch.eye(v.shape[-1], dtype=torch.bool, device=v.device)
        return m.to(mean.dtype), torch.where(eye, v[:, :, None], c).to(mean.dtype)

    @abstractmethod
    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`mean_variance` in float64."""

    def _short_mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`short_mean_variance` in the dtype of the input, for :attr:`short` formulas."""
        raise NotImplementedError

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:  # noqa: ARG002
        """:meth:`mean_derivative` in float64."""
        raise NoFormulaError(f"the mean derivative of {self.label}")

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, tolerance: float) -> Tensor:  # noqa: ARG002
        """Off-diagonal covariances (B, n, n), in float64; the diagonal is ignored."""
        raise NoFormulaError(f"covariances of {self.label}")
