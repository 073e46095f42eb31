"""Monte Carlo estimates with the net's linear part as control variate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sdp_ref.errors import UnsupportedError
from sdp_ref.graph.trace import Net
from sdp_ref.jacobian.jacobian import jacobian_of
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law, unchecked
from sdp_ref.rules.base import check_outputs
from sdp_ref.rules.points.base import placed
from sdp_ref.rules.sampling.monte_carlo import MonteCarlo


@dataclass(frozen=True)
class ControlVariate(MonteCarlo):
    """Mean and covariance of k samples of the output, with a linear function of the input as control variate.

    Of f(X) = f(mu) + A (X - mu) + R only R is sampled: the linear part has the mean f(mu) and the covariance
    A S A^T. With A by least squares over the samples the bias is of order 1 / k, and the variance hardly ever
    above that without it. With the Jacobian at mu for A the mean is unbiased, and with independent draws so
    is the covariance; but that may be indefinite, and where the net bends within the noise it is less steady
    than that of the plain estimate.

    Parameters
    ----------
    samples, sampler, seed
        See :class:`MonteCarlo`.
    coefficient : {"regression", "jacobian"}
        A. "regression" needs at least two more samples (or antithetic pairs) than the input has components.

    References
    ----------
    Glasserman, "Monte Carlo methods in financial engineering", 2003, section 4.1.
    """

    name: ClassVar[str] = "control_variate"
    title: ClassVar[str] = "MC with control variate"
    rank: ClassVar[int] = 210
    coefficient: str = "regression"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coefficient not in _COEFFICIENTS:
            raise ValueError(
                f"unknown coefficient '{self.coefficient}' of {self.name}; choose from "
                f"{', '.join(_COEFFICIENTS)}"
            )

    @property
    def parameters(self) -> dict[str, Any]:
        coefficient = {} if self.coefficient == "regression" else {"coefficient": self.coefficient}
        return {**super().parameters, **coefficient}

    @property
    def label(self) -> str:
        return super().label + ("" if self.coefficient == "regression" else f", {self.coefficient.title()}")

    @property
    def known_faults(self) -> Mapping[str, str]:  # type: ignore[override]  # of one coefficient only
        if self.coefficient == "regression":
            return {}
        unsteady = "its error is larger than that of plain draws where the net bends within the noise"
        return {
            "positive-semidefinite": "the sampled part of the covariance may be negative",
            "permutation": unsteady,
            "batch": unsteady,
        }

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        def propagate(x: Law) -> Law:
            if not isinstance(x, Gaussian | DiagonalGaussian):
                raise UnsupportedError(self.name, f"{type(x).__name__} input: its draws are Gaussian")
            if self.coefficient == "regression" and self.samples < max(1, self._block) * (x.dimension + 2):
                raise UnsupportedError(
                    self.name, f"a regression of {self.samples} samples on {x.dimension} inputs"
                )
            normals = self._normals(x, x.dimension)
            inputs = placed(x, normals).flatten(0, 1)
            outputs = check_outputs(inputs, net(inputs)).unflatten(0, (x.batch, self.samples))
            event, dtype = outputs.shape[2:], outputs.dtype
            values = outputs.flatten(2).double()
            regression = self.coefficient == "regression"
            centre, slope = _fitted(normals, values) if regression else self._linearised(net, x)
            linear = normals @ slope.mT
            rest = values - centre.unsqueeze(1) - linear
            mean = centre + rest.mean(1)
            covariance = self._covariance(rest - rest.mean(1, keepdim=True))
            if regression and self._block:  # minus one degree of freedom per slope
                covariance = covariance * ((self.samples - 1) / (self.samples - 1 - x.dimension))
            # the residuals of a regression are uncorrelated with the samples by construction
            if not regression:
                cross = linear.mT @ rest / self.samples
                covariance = covariance + cross + cross.mT
            covariance = covariance + slope @ slope.mT
            return unchecked(Gaussian, mean.unflatten(1, event).to(dtype), covariance.to(dtype))

        return propagate

    def _linearised(self, net: Net, x: Gaussian | DiagonalGaussian) -> tuple[Tensor, Tensor]:
        """The net at the means, (B, m), and its slopes by standard normals, (B, m, n); both float64."""
        with self.at():
            value, jacobian = jacobian_of(
                lambda v: check_outputs(v, net(v)),
                x.mean,
                create_graph=torch.is_grad_enabled(),
                spread=x.spread,
            )
        return value.flatten(1).double(), jacobian.flatten(2).double() @ x.factor()


def _fitted(normals: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Least squares with an intercept, shape (B, m), and slopes, shape (B, m, n)."""
    centre, middle = normals.mean(1, keepdim=True), values.mean(1, keepdim=True)
    # QR instead of `lstsq`, whose result does not scale exactly with the values.
    basis, triangle = torch.linalg.qr(normals - centre)
    slope = torch.linalg.solve_triangular(triangle, basis.mT @ (values - middle), upper=True).mT
    return (middle - centre @ slope.mT).squeeze(1), slope


_COEFFICIENTS = ("regression", "jacobian")
