"""Entropies of class probabilities, as measures of uncertainty."""

from __future__ import annotations

import torch
from torch import Tensor

from sdp_ref.losses._checks import check_classes, check_float
from sdp_ref.losses._numerics import narrow, widen

_SUM = 1e-4  # tolerance for the sum; float32 softmaxes of many classes sum to 1 within about 1e-6


def entropy(probabilities: Tensor) -> Tensor:
    """Return the Shannon entropy -sum_i p_i log p_i of class probabilities, shape (B,), in nats.

    Every row of `probabilities`, shape (B, m), must be >= 0 and sum to 1, as the output of
    :func:`pairwise_scores` does. 0 log 0 is 0. The gradient at a probability of zero, which is infinite, is
    replaced by that at the smallest normal number.
    """
    check_float("probabilities", probabilities)
    check_classes("entropy", probabilities)
    rows = probabilities.detach().double()
    if bool((rows < 0).any()):
        raise ValueError(f"probabilities must be >= 0, smallest is {rows.min().item():.3g}")
    if bool(((rows.sum(1) - 1).abs() > _SUM).any()):
        worst = rows.sum(1)[(rows.sum(1) - 1).abs().argmax()].item()
        raise ValueError(f"probabilities must sum to 1 in every row, one sums to {worst:.6g}")
    dtype = probabilities.dtype
    p = widen(probabilities)
    logarithm = p.clamp(min=torch.finfo(dtype).tiny).log()
    return narrow(-(p * logarithm).sum(1), dtype)


def softmax_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of softmax(logits), shape (B,), in nats.

    `logits` has shape (B, m) with m >= 2 classes. Small probabilities are not rounded to 0 first.
    """
    check_float("logits", logits)
    check_classes("softmax_entropy", logits)
    logarithms = torch.log_softmax(widen(logits), 1)
    return narrow(-(logarithms.exp() * logarithms).sum(1), logits.dtype)
