"""Scales of linear combinations of independent symmetric alpha-stable variables."""

from __future__ import annotations

import torch
from torch import Tensor


def stable_scale(weight: Tensor, scale: Tensor, alpha: float) -> Tensor:
    """Scales of W x for independent symmetric alpha-stable x.

    They are (sum_j abs(w_ij)^alpha s_j^alpha)^(1/alpha). Each sum is taken relative to its largest
    term, so that no power of a term over- or underflows.

    Parameters
    ----------
    weight : Tensor, shape (..., m, n)
    scale : Tensor, shape (..., n)
    alpha : float
        In (0, 2].

    Returns
    -------
    Tensor, shape (..., m)
    """
    terms = weight.abs() * scale.unsqueeze(-2)
    largest = terms.amax(-1, keepdim=True)
    safe = torch.where(largest > 0, largest, torch.ones_like(largest))
    return largest.squeeze(-1) * power(power(terms / safe, alpha).sum(-1), 1 / alpha)


def power(x: Tensor, exponent: float) -> Tensor:
    """x**exponent for x >= 0; the gradient at 0 is 0, where that of a small power is infinite."""
    positive = ~(x <= 0)  # so that NaN stays NaN
    return torch.where(positive, torch.where(positive, x, 1.0).pow(exponent), 0.0)
