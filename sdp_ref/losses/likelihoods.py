"""Negative log-likelihoods of regression targets under a propagated law."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian
from sdp_ref.losses._checks import Reduction, check_law, check_like, check_reduction
from sdp_ref.losses._numerics import FLOOR, reduced, widen

# The rounding error of float64 is 1e-16, so conditional variances below 1e-12 are not reliable, and the
# jitter is chosen such that the likelihood is accurate to about 1e-6.
_SINGULAR = 1e-12
_JITTER = 1e-9
_LEAST_TRACE = 2.0**-300  # for a zero covariance; the square of its inverse is representable


def gaussian_nll(law: Gaussian | DiagonalGaussian, targets: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Return the negative log-likelihood of targets under Gaussian laws, joint over the event, in nats.

    (n log 2 pi + log det S + r^T S^-1 r) / 2 with r = target - mean, by the Cholesky factor of S in float64.
    Where S is singular, :func:`gaussian_jitter` is first added to its diagonal, as a constant for the
    gradient. For independent components, S is diagonal, and 2^-500 is added to the variances: a point mass
    has a large finite loss away from its mean, and a large negative one at its mean.

    Mean and `targets` have shape (B, *event). The reduction is over the batch; components are always summed.
    A covariance that is far from positive semidefinite raises a ValueError.
    """
    check_reduction(reduction)
    check_law("gaussian_nll", law, Gaussian, DiagonalGaussian)
    targets = check_like("targets", targets, law.location, "the mean")
    residual = (widen(targets) - widen(law.location)).flatten(1)
    constant = law.dimension * math.log(2 * math.pi)
    if isinstance(law, DiagonalGaussian):
        variance = widen(law.variance).flatten(1).clamp(min=0) + FLOOR
        distance = (residual / variance.sqrt()).square().sum(1)
        logarithm = variance.log().sum(1)
    else:
        # The covariances of rules can be singular or slightly indefinite, hence the jitter.
        covariance = widen(law.covariance)
        factor = torch.linalg.cholesky(_jittered((covariance + covariance.mT) / 2, gaussian_jitter(law)))
        white = torch.linalg.solve_triangular(factor, residual.unsqueeze(2), upper=False)
        distance = white.square().sum((1, 2))
        logarithm = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1)
    return reduced((constant + logarithm + distance) / 2, reduction, law.location.dtype)


def gaussian_jitter(law: Gaussian) -> Tensor:
    """Return what :func:`gaussian_nll` adds to the diagonal of each covariance, shape (B,), float64.

    It is 0 where the Cholesky factorisation succeeds in float64 and the variance of every component given the
    previous ones is at least 1e-12 of its variance. Otherwise it is the first of e t, 10 e t, 100 e t, ...,
    at most t, for which both hold: t = trace / n is the mean variance (at least 2^-300), and e the rounding
    unit of the law's dtype but at least 1e-9, so 1.2e-7 in float32. It does not depend on the rest of the
    batch and has no gradient. If even the mean variance does not suffice, a ValueError is raised.
    """
    check_law("gaussian_jitter", law, Gaussian)
    covariance = law.covariance.detach().double()
    covariance = (covariance + covariance.mT) / 2
    jitter = torch.zeros(law.batch, dtype=torch.float64, device=covariance.device)
    mean = covariance.diagonal(dim1=1, dim2=2).mean(1).clamp(min=_LEAST_TRACE)
    relative = max(torch.finfo(law.location.dtype).eps, _JITTER)
    while True:
        tried = _jittered(covariance, jitter)
        factor, info = torch.linalg.cholesky_ex(tried)
        left = factor.diagonal(dim1=1, dim2=2).square() >= _SINGULAR * tried.diagonal(dim1=1, dim2=2)
        failed = (info != 0) | ~left.all(1)
        if not bool(failed.any()):
            return jitter
        if relative > 1:
            lowest = torch.linalg.eigvalsh(covariance[failed]).min().item()
            raise ValueError(
                f"covariance is far from positive semi-definite (smallest eigenvalue {lowest:.3g})"
            )
        jitter = torch.where(failed, relative * mean, jitter)
        relative *= 10


def cauchy_nll(law: Cauchy, targets: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Return the negative log-likelihood of targets under independent Cauchy components, in nats.

    sum_k log pi + 2 log hypot(g_k, r_k) - log g_k with r = target - location, which equals log(pi g (1 +
    (r/g)^2)) and does not overflow. A scale of 0 counts as 2^-500.

    Location and `targets` have shape (B, *event). The reduction is over the batch; components are always
    summed.
    """
    check_reduction(reduction)
    check_law("cauchy_nll", law, Cauchy)
    targets = check_like("targets", targets, law.location, "the location")
    residual = (widen(targets) - widen(law.location)).flatten(1)
    scale = widen(law.scale).flatten(1) + FLOOR
    losses = math.log(math.pi) + 2 * torch.hypot(scale, residual).log() - scale.log()
    return reduced(losses.sum(1), reduction, law.location.dtype)


def _jittered(covariance: Tensor, jitter: Tensor) -> Tensor:
    identity = torch.eye(covariance.shape[1], dtype=covariance.dtype, device=covariance.device)
    return covariance + jitter[:, None, None] * identity
