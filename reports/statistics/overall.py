"""Rules compared by one score over many settings, each a kind of nets at one noise level."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from sdp_bench.bench.metrics import Metric, recorded_metric
from sdp_bench.reports.statistics.ranking import LEVEL, UNIT
from sdp_bench.reports.statistics.replicates import MIN_LEVELS
from sdp_bench.reports.style.rules import RuleTraits

SETTING = ("activation", "depth", "network", "recipe", "noise", "sigma")
"""Columns that identify a setting."""
Score = Callable[[Metric, NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
"""Compute scores, lower is better, from a metric, values and floors."""
COVERAGE = 0.8
"""Share of the settings in which a rule must have been measured."""


@dataclass(frozen=True, eq=False)
class Overall:
    """Mean scores, lower is better, of rules that were all measured in the same settings, best first.

    All settings have the same weight, however many nets and inputs they have. Nets and inputs are random;
    settings are fixed, because they were chosen. The squared standard error of a mean is that over nets plus
    that over inputs, which is slightly too large; see
    :class:`sdp_bench.reports.statistics.replicates.Replicates`. A net (or input) contributes the sum of its
    deviations in all settings.

    `at_places` holds the mean scores, shape (settings, rules), and `of` is the number of settings in which
    any rule was measured. `deviations`, shape (units, rules), is the contribution to the overall mean of each
    pair of net and input in a setting, relative to the mean of that setting. `nets` and `inputs` number the
    nets and inputs of these units.

    References
    ----------
    Cameron, Gelbach and Miller, "Robust inference with multiway clustering", J. Bus. Econ. Statist. 29, 2011.
    """

    rules: tuple[str, ...]
    at_places: NDArray[np.float64]
    deviations: NDArray[np.float64]
    nets: NDArray[np.int64]
    inputs: NDArray[np.int64]
    of: int

    @classmethod
    def measured(
        cls,
        frame: pd.DataFrame,
        score: Score,
        traits: RuleTraits,
        setting: Sequence[str] = SETTING,
        least: int = 2,
    ) -> Overall | None:
        """Compare rules by the measurements of one metric; components of a measurement are averaged.

        `setting` names the columns that identify a setting. Nets that differ in these columns are not
        replicates of each other, so that their differences are no part of the intervals.

        References are skipped, then rules measured in less than :data:`COVERAGE` of the settings, and finally
        settings in which a remaining rule is missing. Return None if fewer than `least` rules remain.
        """
        rules, names = pd.factorize(frame["rule"])
        ranked = np.array([not traits.is_reference(str(name)) for name in names], dtype=bool)
        frame = frame[ranked[rules]]
        if frame.empty:
            return None
        units, first = numbered(frame, (*setting, *UNIT))
        rules, names = pd.factorize(frame["rule"])
        scores = _table(units, rules, _scores(frame, score))
        places = numbered(frame.iloc[first], setting)[0]
        whole = _whole(scores, places)
        common = whole.mean(0) >= COVERAGE
        kept: NDArray[np.bool_] = np.logical_and.reduce(whole[:, common], axis=1)
        if common.sum() < least or not kept.any():
            return None
        rows = kept[places]
        scores, of_units = scores[rows][:, common], frame.iloc[first[rows]]
        places = pd.factorize(places[rows])[0]
        means = _means(scores, places)
        counts = np.bincount(places)
        deviations = (scores - means[places]) / (counts[places] * len(counts))[:, np.newaxis]
        order = np.argsort(means.mean(0), kind="stable")
        nets, inputs = (pd.factorize(of_units[name])[0] for name in UNIT)
        known = np.array(names, dtype=object)[common][order]
        return cls(tuple(known), means[:, order], deviations[:, order], nets, inputs, len(whole))

    @property
    def places(self) -> int:
        return len(self.at_places)

    def mean(self, rule: str) -> float:
        return float(self.at_places[:, self.rules.index(rule)].mean())

    def half_width(self, rule: str) -> float:
        """Half the width of the 95 % interval of the mean score; NaN with too few nets and inputs."""
        error, freedom = self._error(self.deviations[:, self.rules.index(rule)])
        return float(stdtrit(freedom, 1 - LEVEL / 2)) * error

    def best_at(self, rule: str, among: Sequence[str]) -> int:
        """Number of settings in which `rule` has the best mean `among` some rules."""
        columns = [self.rules.index(each) for each in among]
        return int((self.at_places[:, columns].argmin(1) == list(among).index(rule)).sum())

    def beats(self, one: str, other: str, comparisons: int = 1) -> bool:
        """Whether `one` is significantly better than `other`, corrected for the number of comparisons."""
        return self.p_better(one, other) <= LEVEL / comparisons

    def p_better(self, one: str, other: str) -> float:
        """One-sided p-value of "`one` is better than `other`"; 1 with too few nets and inputs."""
        return self._p(one, other)

    @functools.cached_property
    def _p(self) -> Callable[[str, str], float]:
        return functools.cache(self._p_of)

    def _p_of(self, one: str, other: str) -> float:
        first, second = self.rules.index(one), self.rules.index(other)
        error, freedom = self._error(self.deviations[:, second] - self.deviations[:, first])
        ahead = self.mean(other) - self.mean(one)
        if not error > 0:
            return 1.0
        return float(stdtr(freedom, -ahead / error))

    def _error(self, deviations: NDArray[np.float64]) -> tuple[float, float]:
        """Standard error of a mean and its degrees of freedom; NaN if nets and inputs are all fixed."""
        squares, levels = [], []
        for groups in (self.nets, self.inputs):
            count = int(groups.max()) + 1
            if count >= MIN_LEVELS:
                squares.append(float((np.bincount(groups, deviations) ** 2).sum()) * count / (count - 1))
                levels.append(count)
        if not squares:
            return math.nan, math.inf
        return math.sqrt(sum(squares)), float(min(levels) - 1)


def numbered(frame: pd.DataFrame, names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Number the distinct rows of some columns (missing values are equal); return their first places too."""
    codes = np.zeros(len(frame), dtype=np.int64)
    for name in names:
        own = pd.factorize(frame[name])[0]
        codes = pd.factorize(codes * (own.max() + 2) + own + 1)[0]
    first = np.full(codes.max() + 1, len(frame))
    np.minimum.at(first, codes, np.arange(len(frame)))
    return codes, first


def _scores(frame: pd.DataFrame, score: Score) -> NDArray[np.float64]:
    value, floor = frame["value"].to_numpy(), frame["floor"].to_numpy()
    scores = np.full(len(frame), math.nan)
    codes, names = pd.factorize(frame["metric"])
    for code, name in enumerate(names):
        own = codes == code
        scores[own] = score(recorded_metric(str(name)), value[own], floor[own])
    return scores


def _table(
    units: NDArray[np.int64], rules: NDArray[np.int64], scores: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean score by unit and rule; NaN if not measured."""
    shape = units.max() + 1, rules.max() + 1
    cells = units * shape[1] + rules
    size = shape[0] * shape[1]
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = np.bincount(cells, scores, size) / np.bincount(cells, minlength=size)
    return means.reshape(shape)


def _whole(scores: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a rule has a finite score for every unit of a setting, by setting and rule."""
    missing = ~np.isfinite(scores)
    return ~np.array([np.bincount(places, own) > 0 for own in missing.T]).T


def _means(scores: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    counts = np.bincount(places)
    return np.array([np.bincount(places, own) / counts for own in scores.T]).T
