"""Losses and scores of classifiers: pairwise, Dirichlet output, entropies, orthonormal certificates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian
from sdp_ref.laws.base import power
from sdp_ref.losses._common import (
    FLOOR,
    Reduction,
    check_classes,
    check_float,
    check_labels,
    check_law,
    check_reduction,
    log_ndtr,
    narrow,
    reduced,
    widen,
)

Scores = Gaussian | DiagonalGaussian | Cauchy
Combine = Literal["mean", "geometric", "minimum"]


def pairwise_log_probabilities(law: Scores) -> Tensor:
    """Return log P(X_i > X_j) for the scores of m >= 2 classes, shape (B, m, m), in nats.

    Gaussian: log Phi((mu_i - mu_j) / s) with s^2 = S_ii + S_jj - 2 S_ij. Cauchy, with independent components:
    log(1/2 + arctan((x_i - x_j) / (g_i + g_j)) / pi). (Petersen et al. 2024, section on learning with SDP.)
    Entry [b, i, j] is log P(X_i > X_j) of row b. The diagonal is log 1/2 without gradient, so that P_ij +
    P_ji = 1 holds everywhere.

    In the tails the logarithms are computed from the scaled complementary error function and as
    log(arctan2(g_i + g_j, x_j - x_i) / pi), so that no probability is rounded to 0 or 1 first. s^2 is at
    least eps (S_ii + S_jj), with the eps of the law's dtype, since a smaller difference is only rounding
    error; a variance or scale of 0 counts as 2^-500. Point masses therefore have the limiting values: 0 if
    mu_i > mu_j, and -log 2 at a tie. For mu_i < mu_j the limit of -infinity is replaced by a large negative
    number: in float32 by -7.9e28 for a Gaussian (saturated), and by the log of about 1e-151 for a Cauchy law.
    """
    return narrow(_log_matrix(law), law.location.dtype)


def pairwise_probabilities(law: Scores) -> Tensor:
    """Return P(X_i > X_j), shape (B, m, m): the exponential of :func:`pairwise_log_probabilities`."""
    return narrow(_log_matrix(law).exp(), law.location.dtype)


def pairwise_loss(law: Scores, labels: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Pairwise distribution loss: -1/(m - 1) sum_{j != y} log P(X_y > X_j) for the true class y, in nats.

    `labels` are class indices of shape (B,). Only the true class's row of :func:`pairwise_log_probabilities`
    is computed, so the loss needs additional memory of size (B, m).
    """
    check_reduction(reduction)
    _check(law)
    labels = check_labels(labels, law.location)
    column = labels.unsqueeze(1)
    location, spread = widen(law.location), widen(_spread(law))
    true_location, true_spread = location.gather(1, column), spread.gather(1, column)
    twice: Tensor | float = 0.0
    if isinstance(law, Gaussian):
        rows = torch.arange(law.batch, device=labels.device)
        twice = widen(law.covariance[rows, labels]) + widen(law.covariance[rows, :, labels])
    logarithms = _log_probability(law, true_location - location, true_spread + spread, twice)
    itself = torch.zeros_like(logarithms, dtype=torch.bool).scatter(1, column, True)
    losses = -logarithms.masked_fill(itself, 0.0).sum(1) / (law.dimension - 1)
    return reduced(losses, reduction, law.location.dtype)


