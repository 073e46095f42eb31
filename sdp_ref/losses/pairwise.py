"""Pairwise distribution losses: the true class against every other class (section 3.4 of the paper)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian
from sdp_ref.losses._checks import Reduction, check_classes, check_labels, check_law, check_reduction
from sdp_ref.losses._numerics import FLOOR, log_ndtr, narrow, reduced, widen

Scores = Gaussian | DiagonalGaussian | Cauchy
Combine = Literal["mean", "geometric", "minimum"]


def pairwise_log_probabilities(law: Scores) -> Tensor:
    """Return log P(X_i > X_j) for the scores of m >= 2 classes, shape (B, m, m), in nats.

    Gaussian: log Phi((mu_i - mu_j) / s) with s^2 = S_ii + S_jj - 2 S_ij. Cauchy, with independent components:
    log(1/2 + arctan((x_i - x_j) / (g_i + g_j)) / pi). (Petersen et al. 2024, section on learning with SDP.)
    Entry [b, i, j] is log P(X_i > X_j) of row b. The diagonal is log 1/2 without gradient, so that P_ij +
    P_ji = 1 holds everywhere.

    In the tails the logarithms are computed from the scaled complementary error function and as
    log(arctan2(g_i + g_j, x_j - x_i) / pi), so that no probability is rounded to 0 or 1 first. s^2 is at
    least eps (S_ii + S_jj), with the eps of the law's dtype, since a smaller difference is only rounding
    error; a variance or scale of 0 counts as 2^-500. Point masses therefore have the limiting values: 0 if
    mu_i > mu_j, and -log 2 at a tie. For mu_i < mu_j the limit of -infinity is replaced by a large negative
    number: in float32 by -7.9e28 for a Gaussian (saturated), and by the log of about 1e-151 for a Cauchy law.
    """
    return narrow(_log_matrix(law), law.location.dtype)


def pairwise_probabilities(law: Scores) -> Tensor:
    """Return P(X_i > X_j), shape (B, m, m): the exponential of :func:`pairwise_log_probabilities`."""
    return narrow(_log_matrix(law).exp(), law.location.dtype)


def pairwise_loss(law: Scores, labels: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Pairwise distribution loss: -1/(m - 1) sum_{j != y} log P(X_y > X_j) for the true class y, in nats.

    `labels` are class indices of shape (B,). Only the true class's row of :func:`pairwise_log_probabilities`
    is computed, so the loss needs additional memory of size (B, m).
    """
    check_reduction(reduction)
    _check(law)
    labels = check_labels(labels, law.location)
    column = labels.unsqueeze(1)
    location, spread = widen(law.location), widen(_spread(law))
    own = location.gather(1, column), spread.gather(1, column)
    twice: Tensor | float = 0.0
    if isinstance(law, Gaussian):
        rows = torch.arange(law.batch, device=labels.device)
        twice = widen(law.covariance[rows, labels]) + widen(law.covariance[rows, :, labels])
    logarithms = _log_probability(law, own[0] - location, own[1] + spread, twice)
    itself = torch.zeros_like(logarithms, dtype=torch.bool).scatter(1, column, True)
    losses = -logarithms.masked_fill(itself, 0.0).sum(1) / (law.dimension - 1)
    return reduced(losses, reduction, law.location.dtype)


def pairwise_scores(law: Scores, combine: Combine = "mean") -> Tensor:
    """Combine pairwise probabilities to class scores, shape (B, m), for prediction and abstention.

    Every row is >= 0 and sums to 1; its :func:`entropy` is a criterion for abstention. With sums, products
    and minima over the m - 1 other classes j of class i, the choices of `combine` are:

    - "mean": 2 / (m (m - 1)) sum_j P_ij. It sums to 1 without normalisation, since each of the m (m - 1) / 2
      pairs adds P_ij + P_ji = 1. No score exceeds 2 / m, so the entropy of a certain prediction is well above
      0 for m > 2, and every pair counts, including pairs of two improbable classes.
    - "geometric": (prod_j P_ij)^(1/(m-1)) / normaliser, the softmax of the negative pairwise losses.
    - "minimum": min_j P_ij / normaliser, the probability of each class against its strongest rival.

    P_ij > 1/2 if and only if location_i > location_j, so the class that beats all others has the largest
    location. "minimum" always ranks it first, because only this class has a minimum above 1/2. "mean" and
    "geometric" do so for 2 classes and if all pairs have the same spread; otherwise a class with a slightly
    larger location but a much larger spread can come second. The paper does not say how it combines them.
    """
    if combine not in ("mean", "geometric", "minimum"):
        raise ValueError(f"combine must be 'mean', 'geometric' or 'minimum', got {combine!r}")
    logarithms = _log_matrix(law)
    m = law.dimension
    itself = torch.eye(m, dtype=torch.bool, device=logarithms.device)
    if combine == "mean":
        scores = logarithms.exp().masked_fill(itself, 0.0).sum(2) * (2 / (m * (m - 1)))
    elif combine == "geometric":
        scores = torch.softmax(logarithms.masked_fill(itself, 0.0).sum(2) / (m - 1), 1)
    else:
        scores = torch.softmax(logarithms.masked_fill(itself, 0.0).amin(2), 1)
    return narrow(scores, law.location.dtype)


def _log_matrix(law: Scores) -> Tensor:
    """Logarithms of P(X_i > X_j), shape (B, m, m), float64."""
    _check(law)
    location, spread = widen(law.location), widen(_spread(law))
    twice: Tensor | float = 0.0
    if isinstance(law, Gaussian):
        covariance = widen(law.covariance)
        twice = covariance + covariance.mT  # not 2 S, so that both triangles get the same gradient
    logarithms = _log_probability(
        law,
        location.unsqueeze(2) - location.unsqueeze(1),
        spread.unsqueeze(2) + spread.unsqueeze(1),
        twice,
    )
    itself = torch.eye(law.dimension, dtype=torch.bool, device=logarithms.device)
    return logarithms.masked_fill(itself, -math.log(2))


def _log_probability(law: Scores, gap: Tensor, total: Tensor, twice: Tensor | float) -> Tensor:
    """Log P(X > Y) from the difference of locations, summed variances or scales, and twice the covariance."""
    if isinstance(law, Cauchy):
        width = total + FLOOR
        # The clamps keep log away from 0 on the side that is not selected; their gradient at 0 is 1.
        below = (torch.atan2(width, -gap.clamp(max=0)) / math.pi).log()
        above = torch.log1p(-torch.atan2(width, gap.clamp(min=0)) / math.pi)
        return torch.where(gap < 0, below, above)
    rounding = torch.finfo(law.location.dtype).eps * total
    variance = torch.maximum(total - twice, rounding).clamp(min=0) + FLOOR
    return log_ndtr(gap / variance.sqrt())


def _spread(law: Scores) -> Tensor:
    return law.scale if isinstance(law, Cauchy) else law.variance


def _check(law: Scores) -> None:
    check_law("a pairwise loss", law, Gaussian, DiagonalGaussian, Cauchy)
    check_classes("a pairwise loss", law.location)
