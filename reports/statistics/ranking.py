"""Which rule is best: rules compared over nets and inputs, in one setting and over many, and ranked.

References
----------
Cameron, Gelbach and Miller, "Robust inference with multiway clustering", J. Bus. Econ. Statist. 29, 2011.
Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979.
Gupta, "On some multiple decision (selection and ranking) rules", Technometrics 7, 1965.
Hsu, "Constrained simultaneous confidence intervals for multiple comparisons with the best", Ann. Statist. 12,
1984.
Mogstad, Romano, Shaikh and Wilhelm, "Inference for ranks with applications to mobility across neighbourhoods
and academic achievement across countries", Rev. Econ. Stud. 91, 2024.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrc, ndtr, stdtr, stdtrit

from ...bench.metrics import Metric, recorded_metric
from ..style import labels
from ..style.names import RuleTraits

Labels = bytes
"""Labels of rows as int32, so that numbers that rest on the same rows have the same key in little memory."""


def labels_of(rows: ArrayLike) -> Labels:
    """Return the labels of some rows, sorted."""
    return np.sort(np.asarray(rows, dtype=np.int32)).tobytes()


LEVEL = 0.05
"""Probability of declaring a false winner, and of an interval missing its mean."""

UNIT = ["net", "input"]
"""Columns over which means are taken and rules are paired."""


class PairedComparison(ABC):
    """Mean scores of rules, lower is better, and tests of their paired differences."""

    @abstractmethod
    def mean(self, rule: str) -> float:
        """Return the mean score of a rule."""

    @abstractmethod
    def p_better(self, rule: str, others: Sequence[str]) -> NDArray[np.float64]:
        """Return the one-sided p-values of "`rule` is better than the other", shape (others,)."""

    def beats(self, rule: str, other: str, comparisons: int = 1) -> bool:
        """Whether `rule` is significantly better than `other`.

        The level of 5 % is divided by the number of comparisons (Bonferroni).
        """
        return bool(self.p_better(rule, [other])[0] <= LEVEL / comparisons)


@dataclass(frozen=True)
class Ranking:
    """The rule with the best mean, the rules statistically tied with it, and the others; best first."""

    leader: str
    tied: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()

    @property
    def best(self) -> tuple[str, ...]:
        """The leader and the rules tied with it."""
        return self.leader, *self.tied

    @property
    def marked(self) -> tuple[str, ...]:
        """The best rules as marked in tables; none if all of several rules are tied."""
        return () if self.tied and not self.worse else self.best

    def cheapest(self, seconds: Mapping[str, float]) -> str:
        """Return the rule with the shortest time among the leader and its ties; the leader without times."""
        timed = [rule for rule in self.best if math.isfinite(seconds.get(rule, math.nan))]
        return min(timed, key=seconds.__getitem__, default=self.leader)


def rank(compared: PairedComparison, rules: Sequence[str]) -> Ranking:
    """Rank one rule or more by their means and find those that are statistically tied with the best.

    The leader is compared with each other rule by a one-sided test of their paired differences, corrected by
    Holm's method at the level 5 % / 2. The level is halved because the leader is chosen from the same data:
    either of two equal rules could lead. A leader without ties is thus a false winner with a probability of
    at most 5 %, and the leader and its ties contain the best rule with at least 95 % (subset selection after
    Gupta 1965, comparison with the best after Hsu 1984).
    """
    leader, *others = sorted(rules, key=compared.mean)
    if not others:
        return Ranking(leader)
    p_values = dict(zip(others, compared.p_better(leader, others).tolist(), strict=True))
    worse: set[str] = set()
    for rule in sorted(others, key=p_values.__getitem__):  # Holm: from the smallest p-value to the largest
        if p_values[rule] > LEVEL / 2 / (len(others) - len(worse)):
            break
        worse.add(rule)
    return Ranking(
        leader,
        tuple(rule for rule in others if rule not in worse),
        tuple(rule for rule in others if rule in worse),
    )


def rank_intervals(compared: PairedComparison, rules: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return for each rule the first and last rank that its true mean may have among `rules`.

    Each interval contains the rule's true rank with a probability of at least 95 %. The rule is compared with
    every other rule by a two-sided test of their paired differences, corrected by Holm's method at 5 %. Its
    rank lies after all rules that are significantly better, and before all that are significantly worse
    (Mogstad, Romano, Shaikh and Wilhelm 2024).
    """
    better = np.array([compared.p_better(rule, rules) for rule in rules])  # p-values of "row beats column"
    intervals = {}
    for index, rule in enumerate(rules):
        others = [other for other in range(len(rules)) if other != index]
        p_values = np.minimum(better[index, others], better[others, index])
        ahead = behind = 0
        for column in np.argsort(p_values, kind="stable"):  # Holm: from the smallest p-value to the largest
            if p_values[column] > LEVEL / 2 / (len(others) - ahead - behind):
                break
            other = others[column]
            if better[index, other] < better[other, index]:
                behind += 1
            else:
                ahead += 1
        intervals[rule] = 1 + ahead, len(rules) - behind
    return intervals


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores, lower is better, shape (pairs of net and input, rules); NaN if not measured.

    `errors` are the standard errors of `values`; `nets` and `inputs` number the net and input of each pair.
    """

    rules: tuple[str, ...]
    values: NDArray[np.float64]
    errors: NDArray[np.float64]
    nets: NDArray[np.int64]
    inputs: NDArray[np.int64]

    @staticmethod
    def from_measurements(metric: Metric, measurements: pd.DataFrame, rules: tuple[str, ...]) -> Scores:
        """Return the scores of one metric, by the columns net, input, rule, value, floor and stderr.

        `rules` are the columns of the result, and contain all measured rules.
        """
        nets, _ = pd.factorize(measurements["net"])
        inputs, _ = pd.factorize(measurements["input"])
        pairs, distinct_pairs = pd.factorize(nets * (inputs.max() + 1) + inputs)
        codes, names = pd.factorize(measurements["rule"])
        columns = np.array([rules.index(rule) for rule in names])[codes]
        value = measurements["value"].to_numpy()
        values = np.full((len(distinct_pairs), len(rules)), math.nan)
        errors = values.copy()
        values[pairs, columns] = metric.score(value, measurements["floor"].to_numpy())
        errors[pairs, columns] = metric.score_error(value, measurements["stderr"].to_numpy())
        _, first_rows = np.unique(pairs, return_index=True)
        return Scores(rules, values, errors, nets[first_rows], inputs[first_rows])

    def paired(self, rule: str, other: str) -> Scores:
        """Return the scores of two rules on the pairs of net and input for which both were measured."""
        columns = sorted([self.rules.index(rule), self.rules.index(other)])
        both = ~np.isnan(self.values[:, columns]).any(1)
        nets = pd.factorize(self.nets[both])[0].astype(np.int64)
        inputs = pd.factorize(self.inputs[both])[0].astype(np.int64)
        rules = self.rules[columns[0]], self.rules[columns[1]]
        return Scores(rules, self.values[both][:, columns], self.errors[both][:, columns], nets, inputs)

    @functools.cached_property
    def means(self) -> dict[str, float]:
        """Mean scores of the rules that were measured, over the pairs for which they were."""
        known = ~np.isnan(self.values)
        sums = np.where(known, self.values, 0.0).sum(0)
        counts = known.sum(0)
        return {
            rule: float(sums[column] / counts[column])
            for column, rule in enumerate(self.rules)
            if counts[column]
        }


MIN_LEVELS = 3
"""Smallest number of nets, or inputs, for an estimate of their spread; fewer are treated as fixed."""


@dataclass(frozen=True, eq=False)
class Replicates(Scores, PairedComparison):
    """Scores, lower is better, of rules that were all measured on the same pairs of net and input.

    Nets and inputs are each treated as a random sample if there are at least :data:`MIN_LEVELS`. Fewer are
    treated as fixed, and conclusions hold for these alone. If all nets share their inputs (a crossed design),
    the squared standard error of a mean is that of the net means plus that of the input means. This is
    slightly too large; the degrees of freedom are the smaller count less 1. If nets have separate inputs,
    it is that of the net means. If both are fixed, only the errors of the measurements remain.

    With effects a of n nets, b of m inputs and c of pairs, the net means have the variance a + c / m, since
    all nets share b, and the input means have b + c / n. Divided by their numbers, they add up to a / n + b /
    m + 2 c / (n m), which is c / (n m) more than the variance of the mean. This is the two-way clustered
    variance of Cameron, Gelbach and Miller without the term that they subtract, which can make it negative.

    `errors` include the spread over draws of a sampling rule. `sampling` names the rules that sample, among
    these and others. With `signs`, a rule is better on the inputs of one or two nets only if the sign test of
    "better on most inputs" agrees with t, which is too liberal for few skewed errors.
    """

    sampling: frozenset[str]
    signs: bool = False

    @classmethod
    def of(
        cls, metric: Metric, measurements: pd.DataFrame, traits: RuleTraits, signs: bool = False
    ) -> Replicates:
        """Compare rules by the measurements of one metric; rules not measured on every pair are skipped."""
        rules = tuple(traits.in_order(measurements["rule"].unique()))
        return cls.of_scores(metric, Scores.from_measurements(metric, measurements, rules), traits, signs)

    @classmethod
    def of_scores(cls, metric: Metric, scores: Scores, traits: RuleTraits, signs: bool = False) -> Replicates:
        """Compare the rules that have a finite score on every pair."""
        whole = np.isfinite(scores.values).all(0)
        rules = tuple(np.array(scores.rules, dtype=object)[whole])
        draws = [spread_of_draws(metric, traits[rule].sampling) for rule in rules]
        return cls(
            rules,
            scores.values[:, whole],
            np.hypot(scores.errors[:, whole], draws),
            scores.nets,
            scores.inputs,
            frozenset(filter(traits.is_sampling, scores.rules)),
            signs,
        )

    @property
    def net_count(self) -> int:
        return int(self.nets.max()) + 1

    @property
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
        """Numbers of nets and inputs in words."""
        nets = labels.plural(self.net_count, "net")
        if len(self.nets) == self.net_count * self.input_count:
            return f"{nets} × {labels.plural(self.input_count, 'input')}"
        return f"{nets}, {labels.plural(len(self.nets), 'input')} in all"

    def mean(self, rule: str) -> float:
        return float(self.values[:, self.rules.index(rule)].mean())

    def half_width(self, rule: str) -> float:
        """Half the width of the 95 % interval of a rule's mean score; NaN if unknown."""
        if self.fixed:
            return self.half_width_here(rule)
        error, freedom = self._error(self.values[:, self.rules.index(rule)])
        return float(stdtrit(freedom, 1 - LEVEL / 2)) * error

    def half_width_here(self, rule: str) -> float:
        """Like :meth:`half_width`, for the mean over these nets and inputs alone."""
        errors = self.errors[:, self.rules.index(rule)]
        return float(stdtrit(math.inf, 1 - LEVEL / 2)) * float(np.sqrt((errors**2).sum())) / len(errors)

    def p_better(self, rule: str, others: Sequence[str]) -> NDArray[np.float64]:
        """One-sided p-values of "`rule` is better than the other"; null hypothesis "as good or worse".

        If all replicates show the same difference, the sign test replaces t. If nets and inputs are fixed,
        the errors of the measurements are used, and p is 1 if one of them is unknown.
        """
        column, other_columns = self.rules.index(rule), [self.rules.index(other) for other in others]
        differences = self.values[:, other_columns] - self.values[:, [column]]  # positive: `rule` is better
        means = differences.mean(0)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.fixed:
                # Errors of measurements stem from many samples and count as known: a normal test, not t.
                squares = self.errors[:, other_columns] ** 2 + self.errors[:, [column]] ** 2
                error = np.sqrt(squares.sum(0)) / len(differences)
                return np.where(error > 0, ndtr(-means / error), 1.0)
            error, freedom = self._error(differences)
            # The sign test has one sign for each level of the factor with the fewest levels, all equal.
            signs = np.where(means > self._negligible, 0.5 ** (freedom + 1), 1.0)
            p_values = np.where(error <= self._negligible, signs, stdtr(freedom, -means / error))
        if self.signs and self.net_count < MIN_LEVELS:
            (inputs,) = self._random_factors(differences)
            wins = (inputs > self._negligible).sum(0)
            losses = (inputs < -self._negligible).sum(0)
            p_values = np.maximum(p_values, bdtrc(wins - 1, wins + losses, 0.5))
        return np.asarray(p_values)

    @functools.cached_property
    def _negligible(self) -> float:
        """Smaller differences are float64 rounding; t would divide rounding errors by rounding errors."""
        return 1e-12 * float(np.abs(self.values).max())

    def contest(self, rules: Sequence[str]) -> Ranking | None:
        """Rank those of `rules` that were measured on every pair; None if there are none.

        If nets and inputs are fixed, sampling rules with an unknown spread over draws are skipped.
        """
        comparable = [rule for rule in self.rules if rule in rules]
        if self.fixed:
            comparable = [
                rule
                for rule in comparable
                if rule not in self.sampling or not math.isnan(self.half_width(rule))
            ]
        return rank(self, comparable) if comparable else None

    def _random_factors(self, values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Means of values over each net, and over each input, if they are many enough to be random."""
        net_means = _group_means(values, self.nets)
        if self.crossed:
            factors = [net_means, _group_means(values, self.inputs)]
        elif len(net_means) >= MIN_LEVELS:
            factors = [net_means]
        else:
            factors = [values]
        return [means for means in factors if len(means) >= MIN_LEVELS]

    def _error(self, values: NDArray[np.float64]) -> tuple[Any, float]:
        """Standard errors of means over pairs, and degrees of freedom; infinite freedom if all is fixed."""
        random_factors = self._random_factors(values)
        if not random_factors:
            return math.nan, math.inf
        squares = [means.var(0, ddof=1) / len(means) for means in random_factors]
        levels = [len(means) for means in random_factors]
        return np.sqrt(sum(squares)), float(min(levels) - 1)


def _group_means(values: NDArray[np.float64], groups: NDArray[np.int64]) -> Any:
    """Means of the rows of each group; `groups` numbers the group of each row."""
    counts = np.bincount(groups)
    member = (groups == np.arange(len(counts))[:, np.newaxis]) / counts[:, np.newaxis]
    return member @ values


def spread_of_draws(metric: Metric, draws: int | None) -> float:
    """Bound of the standard deviation of a score over the draws of a sampling rule; 0 for other rules.

    One of k draws changes a total variation by at most 1 / k, so its standard deviation is at most 1 / (2
    sqrt(k)) (Efron and Stein 1981, Popoviciu's inequality). A standard deviation of k nearly Gaussian draws
    has the relative error 1 / sqrt(2 k). NaN for other metrics, or if the number of draws is unknown.
    """
    if draws is None:
        return 0.0
    if draws and metric.complement:
        return 0.5 / math.sqrt(draws)
    if draws and metric.name == "std_ratio":
        return 1 / math.sqrt(2 * draws)
    return math.nan


def best_of(values: Mapping[str, pd.Series]) -> set[str]:
    """Return the column with the lowest mean and those tied with it; the index (seeds, say) pairs values.

    The result is empty if all of several columns are tied.
    """
    columns = {name: column for name, column in values.items() if len(column)}
    if not columns:
        return set()
    scores = pd.concat(columns, axis=1, join="inner").to_numpy(dtype=float)
    if not len(scores):
        return set()
    # Each row is a net of its own, all with the same input.
    nets, inputs = np.arange(len(scores)), np.zeros(len(scores), dtype=np.int64)
    unknown_errors = np.full(scores.shape, math.nan)
    replicates = Replicates(tuple(columns), scores, unknown_errors, nets, inputs, frozenset())
    return set(rank(replicates, tuple(columns)).marked)


SETTING = ("activation", "depth", "network", "recipe", "noise", "sigma")
"""Columns that identify a setting."""
Score = Callable[[Metric, NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
"""Compute scores, lower is better, from a metric, values and floors."""


def metric_score(
    metric: Metric, values: NDArray[np.float64], floors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the metric's own scores."""
    return np.asarray(metric.score(values, floors))


COVERAGE = 0.8
"""Share of the settings in which a rule must have been measured."""


@dataclass(frozen=True, eq=False)
class Overall(PairedComparison):
    """Mean scores, lower is better, of rules that were all measured in the same settings, best first.

    All settings have the same weight, however many nets and inputs they have. Nets and inputs are random;
    settings are fixed, because they were chosen. The squared standard error of a mean is that over nets plus
    that over inputs, which is slightly too large (see :class:`Replicates`). A net (or input) contributes the
    sum of its deviations in all settings.

    `by_setting` holds the mean scores, shape (settings, rules), and `measured_settings` is the number of
    settings in which any rule was measured. `deviations`, shape (units, rules), is the contribution to the
    overall mean of each pair of net and input in a setting, relative to the mean of that setting. `nets` and
    `inputs` number the nets and inputs of these units.
    """

    rules: tuple[str, ...]
    by_setting: NDArray[np.float64]
    deviations: NDArray[np.float64]
    nets: NDArray[np.int64]
    inputs: NDArray[np.int64]
    measured_settings: int

    @classmethod
    def from_measurements(
        cls,
        frame: pd.DataFrame,
        score: Score,
        traits: RuleTraits,
        setting: Sequence[str] = SETTING,
        least: int = 2,
    ) -> Overall | None:
        """Compare rules by the measurements of one metric; components of a measurement are averaged.

        `setting` names the columns that identify a setting. Nets that differ in these columns are not
        replicates of each other, so that their differences are not part of the intervals.

        References are skipped, then rules measured in less than :data:`COVERAGE` of the settings, and finally
        settings in which a remaining rule is missing. Return None if fewer than `least` rules remain.
        """
        frame = frame[~frame["rule"].map(traits.is_reference).astype(bool)]
        if frame.empty:
            return None
        # One row per setting, net and input, and one column per rule. An unknown score is infinite, so that
        # no mean skips it.
        keys = [frame[name] for name in (*setting, *UNIT, "rule")]
        scores = _scores(frame, score).fillna(math.inf)
        table = scores.groupby(keys, observed=True, sort=False).mean().unstack("rule", sort=False)
        units = table.index.to_frame(index=False)
        settings = np.zeros(len(units), dtype=int)
        if setting:
            settings = units.groupby(list(setting), observed=True, sort=False).ngroup().to_numpy()
        table = table.reset_index(drop=True)

        is_measured = table.abs().lt(math.inf).groupby(settings).all()  # settings by rules
        has_coverage = (is_measured.mean() >= COVERAGE).to_numpy()
        has_all_rules = is_measured.loc[:, has_coverage].all(axis=1).to_numpy()
        if has_coverage.sum() < least or not has_all_rules.any():
            return None
        kept = has_all_rules[settings]
        table, units = table.loc[kept, has_coverage], units[kept]
        settings, _ = pd.factorize(settings[kept])

        means = table.groupby(settings).mean()
        means = means[means.mean().sort_values(kind="stable").index]
        units_per_setting = np.bincount(settings)
        deviations = table[means.columns].to_numpy() - means.to_numpy()[settings]
        deviations /= (units_per_setting[settings] * len(units_per_setting))[:, np.newaxis]
        nets = _levels(units["net"], settings)
        inputs = _levels(units["input"], settings)
        return cls(tuple(means.columns), means.to_numpy(), deviations, nets, inputs, len(is_measured))

    @property
    def settings(self) -> int:
        """Number of compared settings."""
        return len(self.by_setting)

    def mean(self, rule: str) -> float:
        return float(self.by_setting[:, self.rules.index(rule)].mean())

    def half_width(self, rule: str) -> float:
        """Half the width of the 95 % interval of the mean score; NaN with too few nets and inputs."""
        error, freedom = self._error(self.deviations[:, self.rules.index(rule)])
        return float(stdtrit(freedom, 1 - LEVEL / 2)) * error

    def p_better(self, rule: str, others: Sequence[str]) -> NDArray[np.float64]:
        """One-sided p-values of "`rule` is better than the other".

        They are 1 with too few nets and inputs, and for rules that differ by rounding only.
        """
        p_values = np.ones(len(others))
        for index, other in enumerate(others):
            error, freedom = self._error_of_difference(rule, other)
            if error > self.rounding:
                p_values[index] = stdtr(freedom, -(self.mean(other) - self.mean(rule)) / error)
        return p_values

    def significant_difference(self, rule: str, other: str) -> float:
        """Smallest difference of two means that is significant at 5 %, with Bonferroni's correction.

        The correction is for comparisons with all other rules, as in the first step of
        :func:`rank_intervals`. NaN with too few nets and inputs.
        """
        error, freedom = self._error_of_difference(rule, other)
        return float(stdtrit(freedom, 1 - LEVEL / 2 / max(1, len(self.rules) - 1))) * error

    @functools.cached_property
    def rounding(self) -> float:
        """Differences of means up to this size are rounding errors."""
        return 1e-12 * float(np.abs(self.by_setting).max())

    def _error_of_difference(self, rule: str, other: str) -> tuple[float, float]:
        columns = self.rules.index(rule), self.rules.index(other)
        return self._error(self.deviations[:, columns[1]] - self.deviations[:, columns[0]])

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


def _scores(frame: pd.DataFrame, score: Score) -> pd.Series:
    """Scores of measurements, which may be of several metrics."""
    scores = pd.Series(math.nan, index=frame.index)
    for name in frame["metric"].unique():
        rows = frame["metric"] == name
        metric = recorded_metric(str(name))
        scores[rows] = score(metric, frame["value"][rows].to_numpy(), frame["floor"][rows].to_numpy())
    return scores


def _levels(column: pd.Series, settings: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the distinct values of a column; all are 0 if no setting has several.

    With one net in each setting the deviations are 0, which does not mean that nets are equal.
    """
    codes, _ = pd.factorize(column)
    is_replicated = pd.Series(codes).groupby(settings).nunique().max() > 1
    return np.asarray(codes if is_replicated else np.zeros_like(codes))