def pairwise_scores(law: Scores, combine: Combine = "mean") -> Tensor:
    """Combine pairwise probabilities to class scores, shape (B, m), for prediction and abstention.

    Every row is >= 0 and sums to 1; its :func:`entropy` is a criterion for abstention. With sums, products
    and minima over the m - 1 other classes j of class i, the choices of `combine` are:

    - "mean": 2 / (m (m - 1)) sum_j P_ij. It sums to 1 without normalisation, since each of the m (m - 1) / 2
      pairs adds P_ij + P_ji = 1. No score exceeds 2 / m, so the entropy of a certain prediction is well above
      0 for m > 2, and every pair counts, including pairs of two improbable classes.
    - "geometric": (prod_j P_ij)^(1/(m-1)) / normaliser, the softmax of the negative pairwise losses.
    - "minimum": min_j P_ij / normaliser, the probability of each class against its strongest rival.

    P_ij > 1/2 if and only if location_i > location_j, so the class that beats all others has the largest
    location. "minimum" always ranks it first, because only this class has a minimum above 1/2. "mean" and
    "geometric" do so for 2 classes and if all pairs have the same spread; otherwise a class with a slightly
    larger location but a much larger spread can come second. The paper does not say how it combines them.
    """
    if combine not in ("mean", "geometric", "minimum"):
        raise ValueError(f"combine must be 'mean', 'geometric' or 'minimum', got {combine!r}")
    logarithms = _log_matrix(law)
    m = law.dimension
    itself = torch.eye(m, dtype=torch.bool, device=logarithms.device)
    if combine == "mean":
        scores = logarithms.exp().masked_fill(itself, 0.0).sum(2) * (2 / (m * (m - 1)))
    elif combine == "geometric":
        scores = torch.softmax(logarithms.masked_fill(itself, 0.0).sum(2) / (m - 1), 1)
    else:
        scores = torch.softmax(logarithms.masked_fill(itself, 0.0).amin(2), 1)
    return narrow(scores, law.location.dtype)


def _log_matrix(law: Scores) -> Tensor:
    """Logarithms of P(X_i > X_j), shape (B, m, m), float64."""
    _check(law)
    location, spread = widen(law.location), widen(_spread(law))
    twice: Tensor | float = 0.0
    if isinstance(law, Gaussian):
        covariance = widen(law.covariance)
        twice = covariance + covariance.mT  # not 2 S, so that both triangles get the same gradient
    logarithms = _log_probability(
        law, location.unsqueeze(2) - location.unsqueeze(1), spread.unsqueeze(2) + spread.unsqueeze(1), twice
    )
    itself = torch.eye(law.dimension, dtype=torch.bool, device=logarithms.device)
    return logarithms.masked_fill(itself, -math.log(2))


def _log_probability(law: Scores, gap: Tensor, total: Tensor, twice: Tensor | float) -> Tensor:
    """Log P(X > Y) from the difference of locations, summed variances or scales, and twice the covariance."""
    if isinstance(law, Cauchy):
        width = total + FLOOR
        # The clamps keep log away from 0 on the side that is not selected; their gradient at 0 is 1.
        below = (torch.atan2(width, -gap.clamp(max=0)) / math.pi).log()
        above = torch.log1p(-torch.atan2(width, gap.clamp(min=0)) / math.pi)
        return torch.where(gap < 0, below, above)
    rounding = torch.finfo(law.location.dtype).eps * total
    variance = torch.maximum(total - twice, rounding).clamp(min=0) + FLOOR
    return log_ndtr(gap / variance.sqrt())


def _spread(law: Scores) -> Tensor:
    return law.scale if isinstance(law, Cauchy) else law.variance


def _check(law: Scores) -> None:
    check_law("a pairwise loss", law, Gaussian, DiagonalGaussian, Cauchy)
    check_classes("a pairwise loss", law.location)


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
    deviation = power((logarithms.mul(2).exp() * variance).sum(1), 0.5)
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


_SUM = 1e-4  # tolerance for the sum; float32 softmaxes of many classes sum to 1 within about 1e-6


def entropy(probabilities: Tensor) -> Tensor:
    """Return the Shannon entropy -sum_i p_i log p_i of class probabilities, shape (B,), in nats.

    Every row of `probabilities`, shape (B, m), must be >= 0 and sum to 1, as the output of
    :func:`pairwise_scores` does. 0 log 0 is 0. The gradient at a probability of zero, which is infinite, is
    replaced by that at the smallest normal number.
    """
    check_float("probabilities", probabilities)
    check_classes("entropy", probabilities)
    rows = probabilities.detach().double()
    if bool((rows < 0).any()):
        raise ValueError(f"probabilities must be >= 0, smallest is {rows.min().item():.3g}")
    if bool(((rows.sum(1) - 1).abs() > _SUM).any()):
        worst = rows.sum(1)[(rows.sum(1) - 1).abs().argmax()].item()
        raise ValueError(f"probabilities must sum to 1 in every row, one sums to {worst:.6g}")
    dtype = probabilities.dtype
    p = widen(probabilities)
    logarithm = p.clamp(min=torch.finfo(dtype).tiny).log()
    return narrow(-(p * logarithm).sum(1), dtype)


