"""Power of the tests of sampling rules under new draws, from the noise in a baseline.

These are lower bounds: they refer to a single test at the first and smallest level of Holm's method, as if
all sampling rules of the baseline were tested. The draws of the run are assumed to scatter like those of the
baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from sdp_bench.bench.gate.answers import THRESHOLD
from sdp_bench.bench.gate.sampling import FACTOR, LEVEL, SIGNIFICANCE, SPREAD, Draws, parts

Array = NDArray[np.float64]

_TOGETHER = 5  # tests over all settings of a rule
_HERE = 3  # tests in a setting, and one more if it has an oracle


class Power:
    """Power for one rule of a baseline, when `rules` rules are tested.

    `draws` and `outputs` (their number) are by setting.
    """

    def __init__(self, draws: Mapping[str, Draws], outputs: Mapping[str, int], rules: int) -> None:
        self._rules, self._rows = rules, []
        self._single = rules * sum(_HERE + bool(each.metric) for each in draws.values())
        for key, each in draws.items():
            mean, stderr = np.array(each.mean), np.array(each.sd) * np.sqrt(2 / each.number)
            self._rows.append((parts(mean, outputs[key]), parts(stderr, outputs[key])))

    def covariance(self, factor: float) -> float:
        """Power for a factor of all covariances."""
        stderr = np.array([s[3][SPREAD] / m[3][SPREAD] for m, s in self._rows])
        return self._in_all(np.full(len(stderr), abs(factor - 1)), stderr)

    def mean_shift(self, deviations: float) -> float:
        """Power for means shifted by a share of their standard deviations."""
        effect = np.array([deviations * np.sqrt(m[1]).mean() for m, _ in self._rows])
        return self._in_all(effect, np.array([s[3][LEVEL] for _, s in self._rows]))

    def mean_factor(self, factor: float) -> float:
        """Power for a factor of all means."""
        effect = np.array([(factor - 1) * m[3][FACTOR] for m, _ in self._rows])
        return self._in_all(effect, np.array([s[3][FACTOR] for _, s in self._rows]))

    def covariance_in_one(self, factor: float) -> float:
        """Power for a factor of the covariance in one setting, averaged over settings."""
        grown = np.sqrt((1 + factor**2) / 2)
        return self._in_one([((factor - 1) * np.ones(len(m[1])), grown * s[1] / m[1]) for m, s in self._rows])

    def shift_in_one(self, deviations: float) -> float:
        """Power for a shifted mean in one setting, averaged over settings."""
        return self._in_one([(deviations * np.sqrt(m[1]), s[0]) for m, s in self._rows])

    def _in_all(self, effect: Array, stderr: Array) -> float:
        weights = 1 / (np.square(stderr) + THRESHOLD**2)
        weights /= weights.sum()
        level = SIGNIFICANCE / 2 / (_TOGETHER * self._rules)
        return float(_seen(weights @ effect, np.linalg.norm(weights * stderr), level))

    def _in_one(self, effects: Sequence[tuple[Array, Array]]) -> float:
        level = SIGNIFICANCE / 2 / self._single
        return float(np.mean([np.max(_seen(effect, se, level / len(se))) for effect, se in effects]))


def _seen(effect: Any, stderr: Any, level: float) -> Any:
    limit = norm.isf(level / 2)
    return norm.sf(limit - effect / stderr) + norm.cdf(-limit - effect / stderr)
