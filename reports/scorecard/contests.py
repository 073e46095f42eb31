"""One rule against each of the others: better, worse or level, at every place and by every metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from sdp_bench.bench.metrics import Metric, recorded_metric
from sdp_bench.reports.statistics.ranking import UNIT, Scores
from sdp_bench.reports.statistics.replicates import LEVEL, Replicates
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.frame import noise_symbol

Outcome = Literal["better", "worse", "level", "unjudged"]

NETS = ["activation", "depth", "network", "recipe"]


@dataclass(frozen=True)
class Duel:
    """The rule against another one at one place.

    `gain` is how much better the rule is in the mean of what is ranked (total variation, a distance, the
    absolute logarithm of a ratio), `half_width` half of its 95 % interval.
    """

    other: str
    value: float
    gain: float
    half_width: float
    outcome: Outcome


@dataclass(frozen=True)
class Place:
    """The rule on one kind of net at one sigma; without a `value` it was not measured there.

    `exact` counts the measurements, of `count`, that cannot be told from the exact law. `rank` is the place
    among the rules that are not references, by mean.
    """

    activation: str
    depth: int
    scale: str
    sigma: float
    value: float
    floor: float
    floor95: float
    exact: int
    count: int
    rank: int
    ranked: int
    duels: tuple[Duel, ...]
    behind: str
    fixed: bool

    @property
    def measured(self) -> bool:
        """Whether the rule has a value here."""
        return not math.isnan(self.value)

    @property
    def whole(self) -> bool:
        """Whether no measurement can be told from the exact law."""
        return self.exact == self.count

    @property
    def short(self) -> float:
        """How far the rule is from what the exact law shows, on the metric's scale; lower is better."""
        return abs(self.value - self.floor)

    def duel(self, other: str) -> Duel | None:
        """Against one rule."""
        return next((duel for duel in self.duels if duel.other == other), None)


@dataclass(frozen=True)
class Contests:
    """All places of one metric."""

    metric: Metric
    others: tuple[str, ...]
    places: tuple[Place, ...]

    @property
    def measured(self) -> list[Place]:
        """Places where the rule has a value."""
        return [place for place in self.places if place.measured]

    @property
    def mean_rank(self) -> float:
        """Mean of the ranks; NaN where there is none."""
        ranks = [place.rank for place in self.measured]
        return sum(ranks) / len(ranks) if ranks else math.nan

    def tally(self, other: str) -> Counter[str]:
        """How often the rule is better than another, worse, level, unjudged."""
        duels = [duel for place in self.measured if (duel := place.duel(other))]
        return Counter(duel.outcome for duel in duels)


