"""Softmax of Gaussian scores: a mean-field approximation of its mean, and the derivative of that."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sdp_ref.errors import NoLinearPartError

# E logistic(d) under noise of variance V is approximately logistic(d / sqrt(1 + pi V / 8))
_LAMBDA = math.pi / 8
_LOWEST = -1e30  # replaces scores of -inf, whose differences would be NaN


def softmax_dim(module: nn.Softmax | nn.LogSoftmax, x: Tensor) -> int:
    dim = module.dim
    if dim is None or dim % x.ndim == 0:
        text = "without a dimension" if dim is None else "over the batch dimension"
        raise NoLinearPartError(f"a {type(module).__name__} {text}")
    return dim


def mean_field(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Approximate mean of a softmax of Gaussian scores, and its derivative by the means of the scores.

    p_i is proportional to 1 / sum_j exp((m_j - m_i) / sqrt(1 + pi V_ij / 8)), V_ij the variance of X_i - X_j
    (Lu, Ie and Sha 2020, "Mean-field approximation to Gaussian-softmax integral", with all pairs). By Stein's
    lemma the derivative of the mean is the mean of the Jacobian.
    """
    slope = (1 + _LAMBDA * variance).rsqrt()
    mean = mean.clamp(min=_LOWEST)
    shares = (slope * (mean.unsqueeze(-2) - mean.unsqueeze(-1))).softmax(-1)
    own = shares.diagonal(dim1=-2, dim2=-1)
    total = own.sum(-1, keepdim=True)
    p = own / total
    pulls = own.unsqueeze(-1) * shares * slope
    jacobian = torch.diag_embed(pulls.sum(-1)) - pulls  # derivative of `own`
    return p, (jacobian - p.unsqueeze(-1) * jacobian.sum(-2, keepdim=True)) / total.unsqueeze(-1)
