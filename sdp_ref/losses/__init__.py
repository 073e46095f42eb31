"""Losses and scores of propagated laws, for training and for uncertainty estimates.

They are plain functions of the laws that :func:`sdp_ref.propagate` returns. Computations on float32 laws use
float64 internally; results have the dtype of the law. Values and gradients are exact where the dtype can
represent them, and otherwise saturate at 2^-32 of its largest number (7.9e28 in float32). They are therefore
finite for every finite law, including point masses, and so are sums of up to 4 billion terms.

>>> import torch, sdp_ref as sr
>>> law = sr.Cauchy(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.5, 0.5, 0.5]]))
>>> sr.losses.pairwise_loss(law, torch.tensor([0]))
tensor(0.2877)
"""

from __future__ import annotations

from sdp_ref.losses.classification import (
    OrthonormalCertificates,
    dirichlet,
    dirichlet_nll,
    dirichlet_probabilities,
    entropy,
    pairwise_log_probabilities,
    pairwise_loss,
    pairwise_probabilities,
    pairwise_scores,
    softmax_entropy,
)
from sdp_ref.losses.regression import (
    cauchy_nll,
    gaussian_jitter,
    gaussian_nll,
    pinball,
    pnn_nll,
    pnn_variance,
    sdp_pnn,
    sqr_input,
)

__all__ = [
    "OrthonormalCertificates",
    "cauchy_nll",
    "dirichlet",
    "dirichlet_nll",
    "dirichlet_probabilities",
    "entropy",
    "gaussian_jitter",
    "gaussian_nll",
    "pairwise_log_probabilities",
    "pairwise_loss",
    "pairwise_probabilities",
    "pairwise_scores",
    "pinball",
    "pnn_nll",
    "pnn_variance",
    "sdp_pnn",
    "softmax_entropy",
    "sqr_input",
]
