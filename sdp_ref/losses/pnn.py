"""Gaussian probabilistic neural networks (PNN): nets that also predict a variance, and SDP on top of one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdp_ref.laws import DiagonalGaussian, Gaussian
from sdp_ref.losses._checks import Reduction, check_float, check_law, check_like, check_reduction
from sdp_ref.losses._numerics import FLOOR, reduced, widen


def pnn_variance(raw: Tensor, floor: float = 1e-3) -> Tensor:
    """Variance of a PNN from its unbounded output r: softplus(r) + floor.

    The floor is 1e-3 in the loss and 1e-6 for predictions, as Tagasovska & Lopez-Paz (2019) have it.

    Parameters
    ----------
    raw : Tensor, any shape
    floor : float
        >= 0, in squared units of the target.

    Returns
    -------
    Tensor
        Variances, shape and dtype of `raw`.

    Raises
    ------
    ValueError
        If `raw` is not a finite float tensor or the floor is negative.
    """
    check_float("raw", raw)
    if not (math.isfinite(floor) and floor >= 0):
        raise ValueError(f"floor must be a number >= 0, got {floor!r}")
    return torch.nn.functional.softplus(raw) + floor


def pnn_nll(
    mean: Tensor, raw: Tensor, targets: Tensor, floor: float = 1e-3, reduction: Reduction = "mean"
) -> Tensor:
    r"""Loss of a PNN: log(v) / 2 + (y - mu)^2 / (2 v) with v = softplus(r) + floor.

    The Gaussian negative log-likelihood without its constant log(2 pi) / 2, so it may be negative.

    Parameters
    ----------
    mean, raw, targets : Tensor, all of one shape, (B,) or (B, k)
        mu and r are the net's outputs, y the targets, in units of the target.
    floor : float
        See :func:`pnn_variance`.
    reduction : "mean", "sum" or "none"
        Over all entries.

    Returns
    -------
    Tensor, scalar, or the shape of `mean` with "none"
        In nats.

    Raises
    ------
    ValueError
        If shapes differ (there is no broadcasting) or an entry is not finite.
    """
    check_reduction(reduction)
    check_float("mean", mean)
    check_like("raw", raw, mean, "the mean")
    check_like("targets", targets, mean, "the mean")
    variance = pnn_variance(widen(raw), floor) + FLOOR  # of a floor of 0 and a raw output far below 0
    losses = variance.log() / 2 + (widen(targets) - widen(mean)).square() / (2 * variance)
    return reduced(losses, reduction, mean.dtype)


def sdp_pnn(law: Gaussian | DiagonalGaussian, variance: Tensor) -> Gaussian | DiagonalGaussian:
    r"""Predictive law of a PNN under input noise: N(mu, J S J^T + f_S(x)).

    The PNN's own variance is added to that which a rule propagated through the mean's net (Petersen et
    al. 2024, appendix "Applying SDP to PNNs").

    Parameters
    ----------
    law : Gaussian or DiagonalGaussian
        ``sdp_ref.propagate`` of the net of the mean alone, mean of shape (B, *event).
    variance : Tensor, shape (B, *event), or (B, n, n) with a Gaussian
        Variances >= 0 of independent components, or a covariance over the flattened event.

    Returns
    -------
    Gaussian or DiagonalGaussian
        Of the family of `law`.

    Raises
    ------
    ValueError
        If shape or dtype do not fit, or a variance is negative or not finite.
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
