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

ComparisonOutcome = Literal["better", "worse", "level", "unjudged"]

NETS = ["activation", "depth", "network", "recipe"]


@dataclass(frozen=True)
class RuleComparison:
    """The rule compared with another one, of this `value`, in one setting.

    `gain` is the mean improvement of the score (total variation, a distance, the absolute logarithm of a
    ratio), and `half_width` half of its 95 % interval.
    """

    value: float
    gain: float
    half_width: float
    outcome: ComparisonOutcome


@dataclass(frozen=True)
class ComparedSetting:
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
    comparisons: Mapping[str, RuleComparison]
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
    settings: tuple[ComparedSetting, ...]
    ranking: tuple[str, ...]
    leads: tuple[str, ...]

    @property
    def measured(self) -> list[ComparedSetting]:
        """Settings in which the rule was measured."""
        return [setting for setting in self.settings if setting.measured]

    @property
    def rank(self) -> int:
        """Position of the rule in the ranking; 0 if it was measured in too few settings."""
        return self.ranking.index(self.rule) + 1 if self.rule in self.ranking else 0

    def against(self, other: str) -> list[tuple[ComparedSetting, RuleComparison]]:
        """Comparisons with one rule, where both were measured."""
        pairs = []
        for setting in self.measured:
            comparison = setting.comparisons.get(other)
            if comparison:
                pairs.append((setting, comparison))
        return pairs

    def tally(self, other: str) -> Counter[str]:
        """Number of settings by outcome of the comparison with another rule."""
        return Counter(comparison.outcome for _, comparison in self.against(other))


def comparisons(frame: pd.DataFrame, rule: str, traits: RuleTraits) -> list[Comparisons]:
    """Compare a rule with all others by each ranking metric, in the order of metrics.

    `frame` is the result of :func:`sdp_bench.reports.tables.frame.checked`.
    """
    frame = one_row_per_measurement(frame)
    ranked = [metric for metric in map(recorded_metric, frame["metric"].unique()) if metric.better]
    ranked.sort(key=lambda metric: metric.rank)
    primary: dict[str, str] = {}  # metric of each experiment
    for metric in ranked:
        for experiment in frame.loc[frame["metric"] == metric.name, "experiment"].unique():
            primary.setdefault(str(experiment), metric.name)
    by_metric = []
    for metric in ranked:
        chosen = frame[frame["metric"] == metric.name]
        others = tuple(other for other in traits.in_order(chosen["rule"]) if other != rule)
        settings = tuple(
            _setting(metric, part, rule, others, traits)
            for _, part in chosen.groupby(["noise", *NETS, "sigma"], sort=True, dropna=False)
        )
        leads = tuple(experiment for experiment, name in primary.items() if name == metric.name)
        if settings:
            overall = Overall.from_measurements(chosen, metric_score, traits, least=1)
            ranking = overall.rules if overall else ()
            by_metric.append(Comparisons(rule, metric, others, settings, ranking, leads))
    return by_metric


def one_row_per_measurement(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per measurement: the mean |log ratio| of several outputs, the largest value of pairs."""
    frame = frame.drop_duplicates([*UNIT, "noise", "sigma", "rule", "metric", "component"])
    single = frame[(frame["component"] == "") | (frame["component"] == "largest")]
    ratios = frame[by_kind(frame["metric"], lambda name: recorded_metric(name).better == "one")]
    if ratios.empty:
        return single
    with np.errstate(divide="ignore"):
        logarithm = np.abs(np.log(ratios["value"].clip(lower=0.0)))
    relative_error = ratios["stderr"] / ratios["value"].where(ratios["value"] > 0, math.nan)
    half_interval = ratios["floor95"] - ratios["floor"]
    ratios = ratios.assign(
        logarithm=logarithm,
        relative_variance=relative_error**2,
        is_distinguishable=(ratios["value"] - ratios["floor"]).abs() > half_interval,
    )
    measurement = [*UNIT, "noise", "sigma", "rule", "metric"]
    outputs = ratios.groupby(measurement, sort=False)
    with np.errstate(over="ignore"):
        value = np.exp(outputs["logarithm"].mean())
    mean_of_outputs = outputs.first().assign(
        value=value,
        stderr=np.sqrt(outputs["relative_variance"].sum()) / outputs.size() * value,
        component="",
        floor=1.0,
        floor95=1 + (outputs["floor95"].max() - 1),
        # One output outside its own interval distinguishes the rule from the exact distribution.
        is_distinguishable=outputs["is_distinguishable"].any(),
    )
    return pd.concat([single, mean_of_outputs.reset_index()], ignore_index=True)


def _setting(
    metric: Metric, part: pd.DataFrame, rule: str, others: Sequence[str], traits: RuleTraits
) -> ComparedSetting:
    """The setting of the measurements `part`: one kind of net, noise and noise level."""
    first = part.iloc[0]
    kind, noise = NetKind(str(first["activation"]), int(first["depth"])), str(first["noise"])
    level = f"{noise_symbol(noise)}\u00a0=\u00a0{first['sigma']:g}"
    rows = part[part["rule"] == rule]
    names = tuple(traits.in_order(part["rule"]))
    scores = Scores.from_measurements(metric, part, names)
    means = {name: mean for name, mean in scores.means.items() if not traits.is_reference(name)}
    is_indistinguishable = rows["value"] <= rows["floor95"]
    if metric.better == "one" and "is_distinguishable" in rows:
        is_indistinguishable = ~rows["is_distinguishable"].astype(bool)
    replicates = Replicates.of_scores(metric, scores, traits)
    return ComparedSetting(
        label=", ".join(filter(None, (kind.label, noise_words(noise), level))),
        sigma=float(first["sigma"]),
        value=_shown_mean(metric, rows["value"]),
        floor=_shown_mean(metric, part["floor"]),
        floor95=_shown_mean(metric, part["floor95"]),
        exact=int(is_indistinguishable.sum()),
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
) -> RuleComparison:
    values = part["value"].to_numpy()[part["rule"] == rule]
    other_values = part["value"].to_numpy()[part["rule"] == other]
    other_mean = float(metric.shown(other_values).mean())
    pair = Replicates.of_scores(metric, scores.paired(rule, other), traits, signs=True)
    outcome: ComparisonOutcome = "level"
    if not len(pair.values) or len(pair.rules) < 2:  # an infinite distance has no mean difference
        outcome = "unjudged"
        if np.isinf(other_values).any() != np.isinf(values).any():
            outcome = "better" if np.isinf(other_values).any() else "worse"
        return RuleComparison(other_mean, math.nan, math.nan, outcome)
    if pair.fixed and np.isnan(pair.errors).any():
        outcome = "unjudged"
    elif pair.beats(rule, other, comparisons=2):
        outcome = "better"
    elif pair.beats(other, rule, comparisons=2):
        outcome = "worse"
    gains = pair.values[:, pair.rules.index(other)] - pair.values[:, pair.rules.index(rule)]
    errors = np.hypot(pair.errors[:, 0], pair.errors[:, 1])
    difference = replace(pair, rules=("",), values=gains[:, np.newaxis], errors=errors[:, np.newaxis])
    mean_gain = pair.mean(other) - pair.mean(rule)
    return RuleComparison(other_mean, mean_gain, difference.half_width(""), outcome)
