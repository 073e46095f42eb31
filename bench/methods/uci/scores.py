"""How good predicted intervals and laws of a real target are (Tagasovska and Lopez-Paz 2019)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

NORMAL_95 = 1.96
"""Standard deviations on either side of the mean that hold 95 % of a normal law, as the paper rounds it."""
LEVELS = (0.025, 0.975)
"""Of the quantiles between which the central 95 % of a law lie."""


def picp(y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Prediction interval coverage probability: share of the targets strictly inside their intervals.

    Parameters
    ----------
    y, low, high : Tensor, shape (..., rows)
        Broadcast against each other.

    Raises
    ------
    ValueError
        If a target is not finite.
    """
    _check_finite(y)
    return ((low < y) & (y < high)).double().mean(-1)


def mpiw(low: Tensor, high: Tensor, y_range: float) -> Tensor:
    """Mean prediction interval width, as a share of the range of all targets.

    Where quantiles cross, the width is that between them all the same, as in the published evaluation.

    Parameters
    ----------
    low, high : Tensor, shape (..., rows)
        In the units of the targets.
    y_range : float
        Largest less smallest target of the whole set, in the same units.

    Raises
    ------
    ValueError
        If the range is not positive.
    """
    if not (y_range > 0 and math.isfinite(y_range)):
        raise ValueError(f"the range of the targets must be positive and finite, got {y_range}")
    return (high - low).abs().double().mean(-1) / y_range


def gaussian_nll(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Mean negative log-likelihood (nats) of targets under Gaussians: log(2 pi v) / 2 + (y - mean)^2 / (2 v).

    Parameters
    ----------
    y, mean, variance : Tensor, shape (..., rows)
        A variance of 0 gives infinity where a target is missed, and minus infinity where all such are met.

    Raises
    ------
    ValueError
        If a target is not finite or a variance is negative.
    """
    _check_finite(y)
    if bool((variance < 0).any()):
        raise ValueError("a variance is negative")
    y, mean, variance = y.double(), mean.double(), variance.double()
    residual = y - mean
    # At variance 0 the quotient would be 0 / 0 where the target is met.
    missed = torch.where(residual == 0, 0.0, residual.square() / (2 * variance))
    each = torch.where(missed == math.inf, math.inf, (2 * math.pi * variance).log() / 2 + missed)
    total = each.sum(-1)
    return torch.where((each == math.inf).any(-1), math.inf, total) / each.shape[-1]


def _check_finite(y: Tensor) -> None:
    if not bool(y.isfinite().all()):
        raise ValueError("a target is not finite")