def contests(frame: pd.DataFrame, rule: str, traits: RuleTraits) -> list[Contests]:
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
    list of Contests
        One for each metric, in the metrics' own order.
    """
    frame = _one_number(frame)
    ranked = [metric for metric in map(recorded_metric, frame["metric"].unique()) if metric.better]
    found = []
    for metric in sorted(ranked, key=lambda metric: metric.rank):
        chosen = frame[frame["metric"] == metric.name]
        others = tuple(other for other in traits.in_order(chosen["rule"]) if other != rule)
        places = tuple(_places(metric, chosen, rule, others, traits))
        if places:
            found.append(Contests(metric, others, places))
    return found


def _one_number(frame: pd.DataFrame) -> pd.DataFrame:
    """A single row for each measurement: of several outputs the mean |log ratio|, of pairs the largest."""
    frame = frame.assign(noise=frame["experiment"].map(noise_symbol)).drop_duplicates(
        [*UNIT, "noise", "sigma", "rule", "metric", "component"]
    )
    if "recipe" not in frame:
        frame = frame.assign(recipe="")
    plain = frame[(frame["component"] == "") | (frame["component"] == "largest")]
    ratios = frame[frame["metric"].map(lambda name: recorded_metric(name).better == "one")]
    if ratios.empty:
        return plain
    with np.errstate(divide="ignore"):
        ratios = ratios.assign(
            log=np.abs(np.log(ratios["value"].clip(lower=0.0))),
            relative=(ratios["stderr"] / ratios["value"].where(ratios["value"] > 0, math.nan)) ** 2,
            beyond=(ratios["value"] - ratios["floor"]).abs() > ratios["floor95"] - ratios["floor"],
        )
    place = [*UNIT, "noise", "sigma", "rule", "metric"]
    groups = ratios.groupby(place, sort=False)
    joined = groups.first()
    value = np.exp(groups["log"].mean())
    error = np.sqrt(groups["relative"].sum()) / groups.size()
    width = groups["floor95"].max() - 1
    joined = joined.assign(value=value, stderr=error * value, component="", floor=1.0, floor95=1 + width)
    # One output beyond its own interval is enough to tell the rule from the exact law.
    joined["beyond"] = groups["beyond"].any()
    return pd.concat([plain, joined.reset_index()], ignore_index=True)


def _places(
    metric: Metric, chosen: pd.DataFrame, rule: str, others: Sequence[str], traits: RuleTraits
) -> Iterator[Place]:
    keys = ["noise", *NETS]
    for _, kind in chosen.groupby(keys, sort=True, dropna=False):
        for _, part in kind.groupby("sigma", sort=True):
            yield _place(metric, part, rule, others, traits)


def _place(metric: Metric, part: pd.DataFrame, rule: str, others: Sequence[str], traits: RuleTraits) -> Place:
    where = part.iloc[0]
    own = part[part["rule"] == rule]
    scores = Scores.of(metric, part, tuple(traits.in_order(part["rule"])))
    means = {name: mean for name, mean in scores.means().items() if not traits.is_reference(name)}
    value = float(metric.shown(own["value"].to_numpy()).mean()) if len(own) else math.nan
    floor, floor95 = (
        float(metric.shown(part[name].dropna().to_numpy()).mean()) if part[name].notna().any() else math.nan
        for name in ("floor", "floor95")
    )
    within = own["value"] <= own["floor95"]
    if metric.better == "one" and "beyond" in own:
        within = ~own["beyond"].astype(bool)
    first = Replicates.of(metric, part, traits)
    return Place(
        str(where["activation"]),
        int(where["depth"]),
        str(where["noise"]),
        float(where["sigma"]),
        value,
        floor,
        floor95,
        int(within.sum()),
        len(own),
        1 + sum(mean < means[rule] for mean in means.values()) if rule in means else 0,
        len(means),
        tuple(
            _duel(metric, part, rule, other, traits) for other in others if {rule, other} <= set(part["rule"])
        ),
        first.behind,
        first.fixed,
    )


def _duel(metric: Metric, part: pd.DataFrame, rule: str, other: str, traits: RuleTraits) -> Duel:
    values = part[part["rule"] == other]["value"].to_numpy()
    value = float(metric.shown(values).mean())
    both = part[part["rule"].isin([rule, other])]
    whole = both.groupby(UNIT)["rule"].transform("nunique") == 2
    pair = Replicates.of(metric, both[whole], traits) if whole.any() else None
    if pair is None or len(pair.rules) < 2:  # an infinite distance has no mean difference
        own = part[part["rule"] == rule]["value"]
        outcome: Outcome = "unjudged"
        if np.isinf(values).any() != np.isinf(own).any():
            outcome = "better" if np.isinf(values).any() else "worse"
        return Duel(other, value, math.nan, math.nan, outcome)
    gain = pair.mean(other) - pair.mean(rule)
    outcome = "level"
    if pair.fixed and pair.sampling:
        outcome = "unjudged"
    elif pair.p_better(rule, other) <= LEVEL / 2:
        outcome = "better"
    elif pair.p_better(other, rule) <= LEVEL / 2:
        outcome = "worse"
    return Duel(other, value, gain, _half_width(pair, rule, other), outcome)


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
