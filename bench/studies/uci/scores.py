"""Scores of predicted intervals and laws of a real target (Tagasovska and Lopez-Paz 2019)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

NORMAL_95 = 1.96
"""Half the width of the central 95 % of a normal law in standard deviations, rounded as in the paper.
"""
LEVELS = (0.025, 0.975)
"""Levels of the quantiles that enclose the central 95 % of a law."""


def picp(y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Prediction interval coverage probability: share of the targets strictly inside their intervals.

    `y`, `low` and `high`, shape (..., rows), are broadcast; the result has shape (...). A target that is not
    finite raises a ValueError.
    """
    _check_finite(y)
    return ((low < y) & (y < high)).double().mean(-1)


def mpiw(low: Tensor, high: Tensor, y_range: float) -> Tensor:
    """Mean prediction interval width, shape (...), as a share of the range of all targets.

    `low` and `high` have shape (..., rows). Crossed quantiles count with their absolute distance, as in the
    published evaluation. `y_range` is the range of the targets of the whole set, in the same units; a
    ValueError is raised if it is not positive.
    """
    if not (y_range > 0 and math.isfinite(y_range)):
        raise ValueError(f"the range of the targets must be positive and finite, got {y_range}")
    return (high - low).abs().double().mean(-1) / y_range


def gaussian_nll(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Mean negative log-likelihood (nats) of targets under Gaussians: log(2 pi v) / 2 + (y - mean)^2 / (2 v).

    Arguments have shape (..., rows), and the result has shape (...). A variance of 0 gives infinity if a
    target is missed, and minus infinity if all such targets are met. A target that is not finite, or a
    negative variance, raises a ValueError.
    """
    _check_finite(y)
    if bool((variance < 0).any()):
        raise ValueError("a variance is negative")
    y, mean, variance = y.double(), mean.double(), variance.double()
    residual = y - mean
    # At variance 0 the quotient of a target that is met would be 0 / 0.
    missed = torch.where(residual == 0, 0.0, residual.square() / (2 * variance))
    each = torch.where(missed == math.inf, math.inf, (2 * math.pi * variance).log() / 2 + missed)
    total = each.sum(-1)
    return torch.where((each == math.inf).any(-1), math.inf, total) / each.shape[-1]


def _check_finite(y: Tensor) -> None:
    if not bool(y.isfinite().all()):
        raise ValueError("a target is not finite")
