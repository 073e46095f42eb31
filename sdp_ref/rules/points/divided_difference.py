"""Divided differences: the moments of the net's quadratic interpolation along the axes of the input's law.

Norgaard, Poulsen and Ravn, "New developments in state estimation for nonlinear systems", Automatica 2000.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sdp_ref.graph.trace import Net
from sdp_ref.laws import Gaussian, Law, unchecked
from sdp_ref.rules.base import Rule, as_any_gaussian, check_outputs
from sdp_ref.rules.points.base import placed


@dataclass(frozen=True)
class DividedDifference(Rule):
    """Second-order divided differences (DD2): 2 n + 1 evaluations of the net for an input of n components.

    The net is evaluated at the mean and at mean +- h s_i, for the columns s_i of a square root of the
    covariance (the axes of a diagonal one). With a_i = (f+ - f-) / 2 and d_i = (f+ + f-) / 2 - f the mean is
    f + sum d_i / h^2 and the covariance sum a_i a_i^T / h^2 + (h^2 - 1) / h^4 sum d_i d_i^T. The covariance
    is positive semi-definite, and exact for sums of quadratic functions of one axis each where h^2 = 3. What
    two axes do together is not seen.

    Parameters
    ----------
    step : float
        h, at least 1. The published sqrt(3), the kurtosis of a Gaussian, suits a single wide law; pieces of a
        mixture are more accurate with shorter steps.
    """

    name: ClassVar[str] = "divided_difference"
    title: ClassVar[str] = "divided differences"
    claims: ClassVar[frozenset[str]] = frozenset({"second order"})
    rank: ClassVar[int] = 46
    step: float = math.sqrt(3)

    def __post_init__(self) -> None:
        step = self.step
        if isinstance(step, bool) or not isinstance(step, int | float) or not 1 <= step < math.inf:
            raise ValueError(f"divided_difference needs a step of at least 1, got {step!r}")

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        square = float(self.step) ** 2

        def propagate(x: Law) -> Law:
            x = as_any_gaussian(self.name, x)
            n = x.dimension
            axes = self.step * torch.eye(n, dtype=torch.float64, device=x.location.device)
            points = torch.cat([torch.zeros_like(axes[:1]), axes, -axes])
            inputs = placed(x, points.expand(x.batch, -1, -1)).flatten(0, 1)
            outputs = check_outputs(inputs, net(inputs)).unflatten(0, (x.batch, 2 * n + 1))
            event, dtype = outputs.shape[2:], outputs.dtype
            centre, above, below = outputs.flatten(2).double().split([1, n, n], 1)
            slope, bend = (above - below) / 2, (above + below) / 2 - centre
            mean = centre.squeeze(1) + bend.sum(1) / square
            covariance = _scatter(slope) / square + _scatter(bend) * ((square - 1) / square**2)
            covariance = (covariance + covariance.mT) / 2
            return unchecked(Gaussian, mean.unflatten(1, event).to(dtype), covariance.to(dtype))

        return propagate


def _scatter(rows: Tensor) -> Tensor:
    return rows.mT @ rows
