"""Losses of regression: likelihoods under a law, probabilistic networks (PNN), quantile regression (SQR)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian
from sdp_ref.losses._common import (
    FLOOR,
    Reduction,
    check_float,
    check_law,
    check_like,
    check_reduction,
    reduced,
    widen,
)

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


def pnn_variance(raw: Tensor, floor: float = 1e-3) -> Tensor:
    """Return the variance of a PNN from its unbounded output r: softplus(r) + floor.

    Tagasovska & Lopez-Paz (2019) use a floor of 1e-3 in the loss and of 1e-6 for predictions, in squared
    units of the target.
    """
    check_float("raw", raw)
    if not (math.isfinite(floor) and floor >= 0):
        raise ValueError(f"floor must be a number >= 0, got {floor!r}")
    return torch.nn.functional.softplus(raw) + floor


def pnn_nll(
    mean: Tensor, raw: Tensor, targets: Tensor, floor: float = 1e-3, reduction: Reduction = "mean"
) -> Tensor:
    """Loss of a PNN: log(v) / 2 + (y - mu)^2 / (2 v) with v = softplus(r) + floor, in nats.

    This is the Gaussian negative log-likelihood without its constant log(2 pi) / 2. `mean` (mu), `raw` (r)
    and `targets` (y) must have the same shape, (B,) or (B, k), since there is no broadcasting. The reduction
    is over all entries; `floor` is that of :func:`pnn_variance`.
    """
    check_reduction(reduction)
    check_float("mean", mean)
    check_like("raw", raw, mean, "the mean")
    check_like("targets", targets, mean, "the mean")
    variance = pnn_variance(widen(raw), floor) + FLOOR  # for a floor of 0 and a raw output far below 0
    losses = variance.log() / 2 + (widen(targets) - widen(mean)).square() / (2 * variance)
    return reduced(losses, reduction, mean.dtype)


def sdp_pnn(law: Gaussian | DiagonalGaussian, variance: Tensor) -> Gaussian | DiagonalGaussian:
    """Return the predictive law of a PNN under input noise: N(mu, J S J^T + f_S(x)).

    The variance that the PNN predicts is added to that of `law`, the result of ``sdp_ref.propagate`` for the
    net of the mean alone (Petersen et al. 2024, appendix "Applying SDP to PNNs"). `variance` has shape (B,
    *event) for independent components, or shape (B, n, n) as a covariance over the flattened event if the law
    is a Gaussian.
    """
    check_law("sdp_pnn", law, Gaussian, DiagonalGaussian)
    check_float("variance", variance)
    if variance.dtype != law.location.dtype:
        raise ValueError(f"variance has dtype {variance.dtype}, the law {law.location.dtype}; make them one")
    square = (law.batch, law.dimension, law.dimension)
    if isinstance(law, Gaussian) and variance.shape != law.location.shape and variance.shape == square:
        return Gaussian(law.mean, law.covariance + variance)
    check_like("variance", variance, law.location, "the mean")
    if bool((variance.detach() < 0).any()):
        raise ValueError(f"variance must be >= 0, smallest entry is {variance.detach().min().item():.3g}")
    if isinstance(law, Gaussian):
        return Gaussian(law.mean, law.covariance + torch.diag_embed(variance.flatten(1)))
    return DiagonalGaussian(law.mean, law.variance + variance)


def pinball(prediction: Tensor, target: Tensor, tau: float | Tensor, reduction: Reduction = "mean") -> Tensor:
    """Pinball loss max(tau u, (tau - 1) u) with u = target - prediction; its minimiser is the tau-quantile.

    `prediction` and `target` have the same shape, (B,) or (B, k). `tau` in (0, 1) is a number or a tensor of
    that shape. At u = 0 the gradient with respect to the prediction is that of u > 0, -tau. The reduction is
    over all entries.
    """
    check_reduction(reduction)
    check_float("prediction", prediction)
    check_like("target", target, prediction, "the prediction")
    _check_levels(tau)
    if isinstance(tau, Tensor):
        check_like("tau", tau, prediction, "the prediction")
    above = target - prediction
    losses = torch.where(above >= 0, tau * above, (tau - 1) * above)
    return reduced(losses, reduction, losses.dtype)


def sqr_input(x: Tensor, tau: float | Tensor) -> Tensor:
    """Return the input of an SQR net: the features of shape (B, d) and, as an additional one, 12 (tau - 1/2).

    This maps a uniform level to a feature of mean 0 and standard deviation sqrt(12), as in the authors'
    code. `tau` in (0, 1) is a number or has shape (B,) or (B, 1).
    """
    check_float("x", x)
    if x.ndim != 2:
        raise ValueError(f"x must have shape (B, d), got {tuple(x.shape)}")
    _check_levels(tau)
    if not isinstance(tau, Tensor):
        level = x.new_full((len(x), 1), tau)
    elif tuple(tau.shape) in ((len(x),), (len(x), 1)):
        level = tau.reshape(-1, 1).to(x)
    else:
        raise ValueError(f"tau must have shape {(len(x),)} or {(len(x), 1)}, got {tuple(tau.shape)}")
    return torch.cat([x, 12 * (level - 0.5)], 1)


def _check_levels(tau: float | Tensor) -> None:
    if isinstance(tau, Tensor):
        inside = bool(((tau.detach() > 0) & (tau.detach() < 1)).all())
    else:
        inside = isinstance(tau, int | float) and 0 < tau < 1
    if not inside:
        raise ValueError("tau must lie in (0, 1)" + ("" if isinstance(tau, Tensor) else f", got {tau!r}"))
