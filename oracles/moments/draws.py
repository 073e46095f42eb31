"""Errors of a sampling rule under several seeds, relative to the moments of one oracle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sdp_bench.oracles.moments.moments import METRICS, Moments, Prediction, checked_arguments


def moment_errors(
    moments: Moments, predictions: Sequence[Prediction], metric: str
) -> tuple[NDArray[np.float64], float]:
    """Distances of several predictions to the moments of one oracle, and the oracle's share in them."""
    distance, null = METRICS[metric], moments.null_variance
    values = np.empty(len(predictions))
    logs = []
    means, covariances = moments.replicates(_FEW)
    for k, prediction in enumerate(predictions):
        _, mean, covariance = checked_arguments(moments, prediction)
        values[k] = distance(moments.mean[None], moments.covariance[None], mean, covariance, null)[0]
        if k < _FEW:
            logs.append(_log(distance(means, covariances, mean, covariance, null)))
    noise = np.mean(logs, axis=0)
    return _log(values), float(noise.std()) if np.isfinite(noise).all() else 0.0


_FEW = 16  # number of predictions that estimate the oracle's noise; more hardly change it
_TINY = 1e-300  # keeps the logarithm of a distance of 0 finite


def _log(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(np.maximum(values, _TINY))
