"""One rule compared with each other rule: better, worse or tied, in each setting and by each metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from ...bench.metrics import Metric, recorded_metric
from ..statistics.ranking import UNIT, Overall, Replicates, Scores, metric_score
from ..style.names import NetKind, RuleTraits, noise_symbol, noise_words
from ..tables.frame import by_kind

Outcome = Literal["better", "worse", "level", "unjudged"]

NETS = ["activation", "depth", "network", "recipe"]


@dataclass(frozen=True)
class Comparison:
    """The rule compared with another one, of this `value`, in one setting.

    `gain` is the mean improvement of the score (total variation, a distance, the absolute logarithm of a
    ratio), and `half_width` half of its 95 % interval.
    """

    value: float
    gain: float
    half_width: float
    outcome: Outcome


@dataclass(frozen=True)
class Condition:
    """The rule on one kind of net at one sigma; `value` is NaN if it was not measured there.

    `exact` of `count` measurements are indistinguishable from the exact distribution. `rank` is that of the
    mean score among the `ranked` rules that are not references. `comparisons` are by the other rule.
    """

    label: str
    sigma: float
    value: float
    floor: float
    floor95: float
    exact: int
    count: int
    rank: int
    ranked: int
    comparisons: Mapping[str, Comparison]
    design: str
    fixed: bool

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


@dataclass(frozen=True)
class Comparisons:
    """The rule compared with the others in all settings, by one metric.

    `ranking` has the rules by their mean score over settings, best first (:class:`Overall`). `leads` are the
    experiments with this primary metric.
    """

    rule: str
    metric: Metric
    others: tuple[str, ...]
    conditions: tuple[Condition, ...]
    ranking: tuple[str, ...]
    leads: tuple[str, ...]

    @property
    def measured(self) -> list[Condition]:
        return [condition for condition in self.conditions if condition.measured]

    @property
    def rank(self) -> int:
        """Position of the rule in the ranking; 0 if it was measured in too few settings."""
        return self.ranking.index(self.rule) + 1 if self.rule in self.ranking else 0

    def against(self, other: str) -> list[tuple[Condition, Comparison]]:
        """Comparisons with one rule, where both were measured."""
        return [(each, found) for each in self.measured if (found := each.comparisons.get(other))]

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
            overall = Overall.from_measurements(chosen, metric_score, traits, least=1)
            ranking = overall.rules if overall else ()
            by_metric.append(Comparisons(rule, metric, others, conditions, ranking, leads))
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
    kind, noise = NetKind(str(first["activation"]), int(first["depth"])), str(first["noise"])
    level = f"{noise_symbol(noise)}\u00a0=\u00a0{first['sigma']:g}"
    rows = part[part["rule"] == rule]
    names = tuple(traits.in_order(part["rule"]))
    scores = Scores.from_measurements(metric, part, names)
    means = {name: mean for name, mean in scores.means.items() if not traits.is_reference(name)}
    within = rows["value"] <= rows["floor95"]
    if metric.better == "one" and "beyond" in rows:
        within = ~rows["beyond"].astype(bool)
    replicates = Replicates.of_scores(metric, scores, traits)
    return Condition(
        label=", ".join(filter(None, (kind.label, noise_words(noise), level))),
        sigma=float(first["sigma"]),
        value=_shown_mean(metric, rows["value"]),
        floor=_shown_mean(metric, part["floor"]),
        floor95=_shown_mean(metric, part["floor95"]),
        exact=int(within.sum()),
        count=len(rows),
        rank=1 + sum(mean < means[rule] for mean in means.values()) if rule in means else 0,
        ranked=len(means),
        comparisons={
            other: _comparison(metric, part, scores, rule, other, traits)
            for other in others
            if {rule, other} <= set(names)
        },
        design=replicates.design,
        fixed=replicates.fixed,
    )


def _shown_mean(metric: Metric, values: pd.Series) -> float:
    known = values.dropna().to_numpy()
    return float(metric.shown(known).mean()) if len(known) else math.nan


def _comparison(
    metric: Metric, part: pd.DataFrame, scores: Scores, rule: str, other: str, traits: RuleTraits
) -> Comparison:
    own = part["value"].to_numpy()[part["rule"] == rule]
    values = part["value"].to_numpy()[part["rule"] == other]
    value = float(metric.shown(values).mean())
    pair = Replicates.of_scores(metric, scores.paired(rule, other), traits)
    outcome: Outcome = "level"
    if not len(pair.values) or len(pair.rules) < 2:  # an infinite distance has no mean difference
        outcome = "unjudged"
        if np.isinf(values).any() != np.isinf(own).any():
            outcome = "better" if np.isinf(values).any() else "worse"
        return Comparison(value, math.nan, math.nan, outcome)
    if pair.fixed and np.isnan(pair.errors).any():
        outcome = "unjudged"
    elif pair.beats(rule, other, comparisons=2):
        outcome = "better"
    elif pair.beats(other, rule, comparisons=2):
        outcome = "worse"
    one, two = [pair.rules.index(rule)], [pair.rules.index(other)]
    gains = pair.values[:, two] - pair.values[:, one]
    difference = replace(pair, rules=("",), values=gains, errors=np.hypot(*pair.errors.T)[:, np.newaxis])
    return Comparison(value, pair.mean(other) - pair.mean(rule), difference.half_width(""), outcome)
