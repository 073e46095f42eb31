"""The change of a prediction since the baseline, in units of its spread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdp_bench.bench.gate.answers.moments import PredictedMoments

THRESHOLD = 1e-3
"""Drift above this is a change. An error of .5 % of a covariance gives .005, an error of the mean by .2 % of
a standard deviation .002; other processors and libraries change float64 moments by about 1e-9.
"""

_NULL = 1e-12  # relative to the largest variance: such directions have standard deviations below 1e-6 of it
_POINT = 1e-18  # relative to the squared mean: the rounding error of a point mass's variance


REPEATABLE = 1e-10
"""Largest relative difference between two calls of a rule without seeds: threads may sum in another order."""


@dataclass(frozen=True)
class Drift:
    """Distance of two predictions, relative to the older one."""

    mean: float  # norm of ``L^-1 d`` for a mean that moved by d, in standard deviations
    # Frobenius norm of ``L^-1 D L^-T`` over sqrt(m), for a covariance that changed by D (relative)
    covariance: float

    @property
    def size(self) -> float:
        return max(self.mean, self.covariance)

    @property
    def numbers(self) -> dict[str, float]:
        return {"mean drift": self.mean, "covariance drift": self.covariance}


def drift(old: PredictedMoments, new: PredictedMoments) -> Drift:
    """Return the drift from `old` to `new`: 0 if all numbers are equal, infinite if outputs differ in number.

    L L^T is the older covariance. Numerically null directions, with a variance below 1e-12 of the largest
    (and 1e-18 of the squared mean), count as if they had that variance. A rule that gives them spread is then
    detected, and rounding errors in these directions are ignored.
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
    """Variance that is negligible compared with these moments."""
    largest = float(np.linalg.norm(moments.covariance, 2))
    return max(_NULL * largest, _POINT * float(np.square(moments.mean).sum()), float(np.finfo(float).tiny))


def repeats(first: PredictedMoments, second: PredictedMoments) -> bool:
    """Return whether two predictions differ by rounding only, `REPEATABLE` of their largest numbers."""
    deviation = np.sqrt(np.abs(np.diag(first.covariance)).max())
    return _close(first.mean, second.mean, float(deviation)) and _close(first.spread, second.spread)


def _close(a: NDArray[np.float64], b: NDArray[np.float64], scale: float = 0.0) -> bool:
    size = max(float(np.abs(a).max()), scale)
    return a.shape == b.shape and bool((np.abs(a - b) <= REPEATABLE * size).all())
