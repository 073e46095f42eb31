"""One rule against each of the others: better, worse or level, under every condition and by every metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from sdp_bench.bench.metrics import Metric, recorded_metric
from sdp_bench.reports.statistics.ranking import UNIT, Scores
from sdp_bench.reports.statistics.replicates import LEVEL, Replicates
from sdp_bench.reports.style import noise
from sdp_bench.reports.style.nets import NetKind
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.frame import by_kind

Outcome = Literal["better", "worse", "level", "unjudged"]

NETS = ["activation", "depth", "network", "recipe"]


@dataclass(frozen=True)
class Comparison:
    """The rule against another one at one condition.

    `gain` is how much better the rule is in the mean of what is ranked (total variation, a distance, the
    absolute logarithm of a ratio), `half_width` half of its 95 % interval.
    """

    other: str
    value: float
    gain: float
    half_width: float
    outcome: Outcome


@dataclass(frozen=True)
class Condition:
    """The rule on one kind of net at one sigma; without a `value` it was not measured there.

    `exact` counts the measurements, of `count`, that cannot be told from the exact law. `means` are the mean
    scores, lower is better, of all rules that are not references.
    """

    rule: str
    kind: NetKind
    noise: str
    sigma: float
    value: float
    floor: float
    floor95: float
    exact: int
    count: int
    means: Mapping[str, float] = field(repr=False)
    comparisons: tuple[Comparison, ...]
    design: str
    fixed: bool

    @property
    def label(self) -> str:
        """Kind of net and sigma, for people."""
        level = f"{noise.symbol(self.noise)}\u00a0=\u00a0{self.sigma:g}"
        return ", ".join(filter(None, (self.kind.label, noise.words(self.noise), level)))

    @property
    def measured(self) -> bool:
        """Whether the rule has a value here."""
        return not math.isnan(self.value)

    @property
    def indistinguishable(self) -> bool:
        """Whether no measurement can be told from the exact law."""
        return self.exact == self.count

    @property
    def shortfall(self) -> float:
        """How far the rule is from what the exact law shows, on the metric's scale; lower is better."""
        return abs(self.value - self.floor)

    @property
    def rank(self) -> int:
        """Place of the rule; 0 where it has none."""
        return self.place(self.rule)

    @property
    def ranked(self) -> int:
        """How many rules have a place."""
        return len(self.means)

    def place(self, rule: str) -> int:
        """Place of any rule among those that are not references, by mean; 0 where it was not measured."""
        if rule not in self.means:
            return 0
        return 1 + sum(mean < self.means[rule] for mean in self.means.values())

    def comparison(self, other: str) -> Comparison | None:
        """Against one rule."""
        return next((comparison for comparison in self.comparisons if comparison.other == other), None)


@dataclass(frozen=True)
class Comparisons:
    """The rule against the others under all conditions, by one metric.

    `leads` are the experiments of which it is the first metric, the one to say how good the rule is there.
    """

    metric: Metric
    others: tuple[str, ...]
    conditions: tuple[Condition, ...]
    leads: tuple[str, ...] = ()

    @property
    def measured(self) -> list[Condition]:
        """Conditions under which the rule has a value."""
        return [condition for condition in self.conditions if condition.measured]

    @property
    def mean_rank(self) -> float:
        """Mean of the ranks; NaN where there is none."""
        ranks = [condition.rank for condition in self.measured]
        return sum(ranks) / len(ranks) if ranks else math.nan

    def against(self, other: str) -> list[tuple[Condition, Comparison]]:
        """Comparisons with one rule, where both were measured."""
        return [(each, found) for each in self.measured if (found := each.comparison(other))]

    def best(self, rules: Iterable[str]) -> str:
        """Of some of the other rules, the one with the best mean rank where most are measured.

        Parameters
        ----------
        rules : iterable of str

        Returns
        -------
        str
            Empty if there is none.
        """

        def key(rule: str) -> tuple[int, float]:
            places = [place for each in self.measured if (place := each.place(rule))]
            return -len(places), sum(places) / len(places) if places else math.inf

        return min(rules, key=key, default="")

    def tally(self, other: str) -> Counter[str]:
        """How often the rule is better than another, worse, level, unjudged."""
        return Counter(comparison.outcome for _, comparison in self.against(other))


def comparisons(frame: pd.DataFrame, rule: str, traits: RuleTraits) -> list[Comparisons]:
    """The rule against all others, by every metric that ranks.

    Parameters
    ----------
    frame : DataFrame
        Measurements as :func:`sdp_bench.reports.tables.frame.checked` gives them.
    rule : str
    traits : RuleTraits
        Of all rules.

    Returns
    -------
    list of Comparisons
        One for each metric, in the metrics' own order.
    """
    frame = _one_number(frame)
    ranked = [metric for metric in map(recorded_metric, frame["metric"].unique()) if metric.better]
    ranked.sort(key=lambda metric: metric.rank)
    leader: dict[str, str] = {}
    for metric in ranked:
        for experiment in frame.loc[frame["metric"] == metric.name, "experiment"].unique():
            leader.setdefault(str(experiment), metric.name)
    by_metric = []
    for metric in ranked:
        chosen = frame[frame["metric"] == metric.name]
        others = tuple(other for other in traits.in_order(chosen["rule"]) if other != rule)
        conditions = tuple(_conditions(metric, chosen, rule, others, traits))
        leads = tuple(experiment for experiment, name in leader.items() if name == metric.name)
        if conditions:
            by_metric.append(Comparisons(metric, others, conditions, leads))
    return by_metric


