"""The unscented transform: the moments of a few points that share the input's mean and covariance.

Julier & Uhlmann (1997), "A new extension of the Kalman filter to nonlinear systems".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sdp_ref.rules.points.base import PointRule


@dataclass(frozen=True)
class Unscented(PointRule):
    """Unscented transform: 2 n + 1 evaluations of the net for an input of n components.

    Points mean +- sqrt(n + lambda) times the columns of a square root of the covariance (the symmetric axes
    of a diagonal one), weights 1 / (2 (n + lambda)), and the mean itself with weight lambda / (n + lambda),
    lambda = alpha^2 (n + kappa) - n. In the covariance the output at the mean has 1 - alpha^2 + beta more:
    with kappa and beta of at least 0 it is positive semi-definite.

    Parameters
    ----------
    kappa : float, optional
        At least 0. By default max(0, 3 - n), which matches the fourth moments of a Gaussian if possible.
    alpha : float
        Distance of the points, as a multiple of sqrt(n + kappa): 1, as first published, or less, often 0.001.
        Differences of outputs are divided by its square, so a net in float32 has no digits left for small
        values.
    beta : float
        At least 0, depends on the fourth moments: 2 is best for a Gaussian with small `alpha`.

    References
    ----------
    Julier and Uhlmann (1997) as above: alpha = 1, beta = 0. Julier, "The scaled unscented transformation",
    ACC 2002; Wan and van der Merwe, "The unscented Kalman filter for nonlinear estimation", 2000, eq. 15.
    """

    name: ClassVar[str] = "unscented"
    colour: ClassVar[str] = "#cc79a7"
    rank: ClassVar[int] = 40
    kappa: float | None = None
    alpha: float = 1.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        for name in ("kappa", "beta"):
            value = getattr(self, name)
            if not (name == "kappa" and value is None) and not (_is_number(value) and 0 <= value < math.inf):
                raise ValueError(f"unscented needs {name} of at least 0, got {value!r}")
        if not (_is_number(self.alpha) and 0 < self.alpha <= 1):
            raise ValueError(f"unscented needs alpha above 0 and up to 1, got {self.alpha!r}")

    @property
    def known_faults(self) -> Mapping[str, str]:  # type: ignore[override]
        if self.alpha >= _SINGLE:
            return {}
        return {"precision": "it divides differences of outputs, which float32 rounds, by alpha squared"}

    @property
    def bend(self) -> float:
        return 1 - self.alpha**2 + self.beta

    def points(self, dimension: int) -> tuple[Tensor, Tensor]:
        n = dimension
        kappa = max(0.0, 3.0 - n) if self.kappa is None else float(self.kappa)
        spread = self.alpha**2 * (n + kappa)  # n + lambda
        axes = math.sqrt(spread) * torch.eye(n, dtype=torch.float64)
        weights = torch.full((2 * n + 1,), 0.5 / spread, dtype=torch.float64)
        weights[0] = (spread - n) / spread
        return torch.cat([torch.zeros_like(axes[:1]), axes, -axes]), weights


_SINGLE = 0.1  # from here on, float32 outputs yield at least two digits of second differences


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
