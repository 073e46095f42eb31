"""Dirichlet output of Gast & Roth (2018): a distribution of class probabilities."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdp_ref.laws import DiagonalGaussian, Gaussian
from sdp_ref.losses._checks import Reduction, check_classes, check_labels, check_law, check_reduction
from sdp_ref.losses._numerics import narrow, reduced, root, widen

Number = float | Tensor

_GUARD = 1e-4  # their constant, which bounds the total concentration by 1 / _GUARD
_START = math.log1p(math.exp(-7.0))  # softplus(-7), their initial value of both learned constants


def dirichlet(law: Gaussian | DiagonalGaussian, offset: Number = _START, slope: Number = _START) -> Tensor:
    """Return the concentrations, shape (B, m), of a Dirichlet law from Gaussian scores (Gast & Roth 2018).

    alpha = p / (1e-4 + c_1 + c_2 s), with p = softmax(mean) and s^2 = sum_k p_k^2 variance_k: the Dirichlet
    law has mean p and is less concentrated for larger variances. Only marginal variances matter. The
    constants c_1 (`offset`) and c_2 (`slope`), both >= 0, are learned with the net, as softplus of free
    parameters; the defaults are their initial values, softplus(-7) = 9.1e-4.

    The law has shape (B, m) with m >= 2 classes. Concentrations are 0 where the softmax underflows. Where all
    variances are 0, the gradient of s is infinite, and 0 is used instead.

    References
    ----------
    Gast, Roth: Lightweight Probabilistic Deep Networks. CVPR 2018, with the authors' code
    (``lightprobnets``), which has the constant 1e-4 and the starting values.
    """
    logarithms = _log_concentrations(law, offset, slope)[0]
    return narrow(logarithms.exp(), law.location.dtype)


def dirichlet_probabilities(concentrations: Tensor) -> Tensor:
    """Return the class probabilities of a Dirichlet law, alpha / sum(alpha), shape (B, m).

    For the concentrations of :func:`dirichlet` this is softmax(mean), for any variance. The variance changes
    the spread of the law, ``torch.distributions.Dirichlet(alpha).entropy()``. Every row needs a positive
    concentration.
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
    """Return the negative log-density of the true class under :func:`dirichlet` (Gast & Roth 2018).

    sum_k log Gamma(alpha_k) - log Gamma(sum alpha) - sum_k (alpha_k - 1) log t_k, where t is the one-hot
    vector of the label moved into the simplex: 1 - e + e/m for the true class, e/m for others. log
    Gamma(alpha) is computed as log Gamma(1 + alpha) - log alpha, so that a softmax that underflows is
    harmless. (Their code distributes e over the other classes at random, this function evenly.)

    `labels` are class indices of shape (B,), and `smoothing` is e, in (0, 1). The loss is in nats, a scalar
    or of shape (B,) with reduction "none". It is the logarithm of a density and may be negative.
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
    """Logarithms of alpha, shape (B, m), and of sum(alpha), shape (B,), float64."""
    check_law("a Dirichlet output", law, Gaussian, DiagonalGaussian)
    check_classes("a Dirichlet output", law.location)
    c1, c2 = _constant("offset", offset), _constant("slope", slope)
    # Use logarithms: where the softmax underflows, they and their gradients are still finite.
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
