"""One rule compared with each other rule: better, worse or tied, in each setting and by each metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pandas as pd

from sdp_bench.bench.metrics import Metric, recorded_metric
from sdp_bench.reports.statistics.ranking import LEVEL, UNIT, Overall, Replicates, Scores
from sdp_bench.reports.style.names import NetKind, RuleTraits, noise_symbol, noise_words
from sdp_bench.reports.tables.frame import by_kind

Outcome = Literal["better", "worse", "level", "unjudged"]

NETS = ["activation", "depth", "network", "recipe"]


@dataclass(frozen=True)
class Comparison:
    """The rule compared with another one in one setting.

    `gain` is the mean improvement of the score (total variation, a distance, the absolute logarithm of a
    ratio), and `half_width` half of its 95 % interval.
    """

    other: str
    value: float
    gain: float
    half_width: float
    outcome: Outcome


@dataclass(frozen=True)
class Condition:
    """The rule on one kind of net at one sigma; `value` is NaN if it was not measured there.

    `exact` of `count` measurements are indistinguishable from the exact distribution. `means` are the mean
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
        level = f"{noise_symbol(self.noise)}\u00a0=\u00a0{self.sigma:g}"
        return ", ".join(filter(None, (self.kind.label, noise_words(self.noise), level)))

    @property
    def measured(self) -> bool:
        return not math.isnan(self.value)

    @property
    def indistinguishable(self) -> bool:
        return self.exact == self.count

    @property
    def shortfall(self) -> float:
        """Distance from an exact rule on the metric's scale; lower is better."""
        return abs(self.value - self.floor)

    @property
    def rank(self) -> int:
        return 1 + sum(mean < self.means[self.rule] for mean in self.means.values())

    @property
    def ranked(self) -> int:
        return len(self.means)

    def comparison(self, other: str) -> Comparison | None:
        return next((comparison for comparison in self.comparisons if comparison.other == other), None)


@dataclass(frozen=True)
class Comparisons:
    """The rule compared with the others in all settings, by one metric.

    `ranking` has the rules by their mean score over settings, best first (:class:`Overall`). `leads` are the
    experiments with this primary metric.
    """

    metric: Metric
    others: tuple[str, ...]
    conditions: tuple[Condition, ...]
    ranking: tuple[str, ...]
    leads: tuple[str, ...] = ()

    @property
    def measured(self) -> list[Condition]:
        return [condition for condition in self.conditions if condition.measured]

    @property
    def rank(self) -> int:
        """Position of the rule in the ranking; 0 if it was measured in too few settings."""
        rule = self.conditions[0].rule
        return self.ranking.index(rule) + 1 if rule in self.ranking else 0

    def against(self, other: str) -> list[tuple[Condition, Comparison]]:
        """Comparisons with one rule, where both were measured."""
        return [(each, found) for each in self.measured if (found := each.comparison(other))]

    def tally(self, other: str) -> Counter[str]:
        return Counter(comparison.outcome for _, comparison in self.against(other))


def comparisons(frame: pd.DataFrame, rule: str, traits: RuleTraits) -> list[Comparisons]:
    """Compare a rule with all others by each ranking metric, in the order of metrics.

    `frame` is the result of :func:`sdp_bench.reports.tables.frame.checked`.
    """
    frame = one_number(frame)
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
        conditions = tuple(
            _condition(metric, part, rule, others, traits)
            for _, part in chosen.groupby(["noise", *NETS, "sigma"], sort=True, dropna=False)
        )
        leads = tuple(experiment for experiment, name in leader.items() if name == metric.name)
        if conditions:
            overall = Overall.measured(chosen, Metric.score, traits, least=1)
            by_metric.append(Comparisons(metric, others, conditions, overall.rules if overall else (), leads))
    return by_metric


def one_number(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per measurement: the mean |log ratio| of several outputs, the largest value of pairs."""
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
    # One output beyond its own interval is enough to distinguish the rule from the exact distribution.
    joined["beyond"] = groups["beyond"].any()
    return pd.concat([plain, joined.reset_index()], ignore_index=True)


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
    pair = Replicates.of_scores(metric, scores.paired(rule, other), traits)
    if not len(pair.values) or len(pair.rules) < 2:  # an infinite distance has no mean difference
        own = part["value"].to_numpy()[part["rule"] == rule]
        outcome: Outcome = "unjudged"
        if np.isinf(values).any() != np.isinf(own).any():
            outcome = "better" if np.isinf(values).any() else "worse"
        return Comparison(other, value, math.nan, math.nan, outcome)
    gain = pair.mean(other) - pair.mean(rule)
    outcome = "level"
    if pair.fixed and np.isnan(pair.errors).any():
        outcome = "unjudged"
    elif pair.p_better(rule, [other])[0] <= LEVEL / 2:
        outcome = "better"
    elif pair.p_better(other, [rule])[0] <= LEVEL / 2:
        outcome = "worse"
    return Comparison(other, value, gain, _half_width(pair, rule, other), outcome)


def _half_width(pair: Replicates, rule: str, other: str) -> float:
    """Half-width of the interval of the mean difference, by the same replicates."""
    one, two = pair.rules.index(rule), pair.rules.index(other)
    values = pair.values[:, [two]] - pair.values[:, [one]]
    errors = np.hypot(pair.errors[:, [two]], pair.errors[:, [one]])
    return replace(pair, rules=("difference",), values=values, errors=errors).half_width("difference")
