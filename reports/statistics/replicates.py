"""Pairwise comparisons of rules over trained nets and inputs, and the set that may contain the best rule."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr, stdtrit

from sdp_bench.bench.metrics import Metric
from sdp_bench.reports.statistics.ranking import LEVEL, Ranking, Scores, rank
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.rules import RuleTraits

MIN_LEVELS = 3
"""Smallest number of nets, or inputs, whose spread is estimated; fewer are treated as fixed."""


@dataclass(frozen=True, eq=False)
class Replicates:
    """Scores, lower is better, of rules that were all measured on the same pairs of net and input.

    Nets and inputs are each treated as a random sample if there are at least :data:`MIN_LEVELS`. Fewer are
    treated as fixed, and conclusions hold for these alone. If all nets share their inputs (a crossed design),
    the squared standard error of a mean is that of the net means plus that of the input means. This is
    slightly too large; the degrees of freedom are the smaller count less 1. If nets have inputs of their own,
    it is that of the net means. If both are fixed, only the errors of the measurements remain.

    With effects a of n nets, b of m inputs and c of pairs, the net means have the variance a + c / m, since
    all nets share b, and the input means have b + c / n. Divided by their numbers, they add up to a / n + b /
    m + 2 c / (n m), which is c / (n m) more than the variance of the mean. This is the two-way clustered
    variance of Cameron, Gelbach and Miller without the term that they subtract, which can make it negative.

    `values` and `errors` (standard errors) have the shape (pairs, rules); `nets` and `inputs` number the net
    and input of each pair. `sampling` names the rules that sample, among these and others.

    References
    ----------
    Cameron, Gelbach and Miller, "Robust inference with multiway clustering", J. Bus. Econ. Statist. 29, 2011.
    """

    rules: tuple[str, ...]
    values: NDArray[np.float64]
    errors: NDArray[np.float64]
    nets: NDArray[np.int64]
    inputs: NDArray[np.int64]
    sampling: frozenset[str]

    @classmethod
    def of(cls, metric: Metric, measured: pd.DataFrame, traits: RuleTraits) -> Replicates:
        """Compare rules by the measurements of one metric; rules not measured on every pair are skipped."""
        return cls.of_scores(
            Scores.of(metric, measured, tuple(traits.in_order(measured["rule"].unique()))), traits
        )

    @classmethod
    def of_scores(cls, scores: Scores, traits: RuleTraits) -> Replicates:
        """Compare the rules that have a finite score on every pair."""
        whole = np.isfinite(scores.values).all(0)
        return cls(
            tuple(np.array(scores.rules, dtype=object)[whole]),
            scores.values[:, whole],
            scores.errors[:, whole],
            scores.nets,
            scores.inputs,
            frozenset(filter(traits.is_sampling, scores.rules)),
        )

    @functools.cached_property
    def net_count(self) -> int:
        return int(self.nets.max()) + 1

    @functools.cached_property
    def input_count(self) -> int:
        """Number of distinct inputs of all nets together."""
        return int(self.inputs.max()) + 1

    @property
    def crossed(self) -> bool:
        """Whether nets share their inputs (some pairs may be missing) instead of having their own."""
        return 2 * len(self.nets) > self.net_count * self.input_count

    @property
    def fixed(self) -> bool:
        """Whether nets and inputs are both too few for an estimate of spread."""
        return self.net_count < MIN_LEVELS and self.input_count < MIN_LEVELS

    @property
    def design(self) -> str:
        nets = labels.plural(self.net_count, "net")
        if len(self.nets) == self.net_count * self.input_count:
            return f"{nets} × {labels.plural(self.input_count, 'input')}"
        return f"{nets}, {labels.plural(len(self.nets), 'input')} in all"

    def mean(self, rule: str) -> float:
        return float(self._column(rule).mean())

    def half_width(self, rule: str) -> float:
        """Half the width of the 95 % interval of a rule's mean score; NaN if unknown."""
        error, freedom = self._error(self._column(rule))
        if self.fixed:
            one = self.errors[:, self.rules.index(rule)]
            error = math.nan if rule in self.sampling else float(np.sqrt((one**2).sum())) / len(one)
        return float(stdtrit(freedom, 1 - LEVEL / 2)) * error

    def p_better(self, one: str, other: str) -> float:
        """One-sided p-value of "`one` is better than `other`"; the null hypothesis is "as good or worse".

        If all replicates show the same difference, the sign test replaces t. If nets and inputs are fixed and
        a rule samples, p is 1: it was drawn once for each, and its spread is unknown.
        """
        return self._p(one, other)

    @functools.cached_property
    def _p(self) -> Callable[[str, str], float]:
        """The cached p-values; budgets and the Pareto front compare the same pairs."""
        return functools.cache(self._p_of)

    def _p_of(self, one: str, other: str) -> float:
        ahead = self._column(other) - self._column(one)
        mean = float(ahead.mean())
        if self.fixed:
            # Errors of measurements stem from many samples and count as known: a normal test instead of t.
            pair = [self.rules.index(one), self.rules.index(other)]
            error = float(np.sqrt((self.errors[:, pair] ** 2).sum())) / len(ahead)
            if one in self.sampling or other in self.sampling or not error > 0:
                return 1.0
            return float(ndtr(-mean / error))
        error, freedom = self._error(ahead)
        if error <= self._negligible:
            # The sign test, with one sign for each level of the factor with the fewest levels, all equal.
            return float(0.5 ** (freedom + 1)) if mean > self._negligible else 1.0
        return float(stdtr(freedom, -mean / error))

    @functools.cached_property
    def _negligible(self) -> float:
        """Smaller differences are float64 rounding; t would divide rounding errors by rounding errors."""
        return 1e-12 * float(np.abs(self.values).max())

    def contest(self, rules: Sequence[str]) -> Ranking | None:
        """Rank those of `rules` that were measured on every pair; None if there are none.

        If nets and inputs are fixed, sampling rules are skipped, since they were drawn once.
        """
        known = [rule for rule in self.rules if rule in rules]
        if self.fixed:
            known = [rule for rule in known if rule not in self.sampling]
        return rank(self, known) if known else None

    def beats(self, one: str, other: str, comparisons: int = 1) -> bool:
        """Whether `one` is significantly better than `other`, corrected for the number of comparisons."""
        return self.p_better(one, other) <= LEVEL / comparisons

    def _column(self, rule: str) -> NDArray[np.float64]:
        return self.values[:, self.rules.index(rule)]

    def _error(self, values: NDArray[np.float64]) -> tuple[float, float]:
        """Standard error of a mean and its degrees of freedom; infinite freedom if all is fixed."""
        by_net, by_input = _group_means(values, self.nets), _group_means(values, self.inputs)
        if not self.crossed:
            means = [by_net] if len(by_net) >= MIN_LEVELS else [values]
        else:
            means = [by_net, by_input]
        random = [each for each in means if len(each) >= MIN_LEVELS]
        if not random:
            return math.nan, math.inf
        squares = [float(each.var(ddof=1)) / len(each) for each in random]
        return math.sqrt(sum(squares)), float(min(len(each) for each in random) - 1)


def _group_means(values: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.bincount(groups, values) / np.bincount(groups)
