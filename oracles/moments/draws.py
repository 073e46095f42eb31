"""Draws of a sampling rule under several seeds against one oracle's moments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sdp_bench.oracles.moments.moments import METRICS, Moments, Prediction, checked_arguments


def moment_errors(
    moments: Moments, predictions: Sequence[Prediction], metric: str
) -> tuple[NDArray[np.float64], float]:
    """Distance of each of several predictions to one oracle's moments, and the oracle's share in it."""
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


_FEW = 16  # draws whose errors say what the oracle's noise adds; more would say the same
_TINY = 1e-300  # a distance of 0 has a logarithm all the same


def _log(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(np.maximum(values, _TINY))
