"""Distances between the oracle's moments and those of a rule, with floors and standard errors.

The oracle's moments are computed from samples in blocks. A multiplier bootstrap over the blocks yields
replicates of them. The standard error of a metric is its spread over the replicates, and its floor is the
metric of an exact rule: of the oracle's own moments compared with the replicates. If the blocks are Sobol
scrambles, both are correct for Sobol samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdp_ref.laws import DiagonalGaussian, Gaussian

from ..estimate.estimate import Estimate, Ratio
from ..estimate.redraws import upper95
from ..estimate.samples import Samples, on_cpu

Array = NDArray[np.float64]
Prediction = Gaussian | DiagonalGaussian

_REPLICATES = 400
_NORMAL_975 = 1.959963984540054
_LEAST_RATIO = 1e-13  # of variances: keeps the logarithm finite
_ROUNDING = 2.7  # units in the last place; a smaller spread of outputs counts as none


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and covariance of samples, in total and by block.

    Attributes
    ----------
    mean : ndarray, shape (m,)
    covariance : ndarray, shape (m, m)
        With divisor N.
    samples : int
        Number of samples, N.
    block_weights : ndarray, shape (blocks,)
        Share of the samples in each block.
    block_means : ndarray, shape (blocks, m)
    block_covariances : ndarray, shape (blocks, m, m)
        Second moments about the overall mean.
    null_variance : float
        Variance that rounding may cause, relative to the squared outputs.
    """

    mean: Array
    covariance: Array
    samples: int
    block_weights: Array
    block_means: Array
    block_covariances: Array
    null_variance: float

    @classmethod
    def from_samples(cls, samples: Samples, blocks: int = 64) -> Moments:
        """Compute the moments of samples, shape (N, m), N >= 4, in consecutive blocks of equal size.

        At most N / 2 blocks are used. For Sobol samples, use 16 blocks: the independent scrambles.
        """
        matrix = torch.as_tensor(samples)
        if matrix.ndim != 2 or len(matrix) < 4:
            raise ValueError(f"samples must have shape (N, m) with N >= 4, got {tuple(matrix.shape)}")
        if blocks < 2:
            raise ValueError(f"blocks must be at least 2, got {blocks}")
        return cls.from_stream(matrix.tensor_split(min(blocks, len(matrix) // 2)))

    @classmethod
    def from_stream(cls, blocks: Iterable[Samples]) -> Moments:
        """Compute the moments of samples given in at least two blocks, shape (rows, m), without storing them.

        Standard errors assume independent blocks, as from `stream_outputs`, and have a relative error of
        about 1 / sqrt(2 blocks). Sums are computed on the device of each block.
        """
        eps = 0.0  # of the least precise block
        counts: list[int] = []
        means: list[Array] = []
        scatters: list[Array] = []
        for block in blocks:
            tensor = torch.as_tensor(block)
            if tensor.is_floating_point():
                eps = max(eps, torch.finfo(tensor.dtype).eps)
            mean, scatter = _block_moments(tensor, None if not means else len(means[0]))
            counts.append(len(tensor))
            means.append(mean)
            scatters.append(scatter)
        if len(counts) < 2:
            raise ValueError("moments need at least two blocks of samples")
        weights = np.array(counts) / sum(counts)
        mean = weights @ np.array(means)
        # outputs that are constant up to rounding keep the exact constant
        constant = np.ptp(means, axis=0) <= _ROUNDING * np.finfo(np.float64).eps * np.abs(mean)
        mean[constant] = means[0][constant]
        # second moments of the blocks about the overall mean
        shifts = np.array(means) - mean
        covariances = np.array(scatters) + shifts[:, :, None] * shifts[:, None, :]
        covariance = np.einsum("b,bij->ij", weights, covariances)
        null_variance = (_ROUNDING * eps) ** 2
        return cls(mean, covariance, sum(counts), weights, np.array(means), covariances, null_variance)

    def replicates(self, number: int = _REPLICATES, seed: int = 0) -> tuple[Array, Array]:
        """Return means and covariances of simulated further samples, shapes (number, m), (number, m, m).

        Each is the estimate plus a random combination of the blocks' deviations from it whose covariance is
        that of the estimate (multiplier bootstrap).
        """
        blocks = len(self.block_weights)
        multipliers = np.random.default_rng(seed).standard_normal((number, blocks))
        multipliers *= self.block_weights * np.sqrt(blocks / (blocks - 1))
        means = self.mean + multipliers @ (self.block_means - self.mean)
        deviations = self.block_covariances - self.covariance
        return means, self.covariance + np.einsum("rb,bij->rij", multipliers, deviations)


def _block_moments(block: Tensor, width: int | None) -> tuple[Array, Array]:
    """Mean (m,) and covariance (m, m) of a block of samples (rows, m), in float64, with divisor `rows`.

    `width` is that of earlier blocks.
    """
    double = block.detach().double()
    values: Any = double.numpy() if double.device.type == "cpu" else double  # sums stay on the device
    if values.ndim != 2 or len(values) == 0 or width not in (None, values.shape[1]):
        raise ValueError(f"blocks must be matrices of one width, got shape {tuple(values.shape)}")
    centre = values.mean(0)
    if not np.isfinite(on_cpu(centre)).all():
        raise ValueError("samples have non-finite entries (NaN or infinity)")
    centre = _refined(centre, values)
    return on_cpu(centre), on_cpu((values - centre).T @ (values - centre) / len(values))


def _refined(centre: Any, values: Any) -> Any:
    """Means of columns, also of equal numbers, whose sum rounds by more than they differ."""
    size = abs(centre) * (len(values) * np.finfo(np.float64).eps)
    constant = (abs(values[0] - centre) <= size) & (abs(values[-1] - centre) <= size)
    if constant.any():
        centre[constant] = values[0, constant] + (values[:, constant] - values[0, constant]).mean(0)
    return centre


def std_ratio(oracle: Moments | Samples, prediction: Prediction) -> tuple[Ratio, ...]:
    """Ratio of the predicted standard deviation to the oracle's, one :class:`Ratio` per output.

    The oracle may be given as samples, shape (N, m); the prediction is a Gaussian of batch 1. A ratio of 1 is
    exact, and indistinguishable from exact within ``1 +- (floor95 - 1)``. If both standard deviations are
    zero (up to rounding of float32 outputs), the ratio is 1; if only the oracle's is, infinity.
    """
    moments, _, covariance = checked_arguments(oracle, prediction)
    null = moments.null_variance * moments.mean**2
    true, predicted = moments.covariance.diagonal(), covariance.diagonal()
    replicated = moments.replicates()[1].diagonal(axis1=1, axis2=2)
    ratios = []
    for j in range(len(true)):
        if true[j] <= null[j]:
            ratio = 1.0 if predicted[j] <= null[j] else np.inf
            ratios.append(Ratio(ratio, floor=1.0, floor95=1.0, stderr=0.0))
            continue
        ratio = float(np.sqrt(max(0.0, predicted[j]) / true[j]))
        relative_error = float(np.std(np.sqrt(np.maximum(0, replicated[:, j]) / true[j])))
        floor95 = 1.0 + _NORMAL_975 * relative_error
        ratios.append(Ratio(ratio, floor=1.0, floor95=floor95, stderr=ratio * relative_error))
    return tuple(ratios)


def mean_error(oracle: Moments | Samples, prediction: Prediction) -> Estimate:
    """Mahalanobis distance of the predicted mean from the oracle's, in the oracle's covariance.

    sqrt(d^T C^-1 d), in standard deviations of the oracle; infinite if the means differ in a direction in
    which the oracle has no spread. Arguments are those of :func:`std_ratio`.
    """
    return _estimate(_within_support(_mahalanobis, False), *checked_arguments(oracle, prediction))


def bures(oracle: Moments | Samples, prediction: Prediction) -> Estimate:
    """W2 between the Gaussians with the oracle's moments and with those of the prediction.

    A lower bound on W2 between any laws with these moments (Gelbrich 1990): sqrt(norm(d)^2 + tr(C + P - 2
    (C^1/2 P C^1/2)^1/2)), in units of the outputs. Negative eigenvalues of a prediction are set to zero.
    Arguments are those of :func:`std_ratio`.
    """
    return _estimate(_gelbrich, *checked_arguments(oracle, prediction))


def gaussian_kl(oracle: Moments | Samples, prediction: Prediction) -> Estimate:
    """KL(oracle || prediction) between the Gaussians with these moments, in nats.

    It is infinite where one of them has spread and the other does not, or where the prediction's covariance
    is indefinite. In directions in which neither has spread, the means must agree, and the divergence is that
    of the other directions. Arguments are those of :func:`std_ratio`.
    """
    return _estimate(_within_support(_kl, True), *checked_arguments(oracle, prediction))


# from means (R, m) and covariances (R, m, m) of the oracle, (m,) and (m, m) of a rule, and the relative
# variance that counts as zero, to (R,)
Metric = Callable[[Array, Array, Array, Array, float], Array]


def _estimate(metric: Metric, moments: Moments, mean: Array, covariance: Array) -> Estimate:
    means, covariances = moments.replicates()
    null = moments.null_variance
    value = float(metric(moments.mean[None], moments.covariance[None], mean, covariance, null)[0])
    exact = metric(means, covariances, moments.mean, moments.covariance, null)
    spread = metric(means, covariances, mean, covariance, null) if np.isfinite(value) else np.zeros(1)
    stderr = float(spread.std())
    return Estimate(value, float(exact.mean()), float(upper95(exact, "linear")), stderr)


def _within_support(metric: Metric, needs_covariance: bool) -> Metric:
    """Restrict a metric to the directions in which the oracle has spread; infinite outside."""

    def restricted(means: Array, covariances: Array, mean: Array, covariance: Array, eps: float) -> Array:
        values, vectors = np.linalg.eigh(covariances.mean(0))
        null = no_spread(values, eps, np.square(means).sum(1).mean())
        support, rest = vectors[:, values > null], vectors[:, values <= null]
        off_mean = np.square((mean - means.mean(0)) @ rest).sum()
        off_spread = np.trace(rest.T @ covariance @ rest) if needs_covariance else 0.0
        if rest.size and max(off_mean, off_spread) > null:
            return np.full(len(means), np.inf)
        if support.size == 0:
            return np.zeros(len(means))
        return metric(
            means @ support,
            support.T @ covariances @ support,
            mean @ support,
            support.T @ covariance @ support,
            eps,
        )

    return restricted


def no_spread(values: Array, null_variance: float, square: float) -> float:
    """Largest eigenvalue of an oracle's covariance that can be rounding error."""
    return max(float(null_variance * (values[-1] + square)), _rounding(values))


def _rounding(values: Array) -> float:
    """Rounding error in float64 of an eigenvalue 0 next to these, the largest of which is last."""
    # Eigenvalues of a symmetric m x m matrix C are computed to within p(m) eps norm(C), p a modest function
    # of m (LAPACK Users' Guide, 4.7), and the entries of C have rounding errors of that order, too.
    return float(4 * len(values) * np.finfo(np.float64).eps * values[-1])


def _mahalanobis(means: Array, covariances: Array, mean: Array, _: Array, _null: float) -> Array:
    shifts = means - mean
    squared = np.einsum("ri,ri->r", shifts, np.linalg.solve(covariances, shifts[..., None])[..., 0])
    distances: Array = np.sqrt(np.maximum(0, squared))  # a replicate of few samples can be indefinite
    return distances


def _gelbrich(means: Array, covariances: Array, mean: Array, covariance: Array, _null: float) -> Array:
    # The product of covariances scales with the fourth power of the outputs. Divide by this scale as a
    # power of two, which is exact.
    shifts = means - mean
    largest = max(np.abs(shifts).max(), math.sqrt(max(np.abs(covariances).max(), np.abs(covariance).max())))
    scale = math.ldexp(1.0, math.frexp(largest)[1] - 1)
    shifts, covariances, covariance = shifts / scale, covariances / scale / scale, covariance / scale / scale
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(0, values)) @ vectors.T
    # tr (P^1/2 C P^1/2)^1/2: unlike the oracle's root, the prediction's is the same for all replicates.
    cross = np.linalg.eigvalsh(root @ covariances @ root)
    squared = (
        np.square(shifts).sum(1)
        + np.trace(covariances, axis1=1, axis2=2)
        + np.maximum(0, values).sum()
        - 2 * np.sqrt(np.maximum(0, cross)).sum(1)
    )
    distances: Array = scale * np.sqrt(np.maximum(0, squared))
    return distances


def _kl(means: Array, covariances: Array, mean: Array, covariance: Array, _null: float) -> Array:
    values, vectors = np.linalg.eigh(covariance)
    # A prediction has no rounding of sampled outputs; only that of the matrix can make it singular.
    if values[0] <= _rounding(values):
        return np.full(len(means), np.inf)
    whitening = vectors / np.sqrt(values)
    ratios = np.linalg.eigvalsh(whitening.T @ covariances @ whitening)
    shifts = (means - mean) @ whitening
    # r - 1 - log r of each ratio r, by log1p: near 1 it is half the square of r - 1.
    excess = np.maximum(ratios, _LEAST_RATIO) - 1
    divergences: Array = (excess - np.log1p(excess)).sum(1) / 2 + np.square(shifts).sum(1) / 2
    return divergences


def checked_arguments(oracle: Moments | Samples, prediction: Prediction) -> tuple[Moments, Array, Array]:
    """The oracle's moments, and a prediction's mean, shape (m,), and covariance, shape (m, m)."""
    moments = oracle if isinstance(oracle, Moments) else Moments.from_samples(oracle)
    if not isinstance(prediction, Gaussian | DiagonalGaussian):
        raise ValueError(f"the prediction must be Gaussian, got {type(prediction).__name__}")
    if prediction.batch != 1 or prediction.dimension != len(moments.mean):
        raise ValueError(
            f"the prediction must be one law of {len(moments.mean)} outputs, got a batch of "
            f"{prediction.batch} with {prediction.dimension}"
        )
    mean = prediction.mean.detach().cpu().double().reshape(-1).numpy()
    covariance = prediction.covariance.detach().cpu().double()[0].numpy()
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise ValueError("the prediction has non-finite moments")
    return moments, mean, covariance


METRICS: dict[str, Metric] = {"kl": _within_support(_kl, True), "bures": _gelbrich}
"""Distances of the moments of many oracles to one prediction: :func:`gaussian_kl`, :func:`bures`."""
