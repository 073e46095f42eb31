"""Dirichlet output of Gast & Roth (2018): class probabilities as a law on the simplex."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdp_ref.laws import DiagonalGaussian, Gaussian
from sdp_ref.losses._checks import Reduction, check_classes, check_labels, check_law, check_reduction
from sdp_ref.losses._numerics import narrow, reduced, root, widen

Number = float | Tensor

_GUARD = 1e-4  # theirs: the total concentration is at most 1 / _GUARD
_START = math.log1p(math.exp(-7.0))  # softplus(-7), from where they learn both constants


def dirichlet(law: Gaussian | DiagonalGaussian, offset: Number = _START, slope: Number = _START) -> Tensor:
    r"""Concentrations of a Dirichlet law from Gaussian scores (Gast & Roth 2018).

    alpha = p / (1e-4 + c_1 + c_2 s), with p = softmax(mean) and s^2 = sum_k p_k^2 variance_k: the mean of
    the Dirichlet law is p, and the more variance, the less concentrated it is. Only marginal variances
    count. The constants c_1 (`offset`) and c_2 (`slope`) are learnt with the net, as softplus of free
    parameters; the defaults are their values at the start, softplus(-7) = 9.1e-4.

    Parameters
    ----------
    law : Gaussian or DiagonalGaussian
        Of scores, shape (B, m), m >= 2.
    offset, slope : float or scalar Tensor
        c_1 and c_2, >= 0.

    Returns
    -------
    Tensor, shape (B, m)
        Concentrations, >= 0 (0 where the softmax underflows), with sum 1 / (1e-4 + c_1 + c_2 s). The gradient
        by a variance is taken as 0 where all are 0, since that of s is infinite there.

    Raises
    ------
    ValueError
        If the law is of another family, has fewer than 2 classes or a wrong shape, or a constant is
        negative.

    References
    ----------
    Gast, Roth: Lightweight Probabilistic Deep Networks. CVPR 2018, with the authors' code
    (``lightprobnets``), which has the constant 1e-4 and the starting values.
    """
    logarithms = _log_concentrations(law, offset, slope)[0]
    return narrow(logarithms.exp(), law.location.dtype)


def dirichlet_probabilities(concentrations: Tensor) -> Tensor:
    """Class probabilities of a Dirichlet law: its mean, alpha / sum(alpha).

    Of :func:`dirichlet`'s concentrations this is softmax(mean), whatever the variance is: what the
    variance changes is the law's spread, ``torch.distributions.Dirichlet(alpha).entropy()``.

    Parameters
    ----------
    concentrations : Tensor, shape (B, m)
        >= 0, at least one of a row > 0.

    Returns
    -------
    Tensor, shape (B, m)
        >= 0, each row sums to 1.

    Raises
    ------
    ValueError
        If an entry is negative or not finite, a row is 0, or there are fewer than 2 classes.
    """
    if not isinstance(concentrations, Tensor) or not concentrations.is_floating_point():
        raise ValueError("concentrations must be a floating-point tensor")
    check_classes("dirichlet_probabilities", concentrations)
    rows = concentrations.detach()
    total = rows.sum(1)
    if bool((rows < 0).any()) or not bool(((total > 0) & torch.isfinite(total)).all()):
        raise ValueError("concentrations must be >= 0 and finite, with a positive sum in every row")
    return concentrations / concentrations.sum(1, keepdim=True)


def dirichlet_nll(
    law: Gaussian | DiagonalGaussian,
    labels: Tensor,
    offset: Number = _START,
    slope: Number = _START,
    smoothing: float = 1e-4,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Negative log-density of the true class under :func:`dirichlet`'s law (Gast & Roth 2018).

    sum_k log Gamma(alpha_k) - log Gamma(sum alpha) - sum_k (alpha_k - 1) log t_k, where t is the one-hot
    vector of the label moved into the simplex: 1 - e + e/m for the true class, e/m for others.
    log Gamma(alpha) is computed as log Gamma(1 + alpha) - log alpha, so that a softmax that underflows
    does no harm. (Their code spreads e over the other classes at random; this spreads it evenly.)

    Parameters
    ----------
    law : Gaussian or DiagonalGaussian
        Of scores, shape (B, m), m >= 2.
    labels : Tensor, shape (B,)
        True classes, integers in 0..m-1.
    offset, slope : float or scalar Tensor
        c_1 and c_2, >= 0.
    smoothing : float
        e, in (0, 1).
    reduction : "mean", "sum" or "none"
        Over the batch.

    Returns
    -------
    Tensor, scalar, or shape (B,) with "none"
        In nats; a density, so it may be negative.

    Raises
    ------
    ValueError
        If the law, the labels or a constant do not fit.
    """
    check_reduction(reduction)
    if not 0 < smoothing < 1:
        raise ValueError(f"smoothing must lie in (0, 1), got {smoothing!r}")
    logarithms, total = _log_concentrations(law, offset, slope)
    labels = check_labels(labels, law.location)
    m = law.dimension
    target = torch.full_like(logarithms, smoothing / m).scatter(
        1, labels.unsqueeze(1), 1 - smoothing + smoothing / m
    )
    alpha = logarithms.exp()
    losses = torch.lgamma(1 + alpha) - logarithms - (alpha - 1) * target.log()
    return reduced(losses.sum(1) - torch.lgamma(total), reduction, law.location.dtype)


def _log_concentrations(
    law: Gaussian | DiagonalGaussian, offset: Number, slope: Number
) -> tuple[Tensor, Tensor]:
    """Logarithms of alpha, shape (B, m), and sum(alpha), shape (B,), float64."""
    check_law("a Dirichlet output", law, Gaussian, DiagonalGaussian)
    check_classes("a Dirichlet output", law.location)
    c1, c2 = _constant("offset", offset), _constant("slope", slope)
    # In logarithms: a softmax that underflows still has a concentration, and its gradient.
    logarithms = torch.log_softmax(widen(law.location), 1)
    variance = widen(law.variance).clamp(min=0)
    deviation = root((logarithms.mul(2).exp() * variance).sum(1))
    total = 1 / (_GUARD + c1 + c2 * deviation)
    return logarithms + total.log().unsqueeze(1), total


def _constant(name: str, value: Number) -> Number:
    if isinstance(value, Tensor):
        if value.numel() != 1 or not bool(torch.isfinite(value.detach()).all()) or bool(value.detach() < 0):
            raise ValueError(f"{name} must be one number >= 0")
        return value.double().reshape(())
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a number >= 0, got {value!r}")
    return value
