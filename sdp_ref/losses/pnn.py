"""Gaussian probabilistic neural networks (PNN), which also predict a variance, and SDP applied to them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdp_ref.laws import DiagonalGaussian, Gaussian
from sdp_ref.losses._checks import Reduction, check_float, check_law, check_like, check_reduction
from sdp_ref.losses._numerics import FLOOR, reduced, widen


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
    own = variance
    square = (law.batch, law.dimension, law.dimension)
    if isinstance(law, Gaussian) and variance.shape != law.location.shape and variance.shape == square:
        return Gaussian(law.mean, law.covariance + variance)
    check_like("variance", variance, law.location, "the mean")
    if bool((own.detach() < 0).any()):
        raise ValueError(f"variance must be >= 0, smallest entry is {own.detach().min().item():.3g}")
    if isinstance(law, Gaussian):
        return Gaussian(law.mean, law.covariance + torch.diag_embed(own.flatten(1)))
    return DiagonalGaussian(law.mean, law.variance + own)