def softmax_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of softmax(logits), shape (B,), in nats.

    `logits` has shape (B, m) with m >= 2 classes. Small probabilities are not rounded to 0 first.
    """
    check_float("logits", logits)
    check_classes("softmax_entropy", logits)
    logarithms = torch.log_softmax(widen(logits), 1)
    return narrow(-(logarithms.exp() * logarithms).sum(1), logits.dtype)


@dataclass(frozen=True, eq=False)
class OrthonormalCertificates:
    """Linear certificates that are trained to be 0 on training features; large values indicate other inputs.

    The authors minimise mean_i ||C^T (phi_i - b)||^2 / k + lambda ||C^T C - I||^2 / k^2 over C (d, k) and b
    by SGD. The minimum is known in closed form and computed directly: b is the mean of the features, and the
    left singular vectors of C are the eigenvectors of their covariance with the k smallest eigenvalues e_j,
    with squared singular values max(0, 1 - k e_j / (2 lambda)). (The second term depends on the singular
    values only, and for given ones these eigenvectors minimise the first.) The default, lambda = infinity,
    makes C orthonormal. C is unique up to a rotation of its columns, which does not change the score.

    Parameters
    ----------
    certificates : Tensor, shape (d, k)
        C.
    center : Tensor, shape (d,)
        b, in units of the features.
    """

    certificates: Tensor
    center: Tensor

    @classmethod
    def fit(
        cls, features: Tensor, count: int, penalty: float = math.inf, centered: bool = True
    ) -> OrthonormalCertificates:
        """Compute the certificates of training features.

        The result is deterministic and has the dtype of the features and no gradient. If more than `count`
        directions share the smallest eigenvalue (the features span a small subspace), rounding decides which
        of them are used, as the seed does under SGD; use more certificates then.

        Parameters
        ----------
        features : Tensor, shape (N, d)
            phi of the training data: the inputs of the last linear layer of the net.
        count : int
            k, in 1..d.
        penalty : float
            lambda > 0; infinity for exactly orthonormal certificates.
        centered : bool
            Whether b is fitted, as in the authors' code, or 0, as in their formula.
        """
        check_float("features", features)
        if features.ndim != 2 or not len(features):
            raise ValueError(f"features must have shape (N, d), N > 0, got {tuple(features.shape)}")
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= features.shape[1]:
            raise ValueError(f"count must be an integer in 1..{features.shape[1]}, got {count!r}")
        if not penalty > 0:
            raise ValueError(f"penalty must be positive, got {penalty!r}")
        phi = features.detach().double()
        center = phi.mean(0) if centered else torch.zeros_like(phi[0])
        phi = phi - center
        eigen = torch.linalg.eigh(phi.mT @ phi / len(phi))
        values, vectors = eigen.eigenvalues[:count].clamp(min=0), eigen.eigenvectors[:, :count]
        signs = vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
        lengths = (1 - count * values / (2 * penalty)).clamp(min=0).sqrt()
        return cls((vectors * signs * lengths).to(features.dtype), center.to(features.dtype))

    def score(self, features: Tensor) -> Tensor:
        """Return the uncertainty ||C^T (phi - b)||^2, shape (B,), in squared units of the features.

        `features` have shape (B, d) and the dtype of the certificates. The score is 0 in the directions in
        which the training data vary, and differentiable.
        """
        check_float("features", features)
        if features.ndim != 2 or features.shape[1] != len(self.center):
            raise ValueError(f"features must have shape (B, {len(self.center)}), got {tuple(features.shape)}")
        if features.dtype != self.center.dtype:
            raise ValueError(f"features are {features.dtype}, the certificates {self.center.dtype}")
        return ((features - self.center) @ self.certificates).square().sum(1)