def _one_number(frame: pd.DataFrame) -> pd.DataFrame:
    """A single row for each measurement: of several outputs the mean |log ratio|, of pairs the largest."""
    frame = frame.drop_duplicates([*UNIT, "noise", "sigma", "rule", "metric", "component"])
    plain = frame[(frame["component"] == "") | (frame["component"] == "largest")]
    ratios = frame[by_kind(frame["metric"], lambda name: recorded_metric(name).better == "one")]
    if ratios.empty:
        return plain
    with np.errstate(divide="ignore"):
        ratios = ratios.assign(
            log=np.abs(np.log(ratios["value"].clip(lower=0.0))),
            relative=(ratios["stderr"] / ratios["value"].where(ratios["value"] > 0, math.nan)) ** 2,
            beyond=(ratios["value"] - ratios["floor"]).abs() > ratios["floor95"] - ratios["floor"],
        )
    measurement = [*UNIT, "noise", "sigma", "rule", "metric"]
    groups = ratios.groupby(measurement, sort=False)
    joined = groups.first()
    value = np.exp(groups["log"].mean())
    error = np.sqrt(groups["relative"].sum()) / groups.size()
    width = groups["floor95"].max() - 1
    joined = joined.assign(value=value, stderr=error * value, component="", floor=1.0, floor95=1 + width)
    # One output beyond its own interval is enough to tell the rule from the exact law.
    joined["beyond"] = groups["beyond"].any()
    return pd.concat([plain, joined.reset_index()], ignore_index=True)


def _conditions(
    metric: Metric, chosen: pd.DataFrame, rule: str, others: Sequence[str], traits: RuleTraits
) -> Iterator[Condition]:
    keys = ["noise", *NETS]
    for _, kind in chosen.groupby(keys, sort=True, dropna=False):
        for _, part in kind.groupby("sigma", sort=True):
            yield _condition(metric, part, rule, others, traits)


def _condition(
    metric: Metric, part: pd.DataFrame, rule: str, others: Sequence[str], traits: RuleTraits
) -> Condition:
    first = part.iloc[0]
    own = part[part["rule"] == rule]
    scores = Scores.of(metric, part, tuple(traits.in_order(part["rule"])))
    means = {name: mean for name, mean in scores.means.items() if not traits.is_reference(name)}
    value = float(metric.shown(own["value"].to_numpy()).mean()) if len(own) else math.nan
    floor, floor95 = (
        float(metric.shown(part[name].dropna().to_numpy()).mean()) if part[name].notna().any() else math.nan
        for name in ("floor", "floor95")
    )
    within = own["value"] <= own["floor95"]
    if metric.better == "one" and "beyond" in own:
        within = ~own["beyond"].astype(bool)
    replicates = Replicates.of(metric, part, traits)
    return Condition(
        rule,
        NetKind(str(first["activation"]), int(first["depth"])),
        str(first["noise"]),
        float(first["sigma"]),
        value,
        floor,
        floor95,
        int(within.sum()),
        len(own),
        means,
        tuple(
            _comparison(metric, part, scores, rule, other, traits)
            for other in others
            if {rule, other} <= set(part["rule"])
        ),
        replicates.design,
        replicates.fixed,
    )


def _comparison(
    metric: Metric, part: pd.DataFrame, scores: Scores, rule: str, other: str, traits: RuleTraits
) -> Comparison:
    values = part["value"].to_numpy()[part["rule"] == other]
    value = float(metric.shown(values).mean())
    pair = Replicates.of_scores(scores.paired(rule, other), traits)
    if not len(pair.values) or len(pair.rules) < 2:  # an infinite distance has no mean difference
        own = part["value"].to_numpy()[part["rule"] == rule]
        outcome: Outcome = "unjudged"
        if np.isinf(values).any() != np.isinf(own).any():
            outcome = "better" if np.isinf(values).any() else "worse"
        return Comparison(other, value, math.nan, math.nan, outcome)
    gain = pair.mean(other) - pair.mean(rule)
    outcome = "level"
    if pair.fixed and pair.sampling:
        outcome = "unjudged"
    elif pair.p_better(rule, other) <= LEVEL / 2:
        outcome = "better"
    elif pair.p_better(other, rule) <= LEVEL / 2:
        outcome = "worse"
    return Comparison(other, value, gain, _half_width(pair, rule, other), outcome)


def _half_width(pair: Replicates, rule: str, other: str) -> float:
    """Of the mean difference, by the same replicates."""
    columns = [pair.rules.index(other), pair.rules.index(rule)]
    difference = Replicates(
        ("difference",),
        (pair.values[:, columns[0]] - pair.values[:, columns[1]])[:, None],
        np.hypot(pair.errors[:, columns[0]], pair.errors[:, columns[1]])[:, None],
        pair.nets,
        pair.inputs,
        frozenset(),
    )
    return difference.half_width("difference")
