"""The unscented transform: the moments of a few points that share the input's mean and covariance.

Julier & Uhlmann (1997), "A new extension of the Kalman filter to nonlinear systems".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sdp_ref.rules.points.base import PointRule


@dataclass(frozen=True)
class Unscented(PointRule):
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

    def points(self, dimension: int) -> tuple[Tensor, Tensor]:
        """See :class:`PointRule`."""
        n = dimension
        kappa = max(0.0, 3.0 - n) if self.kappa is None else float(self.kappa)
        axes = math.sqrt(n + kappa) * torch.eye(n, dtype=torch.float64)
        weights = torch.full((2 * n + 1,), 0.5 / (n + kappa), dtype=torch.float64)
        weights[0] = kappa / (n + kappa)
        return torch.cat([torch.zeros_like(axes[:1]), axes, -axes]), weights
