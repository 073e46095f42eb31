"""The probability that a change of a sampling rule that draws otherwise is seen, by its noise in a baseline.

Lower bounds: of one test at the first, smallest level of Holm's method, as if all sampling rules of the
baseline were tested. Today's draws scatter as the baseline's do.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from sdp_bench.bench.gate.answers.draws import FACTOR, LEVEL, SPREAD, Units, parts
from sdp_bench.bench.gate.answers.drift import THRESHOLD
from sdp_bench.bench.gate.comparisons import evidence

_TOGETHER, _SINGLE = 7, 27 * 4 + 9 * 3  # tests of a rule


class Power:
    """Of one rule of a baseline, beside others."""

    def __init__(self, rule, rules):
        self.rules, self.rows = rules, []
        for key, draws in rule.draws.items():
            outputs = len(Units(rule.moments[key]).deviation)
            mean, stderr = np.array(draws.mean), np.array(draws.sd) * np.sqrt(2 / draws.number)
            self.rows.append((parts(mean, outputs), parts(stderr, outputs)))

    def covariance(self, factor):
        """Of a factor of all covariances."""
        stderr = [s[3][SPREAD] / m[3][SPREAD] for m, s in self.rows]
        return self._together(np.full(len(stderr), abs(factor - 1)), stderr)

    def mean_shift(self, deviations):
        """Of means moved by a share of their standard deviations."""
        effect = [deviations * np.sqrt(m[1]).mean() for m, _ in self.rows]
        return self._together(np.array(effect), [s[3][LEVEL] for _, s in self.rows])

    def mean_factor(self, factor):
        """Of a factor of all means."""
        effect = [(factor - 1) * m[3][FACTOR] for m, _ in self.rows]
        return self._together(np.array(effect), [s[3][FACTOR] for _, s in self.rows])

    def covariance_in_one(self, factor):
        """Of a factor of the covariance in one place, in the mean over places."""
        grown = np.sqrt((1 + factor**2) / 2)
        return self._single([((factor - 1) * np.ones(len(m[1])), grown * s[1] / m[1]) for m, s in self.rows])

    def shift_in_one(self, deviations):
        """Of the mean moved in one place, in the mean over places."""
        return self._single([(deviations * np.sqrt(m[1]), s[0]) for m, s in self.rows])

    def _together(self, effect, stderr):
        weights = 1 / (np.square(stderr) + THRESHOLD**2)
        weights /= weights.sum()
        level = evidence.LEVEL / 2 / (_TOGETHER * self.rules)
        return _seen(weights @ effect, np.linalg.norm(weights * stderr), level)

    def _single(self, effects):
        level = evidence.LEVEL / 2 / (_SINGLE * self.rules)
        return float(np.mean([np.max(_seen(effect, se, level / len(se))) for effect, se in effects]))


def _seen(effect, stderr, level):
    limit = norm.isf(level / 2)
    return norm.sf(limit - effect / stderr) + norm.cdf(-limit - effect / stderr)
