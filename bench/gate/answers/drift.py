"""How far a prediction has moved from the baseline's, in units of its own spread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdp_bench.bench.gate.answers.moments import PredictedMoments

THRESHOLD = 1e-3
"""Drift above this is a change. A covariance off by .5 % has .005, a mean off by .2 % of a standard deviation
.002; other processors and libraries move float64 moments by about 1e-9."""

_NULL = 1e-12  # of the largest variance: directions with less have standard deviations below 1e-6 of it
_POINT = 1e-18  # of the squared mean: what rounding makes of the variance of a point mass


REPEATABLE = 1e-10
"""Relative difference of two calls of a rule without seeds: other threads may sum in another order."""


@dataclass(frozen=True)
class Drift:
    """Distance of two predictions, relative to the older one.

    Attributes
    ----------
    mean : float
        Norm of ``L^-1 d`` for a mean that moved by d, in standard deviations.
    covariance : float
        Frobenius norm of ``L^-1 D L^-T`` over sqrt(m), for a covariance that changed by D: its relative
        change.
    """

    mean: float
    covariance: float

    @property
    def size(self) -> float:
        """The larger of the two."""
        return max(self.mean, self.covariance)

    @property
    def numbers(self) -> dict[str, float]:
        """For machines."""
        return {"mean drift": self.mean, "covariance drift": self.covariance}


def drift(old: PredictedMoments, new: PredictedMoments) -> Drift:
    """Drift from `old` to `new`.

    L L^T is the older covariance. Its numerically null directions, of a variance below 1e-12 of the largest
    (and 1e-18 of the squared mean), count as if they had that variance, so that a rule which gives them
    spread is seen and the rounding of one which does not is not.

    Parameters
    ----------
    old, new : PredictedMoments
        The baseline's, and today's.

    Returns
    -------
    Drift
        In units of the older standard deviations: exactly 0 if all numbers are equal, infinite if the outputs
        are not as many.
    """
    if old.mean.shape != new.mean.shape:
        return Drift(np.inf, np.inf)
    if old.equals(new):
        return Drift(0.0, 0.0)
    values, vectors = np.linalg.eigh(old.covariance)
    whitening = vectors / np.sqrt(np.maximum(values, null_variance(old)))
    shift = whitening.T @ (new.mean - old.mean)
    change = whitening.T @ (new.covariance - old.covariance) @ whitening
    return Drift(float(np.linalg.norm(shift)), float(np.linalg.norm(change) / np.sqrt(len(shift))))


def null_variance(moments: PredictedMoments) -> float:
    """Variance that counts as none beside these moments."""
    largest = float(np.linalg.norm(moments.covariance, 2))
    return max(_NULL * largest, _POINT * float(np.square(moments.mean).sum()), float(np.finfo(float).tiny))


def repeats(first: PredictedMoments, second: PredictedMoments) -> bool:
    """Whether two answers differ by rounding alone, :data:`REPEATABLE` of their largest numbers."""
    deviation = np.sqrt(np.abs(np.diag(first.covariance)).max())
    return _close(first.mean, second.mean, float(deviation)) and _close(first.spread, second.spread)


def _close(a: NDArray[np.float64], b: NDArray[np.float64], scale: float = 0.0) -> bool:
    size = max(float(np.abs(a).max()), scale)
    return a.shape == b.shape and bool((np.abs(a - b) <= REPEATABLE * size).all())
