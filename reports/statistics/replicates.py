"""Rules compared in pairs over trained nets and inputs, and which of several may be the best."""

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
from sdp_bench.reports.statistics.ranking import Scores
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.rules import RuleTraits

LEVEL = 0.05
"""Of a false winner at one place; each interval leaves out its mean as often."""
MIN_LEVELS = 3
"""Nets, or inputs, from which on their spread is estimated; fewer are taken as they are."""


@dataclass(frozen=True)
class Contest:
    """The rule with the best mean, and those that cannot be told from it, best first."""

    leader: str
    tied: tuple[str, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether the leader is shown to be the best."""
        return not self.tied


@dataclass(frozen=True, eq=False)
class Replicates:
    """Scores, lower is better, of rules that were all measured on the same pairs of net and input.

    Nets and inputs are each a random sample where there are :data:`MIN_LEVELS` or more of them; fewer are
    fixed, and what is found holds for them alone. Where all nets share their inputs (crossed), the squared
    standard error of a mean is that of the net means plus that of the input means, which is a little too
    large, with the smaller count less 1 as degrees of freedom; a mean over nets that have inputs of their own
    has that of the net means. Where both are fixed, only the errors of the measurements themselves are left.

    With effects a of n nets, b of m inputs and c of pairs, the net means have the variance a + c / m, b being
    shared by all of them, and the input means b + c / n: the sum of both over their numbers is
    a / n + b / m + 2 c / (n m), one c / (n m) more than the mean's own variance. It is the two-way clustered
    variance of Cameron, Gelbach and Miller without the term that they subtract, which may turn it negative.

    References
    ----------
    Cameron, Gelbach and Miller, "Robust inference with multiway clustering", J. Bus. Econ. Statist. 29, 2011.
    Gupta, "On some multiple decision (selection and ranking) rules", Technometrics 7, 1965.
    Hsu, "Constrained simultaneous confidence intervals for multiple comparisons with the best", Ann. Statist.
    12, 1984.

    Attributes
    ----------
    rules : tuple of str
    values, errors : arrays, shape (pairs, rules)
        Scores and their standard errors.
    nets, inputs : arrays of int, shape (pairs,)
        What each pair is of.
    sampling : frozenset of str
        Rules that sample, of these or others.
    """

    rules: tuple[str, ...]
    values: NDArray[np.float64]
    errors: NDArray[np.float64]
    nets: NDArray[np.int64]
    inputs: NDArray[np.int64]
    sampling: frozenset[str]

    @classmethod
    def of(cls, metric: Metric, measured: pd.DataFrame, traits: RuleTraits) -> Replicates:
        """Those of the measurements of one metric; rules not measured on every pair are left out."""
        return cls.of_scores(
            Scores.of(metric, measured, tuple(traits.in_order(measured["rule"].unique()))), traits
        )

    @classmethod
    def of_scores(cls, scores: Scores, traits: RuleTraits) -> Replicates:
        """Those of the rules that have a finite score on every pair."""
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
        """Nets."""
        return int(self.nets.max()) + 1

    @functools.cached_property
    def input_count(self) -> int:
        """Inputs of all nets together."""
        return int(self.inputs.max()) + 1

    @property
    def crossed(self) -> bool:
        """Whether nets share their inputs (a pair may be missing), and do not have inputs of their own."""
        return 2 * len(self.nets) > self.net_count * self.input_count

    @property
    def fixed(self) -> bool:
        """Whether there are too few nets and too few inputs for any spread to be known."""
        return self.net_count < MIN_LEVELS and self.input_count < MIN_LEVELS

    @property
    def design(self) -> str:
        """What means are over, for people."""
        nets = labels.plural(self.net_count, "net")
        if len(self.nets) == self.net_count * self.input_count:
            return f"{nets} × {labels.plural(self.input_count, 'input')}"
        return f"{nets}, {labels.plural(len(self.nets), 'input')} in all"

    def mean(self, rule: str) -> float:
        """Mean score of a rule."""
        return float(self._column(rule).mean())

    def half_width(self, rule: str) -> float:
        """Half the width of the 95 % interval of a rule's mean score; NaN where nothing is known of it."""
        error, freedom = self._error(self._column(rule))
        if self.fixed:
            one = self.errors[:, self.rules.index(rule)]
            error = math.nan if rule in self.sampling else float(np.sqrt((one**2).sum())) / len(one)
        return float(stdtrit(freedom, 1 - LEVEL / 2)) * error

    def p_better(self, one: str, other: str) -> float:
        """p-value of "one rule is better than another" (its null: as good or worse), one-sided.

        Where all replicates show the same difference the sign test stands in for t. Of a sampling rule with
        fixed nets and inputs nothing is known: it was drawn once for each.

        Parameters
        ----------
        one, other : str
            Rules among `rules`.

        Returns
        -------
        float
            1 where nothing is known.
        """
        return self._p(one, other)

    @functools.cached_property
    def _p(self) -> Callable[[str, str], float]:
        """Budgets and the front ask of the same pairs."""
        return functools.cache(self._p_of)

    def _p_of(self, one: str, other: str) -> float:
        ahead = self._column(other) - self._column(one)
        mean = float(ahead.mean())
        if self.fixed:
            # Errors of measurements are of many samples, so that they are known: a normal test and not t.
            pair = [self.rules.index(one), self.rules.index(other)]
            error = float(np.sqrt((self.errors[:, pair] ** 2).sum())) / len(ahead)
            if one in self.sampling or other in self.sampling or not error > 0:
                return 1.0
            return float(ndtr(-mean / error))
        error, freedom = self._error(ahead)
        if error <= self._negligible:
            # As many signs as there are levels of the factor that has fewest, all alike (sign test).
            return float(0.5 ** (freedom + 1)) if mean > self._negligible else 1.0
        return float(stdtr(freedom, -mean / error))

    @functools.cached_property
    def _negligible(self) -> float:
        """Below this differences are float64's doing, and t would divide rounding by rounding."""
        return 1e-12 * float(np.abs(self.values).max())

    def contest(self, rules: Sequence[str]) -> Contest | None:
        """Which of some rules may be the best.

        A rule is ruled out where the leader is better at the one-sided level 5 % / 2 / (rules - 1): halved,
        since the leader is chosen by the same numbers, either of two equal rules could be it. So a leader
        with nothing tied to it is falsely claimed with a probability of at most 5 %, and the best rule is
        among leader and tied with one of at least 95 % at one place (Bonferroni; subset selection after
        Gupta 1965, comparison with the best after Hsu 1984). With fixed nets and inputs sampling rules are
        left out, having been drawn once.

        Parameters
        ----------
        rules : sequence of str
            Those that were not measured on every pair are left out.

        Returns
        -------
        Contest or None
            None where no rule is left.
        """
        known = [rule for rule in self.rules if rule in rules]
        if self.fixed:
            known = [rule for rule in known if rule not in self.sampling]
        if not known:
            return None
        ranked = sorted(known, key=self.mean)
        leader, rest = ranked[0], ranked[1:]
        return Contest(leader, tuple(rule for rule in rest if not self.beats(leader, rule, 2 * len(rest))))

    def beats(self, one: str, other: str, comparisons: int = 1) -> bool:
        """Whether one rule is shown to be better than another, as one of so many comparisons."""
        return self.p_better(one, other) <= LEVEL / comparisons

    def _column(self, rule: str) -> NDArray[np.float64]:
        return self.values[:, self.rules.index(rule)]

    def _error(self, values: NDArray[np.float64]) -> tuple[float, float]:
        """Standard error of a mean and its degrees of freedom; infinite freedom where all is fixed."""
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
