"""Negative log-likelihoods of regression targets under a propagated law."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian
from sdp_ref.losses._checks import Reduction, check_law, check_like, check_reduction
from sdp_ref.losses._numerics import FLOOR, reduced, widen

# In float64, rounding is 1e-16: what is left of a variance must be well above that to be known, and
# jitter is chosen such that the likelihood is good to about 1e-6.
_SINGULAR = 1e-12
_JITTER = 1e-9
_LEAST_TRACE = 2.0**-300  # of a covariance of zeros; the square of its inverse is a float


def gaussian_nll(law: Gaussian | DiagonalGaussian, targets: Tensor, reduction: Reduction = "mean") -> Tensor:
    r"""Negative log-likelihood of targets under Gaussian laws, joint over the event.

    (n log 2 pi + log det S + r^T S^-1 r) / 2 with r = target - mean, by Cholesky's factor of S in
    float64. Where S is singular, :func:`gaussian_jitter` is added to its diagonal first (a constant,
    for the gradient); elsewhere nothing is. Independent components have S's diagonal, plus 2^-500: a point
    mass has a finite, large loss beside its mean, and a strongly negative one on it.

    Parameters
    ----------
    law : Gaussian or DiagonalGaussian
        Mean of shape (B, *event).
    targets : Tensor, shape (B, *event)
        Finite, in the units of the mean.
    reduction : "mean", "sum" or "none"
        Over the batch; components are always added up.

    Returns
    -------
    Tensor, scalar, or shape (B,) with "none"
        In nats.

    Raises
    ------
    ValueError
        If shapes do not fit, a target is not finite, or a covariance is far from positive
        semi-definite.
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
        # With a jitter: covariances of rules are singular, or slightly indefinite, now and then.
        covariance = widen(law.covariance)
        factor = torch.linalg.cholesky(_jittered((covariance + covariance.mT) / 2, gaussian_jitter(law)))
        white = torch.linalg.solve_triangular(factor, residual.unsqueeze(2), upper=False)
        distance = white.square().sum((1, 2))
        logarithm = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1)
    return reduced((constant + logarithm + distance) / 2, reduction, law.location.dtype)


def gaussian_jitter(law: Gaussian) -> Tensor:
    """What :func:`gaussian_nll` adds to the diagonal of each covariance.

    0 where Cholesky's factorisation succeeds in float64 and leaves every component at least 1e-12 of its
    variance, given those before it. Else the first of e t, 10 e t, 100 e t, ..., at most t, for which both
    hold: t = trace / n is the mean variance (at least 2^-300), and e the rounding unit of the law's dtype
    but at least 1e-9, so 1.2e-7 in float32. It does not depend on the rest of the batch.

    Parameters
    ----------
    law : Gaussian
        With covariance of shape (B, n, n).

    Returns
    -------
    Tensor, shape (B,), float64
        In squared units of the mean, without gradient.

    Raises
    ------
    ValueError
        If even the mean variance is not enough.
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
    r"""Negative log-likelihood of targets under Cauchy laws with independent components.

    sum_k log pi + 2 log hypot(g_k, r_k) - log g_k with r = target - location, which equals
    log(pi g (1 + (r/g)^2)) and does not overflow. A scale of 0 counts as 2^-500.

    Parameters
    ----------
    law : Cauchy
        Location of shape (B, *event).
    targets : Tensor, shape (B, *event)
        Finite, in the units of the location.
    reduction : "mean", "sum" or "none"
        Over the batch; components are always added up.

    Returns
    -------
    Tensor, scalar, or shape (B,) with "none"
        In nats.

    Raises
    ------
    ValueError
        If shapes do not fit or a target is not finite.
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
