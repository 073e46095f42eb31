"""The base class of rules that use the moments of the net's outputs at some points."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sdp_ref.graph.trace import Net
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law, unchecked
from sdp_ref.rules.base import Rule, as_any_gaussian, check_outputs


@dataclass(frozen=True)
class PointRule(Rule):
    """The Gaussian with mean and covariance of the net's outputs at weighted points of the input's law."""

    @abstractmethod
    def points(self, dimension: int) -> tuple[Tensor, Tensor]:
        """Return points (p, n) and weights (p,) for a standard normal input with n components, both float64.

        The weights sum to 1. Raises :class:`~sdp_ref.errors.NoFormulaError` if there are no points for this
        dimension.
        """

    @property
    def bend(self) -> float:
        """Weight in the covariance of d d^T, with d the mean of the outputs minus the output at the mean."""
        return 0.0

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        def propagate(x: Law) -> Law:
            x = as_any_gaussian(self.name, x)
            with self.at():
                points, weights = (each.to(x.location.device) for each in self.points(x.dimension))
            inputs = placed(x, points.expand(x.batch, -1, -1)).flatten(0, 1)
            outputs = check_outputs(inputs, net(inputs)).unflatten(0, (x.batch, len(points)))
            event = outputs.shape[2:]
            values, weights = outputs.flatten(2).double(), weights.unsqueeze(1)
            # Large weights of both signs cancel: keep the outputs themselves out of these sums.
            origin = values[:, :1] if self.bend else torch.zeros_like(values[:, :1])
            values = values - origin
            mean = (weights * values).sum(1)
            # Not E[y y^T] - m m^T, which cancels where the mean is large and may then be indefinite.
            centred = values - mean.unsqueeze(1)
            covariance = centred.mT @ (weights * centred)
            if self.bend:
                turn = (mean - values[:, 0]).unsqueeze(2)
                covariance = covariance + self.bend * turn @ turn.mT
            mean, dtype = mean + origin.squeeze(1), outputs.dtype
            covariance = (covariance + covariance.mT) / 2
            return unchecked(Gaussian, mean.unflatten(1, event).to(dtype), covariance.to(dtype))

        return propagate


def placed(x: Gaussian | DiagonalGaussian, normals: Tensor) -> Tensor:
    if isinstance(x, DiagonalGaussian):
        noise = normals * x.standard_deviation.flatten(1).unsqueeze(1)
    else:
        noise = normals @ x.factor().mT
    points: Tensor = x.mean.unsqueeze(1) + noise.unflatten(2, x.event_shape).to(x.mean.dtype)
    return points
