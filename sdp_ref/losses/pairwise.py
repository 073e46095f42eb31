"""Pairwise distribution losses: the true class's score against each other one's (the paper's section 3.4)."""

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
    r"""Log-probabilities log P(X_i > X_j) of the scores of m classes.

    Gaussian: log Phi((mu_i - mu_j) / s) with s^2 = S_ii + S_jj - 2 S_ij. Cauchy, with independent
    components: log(1/2 + arctan((x_i - x_j) / (g_i + g_j)) / pi). (Petersen et al. 2024, section on
    learning with SDP.)

    In the tails these are log Phi by the scaled complementary error function and
    log(arctan2(g_i + g_j, x_j - x_i) / pi): no probability is rounded to 0 or 1 first. s^2 is never
    taken below eps (S_ii + S_jj), with the eps of the law's dtype, as a smaller difference is
    nothing but rounding; a variance or scale of 0 counts as 2^-500. So point masses have the limit: 0 if
    mu_i > mu_j, -log 2 at a tie, and for mu_i < mu_j what is meant as -infinity: in float32 -7.9e28
    for a Gaussian (saturated), and log of a probability of about 1e-151 for a Cauchy law.

    Parameters
    ----------
    law : Gaussian, DiagonalGaussian or Cauchy
        Of scores, shape (B, m), m >= 2.

    Returns
    -------
    Tensor, shape (B, m, m)
        [b, i, j] is log P(X_i > X_j) in nats, <= 0; the diagonal is -log 2, without gradient (P = 1/2,
        so that P_ij + P_ji = 1 throughout).

    Raises
    ------
    ValueError
        If the law is of another family, has fewer than 2 classes, a wrong shape or non-finite
        entries.
    """
    return narrow(_log_matrix(law), law.location.dtype)


def pairwise_probabilities(law: Scores) -> Tensor:
    """Probabilities P(X_i > X_j): the exponential of :func:`pairwise_log_probabilities`.

    Parameters
    ----------
    law : Gaussian, DiagonalGaussian or Cauchy
        Of scores, shape (B, m), m >= 2.

    Returns
    -------
    Tensor, shape (B, m, m)
        In [0, 1]; [b, i, j] + [b, j, i] = 1, and 1/2 on the diagonal.

    Raises
    ------
    ValueError
        As :func:`pairwise_log_probabilities`.
    """
    return narrow(_log_matrix(law).exp(), law.location.dtype)


def pairwise_loss(law: Scores, labels: Tensor, reduction: Reduction = "mean") -> Tensor:
    r"""Pairwise distribution loss: -1/(m - 1) sum_{j != y} log P(X_y > X_j) for the true class y.

    Needs memory of (B, m) beside the law: only the true class's row of
    :func:`pairwise_log_probabilities` is computed.

    Parameters
    ----------
    law : Gaussian, DiagonalGaussian or Cauchy
        Of scores, shape (B, m), m >= 2.
    labels : Tensor, shape (B,)
        True classes, integers in 0..m-1.
    reduction : "mean", "sum" or "none"
        Over the batch.

    Returns
    -------
    Tensor, scalar, or shape (B,) with "none"
        In nats, >= 0.

    Raises
    ------
    ValueError
        If the law or the labels do not fit; the message says how.
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
    r"""Class scores from pairwise probabilities, for prediction and, by their :func:`entropy`, abstention.

    With sums, products and minima over the m - 1 other classes j of class i:

    - "mean": 2 / (m (m - 1)) sum_j P_ij. It sums to 1 by itself, since each of the m (m - 1) / 2 pairs adds
      P_ij + P_ji = 1. No score exceeds 2 / m, so the entropy of a certain prediction is well above 0 for
      m > 2, and every pair counts, also two classes that nobody would choose.
    - "geometric": (prod_j P_ij)^(1/(m-1)) / normaliser, the softmax of minus the pairwise loss of each
      class.
    - "minimum": min_j P_ij / normaliser, by each class's chance against its strongest rival.

    P_ij > 1/2 says location_i > location_j, so the class that beats all others is the one with the
    largest location. "minimum" always ranks it first (it alone has a minimum above 1/2). "mean" and
    "geometric" do so for 2 classes and where all pairs have one spread; else a class with a slightly
    larger location but a far larger spread can come second. The paper does not say how it combines.

    Parameters
    ----------
    law : Gaussian, DiagonalGaussian or Cauchy
        Of scores, shape (B, m), m >= 2.
    combine : "mean", "geometric" or "minimum"
        See above.

    Returns
    -------
    Tensor, shape (B, m)
        >= 0, each row sums to 1.

    Raises
    ------
    ValueError
        As :func:`pairwise_log_probabilities`, or for another `combine`.
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
        twice = covariance + covariance.mT  # and not 2 S: both triangles alike in the gradient
    logarithms = _log_probability(
        law,
        location.unsqueeze(2) - location.unsqueeze(1),
        spread.unsqueeze(2) + spread.unsqueeze(1),
        twice,
    )
    itself = torch.eye(law.dimension, dtype=torch.bool, device=logarithms.device)
    return logarithms.masked_fill(itself, -math.log(2))


def _log_probability(law: Scores, gap: Tensor, total: Tensor, twice: Tensor | float) -> Tensor:
    """Of P(X > Y), from the gap of locations, the sum of variances or scales, and twice the covariance."""
    if isinstance(law, Cauchy):
        width = total + FLOOR
        # The clamps keep the side that is not taken away from log 0; their gradient at 0 is 1.
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
