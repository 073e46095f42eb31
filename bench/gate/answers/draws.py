"""Predictions of a sampling rule over many seeds: means and standard deviations of numbers of each draw.

The numbers are relative to a reference, one prediction under a separate seed, so that the baseline's and new
draws have the same units, which do not depend on either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sdp_bench.bench.gate.answers.drift import null_variance
from sdp_bench.bench.gate.answers.moments import Array, PredictedMoments
from sdp_bench.bench.gate.documents import Extended

OVERALL = 4
"""How many numbers of a draw, its last ones, describe all outputs together."""
LEVEL, FACTOR, SPREAD, SLANT = range(OVERALL)
"""The indices of these numbers: the mean's shift in standard deviations, the mean along the reference's, the
variances, and the covariances along the reference's correlations.
"""


@dataclass(frozen=True, eq=False)
class Units:
    """Units of the numbers of draws: mean and standard deviations of a reference."""

    reference: PredictedMoments

    @cached_property
    def deviation(self) -> Array:
        """Standard deviations of the outputs; for a constant output, its rounding error."""
        variance = np.diag(self.reference.covariance)
        return np.sqrt(np.maximum(variance, null_variance(self.reference)))

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows and columns of the covariances of two outputs."""
        return np.triu_indices(len(self.deviation), 1)

    @property
    def width(self) -> int:
        return 2 * len(self.deviation) + len(self.pairs[0]) + OVERALL

    def numbers(self, drawn: Sequence[PredictedMoments]) -> Array:
        """Return a row of numbers for each draw: means, variances, covariances, and the four overall ones."""
        scale = np.outer(self.deviation, self.deviation)
        centre = self.reference.mean / self.deviation
        means = np.array([each.mean for each in drawn]) / self.deviation - centre
        covariances = np.array([each.covariance for each in drawn]) / scale
        variances = np.diagonal(covariances, axis1=1, axis2=2)
        correlations = covariances[:, *self.pairs]
        # 1 plus the component of the shift along the reference's mean: a factor of the mean
        factor = 1 + means @ centre / max(float(centre @ centre), np.finfo(float).tiny)
        slant = correlations @ _direction((self.reference.covariance / scale)[self.pairs])
        overall = np.stack([means.mean(1), factor, variances.mean(1), slant], 1)
        return np.hstack([means, variances, correlations, overall])

    def moments(self, numbers: Sequence[float]) -> PredictedMoments:
        mean, variance, correlation, _ = parts(np.asarray(numbers), len(self.deviation))
        scale = np.outer(self.deviation, self.deviation)
        covariance = self.symmetric(variance, correlation) * scale
        return PredictedMoments(self.reference.mean + mean * self.deviation, covariance)

    def symmetric(self, diagonal: Array, pairs: Array) -> Array:
        """Return a symmetric matrix, given its diagonal and upper triangle."""
        matrix = np.diag(diagonal)
        matrix[self.pairs] = matrix.T[self.pairs] = pairs
        return matrix


def parts(numbers: Array, outputs: int) -> list[Array]:
    """Split the last axis into means, variances, covariances and the four overall numbers."""
    return np.split(numbers, [outputs, 2 * outputs, numbers.shape[-1] - OVERALL], -1)


def _direction(correlations: Array) -> Array:
    norm = float(np.linalg.norm(correlations))
    if norm == 0:
        return np.full(correlations.shape, 1 / max(1, len(correlations)))
    return correlations / norm


_NONE = Extended(0.0)


@dataclass(frozen=True)
class Draws:
    """Summary of draws with many seeds in one cell or probe."""

    number: int  # seeds
    # mean and standard deviation over seeds of `Units.numbers`
    mean: list[float]
    sd: list[float]
    # "kl" or "bures" if there is an oracle; the error is the logarithm of that distance to its moments
    metric: str = ""
    # mean and standard deviation of the error; infinite if a draw has no distance, or an infinite one
    error: Extended = _NONE
    error_sd: Extended = _NONE

    @classmethod
    def of(cls, numbers: Array, metric: str = "", errors: Array | None = None) -> Draws:
        """Return the summary of numbers, shape (draws, numbers), and errors, shape (draws,)."""
        found = cls(len(numbers), numbers.mean(0).tolist(), numbers.std(0, ddof=1).tolist())
        if errors is None:
            return found
        spread = float(errors.std(ddof=1)) if np.isfinite(errors).all() else float("inf")
        error = Extended(float(errors.mean()))
        return cls(found.number, found.mean, found.sd, metric, error, Extended(spread))
