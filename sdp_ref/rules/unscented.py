"""The unscented transform: the moments of a few points that share the input's mean and covariance.

Julier & Uhlmann (1997), "A new extension of the Kalman filter to nonlinear systems".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from sdp_ref.errors import UnsupportedError
from sdp_ref.graph.trace import Net
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law, unchecked
from sdp_ref.rules.base import Rule, check_outputs


@dataclass(frozen=True)
class Unscented(Rule):
    """Unscented transform: 2 n + 1 evaluations of the net for an input of n components.

    Points mean +- sqrt(n + kappa) times the columns of a square root of the covariance (the
    symmetric axes of a diagonal one), weights 1 / (2 (n + kappa)), and the mean itself with weight
    kappa / (n + kappa).

    Parameters
    ----------
    kappa : float, optional
        At least 0, so that no weight is negative and the covariance is one. By default
        max(0, 3 - n), which matches the fourth moments of a Gaussian where it can.

    Raises
    ------
    ValueError
        If `kappa` is negative or not finite.
    """

    name: ClassVar[str] = "unscented"
    colour: ClassVar[str] = "#cc79a7"
    rank: ClassVar[int] = 40
    kappa: float | None = None

    def __post_init__(self) -> None:
        if self.kappa is not None and not (
            isinstance(self.kappa, int | float) and 0 <= self.kappa < math.inf
        ):
            raise ValueError(f"unscented needs kappa of at least 0, got {self.kappa!r}")

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """See :class:`Rule`; nothing is kept."""

        def propagate(x: Law) -> Law:
            if not isinstance(x, Gaussian | DiagonalGaussian):
                raise UnsupportedError(self.name, f"{type(x).__name__} input, which has no covariance")
            n = x.dimension
            kappa = max(0.0, 3.0 - n) if self.kappa is None else float(self.kappa)
            steps = math.sqrt(n + kappa) * x.factor().mT  # (B, n, n): a step a row
            steps = torch.cat([torch.zeros_like(steps[:, :1]), steps, -steps], 1)
            points = x.mean.unsqueeze(1) + steps.unflatten(2, x.event_shape).to(x.mean.dtype)
            points = points.flatten(0, 1)
            outputs = check_outputs(points, net(points)).unflatten(0, (x.batch, 2 * n + 1))
            event = outputs.shape[2:]
            values = outputs.flatten(2).double()
            weights = values.new_full((2 * n + 1, 1), 0.5 / (n + kappa))
            weights[0] = kappa / (n + kappa)
            mean = (weights * values).sum(1)
            # Not E[y y^T] - m m^T, which cancels where the mean is large, and may then be indefinite.
            centred = values - mean.unsqueeze(1)
            covariance = centred.mT @ (weights * centred)
            dtype = outputs.dtype
            covariance = (covariance + covariance.mT) / 2
            return unchecked(Gaussian, mean.unflatten(1, event).to(dtype), covariance.to(dtype))

        return propagate
