"""The opening section: answers in three sentences, a picture of the problem, verdicts by use, and costs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ....bench.metrics import Metric, recorded_metric
from ....bench.noise import CAUCHY
from ...results import MEASUREMENT, Results
from ...section import Context, Section
from ...site import OVERVIEW
from ...statistics.costs import Costs, plain_samples
from ...statistics.ranking import SETTING, UNIT, Overall, Ranking, Score, own_score, rank
from ...style import labels
from ...style.figure import Figure, label_points, look, panels
from ...style.names import NetKind, RuleTraits, activation_label
from ...style.theme import styles
from ...tables.frame import BOUNDS, by_kind
from ...writing import moment
from ..choice import Standing, as_accurate, draw, front
from ..compute import answer, comparison

_SEVERAL = "images and sequences"


def _over_floor(
    _metric: Metric, values: NDArray[np.float64], floors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Logarithm of a distance relative to its floor, so that distances of all sizes have the same weight."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(floors > 0, np.log(values / floors), math.nan)


def _shared(score: float) -> str:
    return labels.number(1 - score, 2)


def _factor(score: float) -> str:
    with np.errstate(over="ignore"):
        factor = float(np.exp(score))
    return labels.number(factor, 3 if factor < 10 else None)


@dataclass(frozen=True)
class Use:
    """One use of predicted distributions.

    A net has at most one of the `metrics`. `score` is judged by its mean over settings, lower is better;
    `shown` converts the mean for readers. `heavy` marks the use for noise without a variance.
    """

    title: str
    about: str
    metrics: tuple[str, ...]
    score: Score = own_score
    shown: Callable[[float], str] = _shared
    heavy: bool = False


WHOLE = Use("whole distribution", "1 − TV", ("tv_headline", "tv_principal"))
USES = (
    Use("class", "1 − TV of the class", ("tv_class",)),
    Use("standard deviations", "error factor", ("std_ratio",), shown=_factor),
    WHOLE,
    Use("W1", "W1 / its floor", ("w1", "w1_certified"), _over_floor, _factor),
    Use("Cauchy noise", "1 − TV", ("tv_joint",), heavy=True),
    Use(
        "quantiles under Cauchy noise",
        "largest error",
        ("quantile_max",),
        own_score,
        labels.number,
        heavy=True,
    ),
)
"""Uses in the order of the table."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """Rules for a use on one family of nets.

    `advised` is the cheapest rule tied with the most accurate one, whether it samples or not. `ranking` is
    that of the deterministic rules. `partial` names a rule that was measured in too few settings to be
    compared and is better than the leader there.
    """

    use: Use
    overall: Overall
    costs: Costs
    advised: str
    ranking: Ranking
    partial: str = ""

    @property
    def rules(self) -> tuple[str, ...]:
        others = sorted((*self.ranking.tied, *self.ranking.worse), key=self.overall.mean)
        return self.ranking.leader, *others

    def value(self, rule: str) -> str:
        return self.use.shown(self.overall.mean(rule))

    def interval(self, rule: str) -> str:
        """Ends of the 95 % interval of the mean; empty if unknown."""
        mean, half = self.overall.mean(rule), self.overall.half_width(rule)
        if not math.isfinite(half):
            return ""
        low, high = (self.use.shown(end) for end in (mean - half, mean + half))
        return f"{high} to {low}" if self.use.shown is _shared else f"{low} to {high}"

    def seconds(self, rule: str) -> float:
        cost = self.costs.by_rule.get(rule)
        return float(f"{cost.seconds:.2g}") if cost else math.nan

    @functools.cached_property
    def samples(self) -> tuple[str, float] | None:
        """Number of Monte Carlo samples as accurate as the best deterministic rule (`choice.as_accurate`)."""
        curve = {k: self.overall.mean(rule) for rule in self.overall.rules if (k := plain_samples(rule))}
        return as_accurate(self.overall.mean(self.ranking.leader), curve)

    @property
    def slowdown(self) -> float:
        """Time of the best deterministic rule, relative to that of equally many samples; NaN if unknown."""
        seconds = self.seconds(self.ranking.leader)
        if self.samples is None or self.samples[0] == ">" or self.costs.sampling is None:
            return math.nan
        return seconds / self.costs.sampling.seconds(self.samples[1])


class Row(NamedTuple):
    """One use, with a verdict for each family of nets, None without one."""

    use: Use
    verdicts: tuple[Verdict | None, ...]


def families(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return nets judged together, by name: the most common fully connected kind, and classifiers."""
    if frame.empty:
        return []
    several = by_kind(frame["activation"], lambda name: NetKind(name, 1).is_classifier).astype(bool)
    plain, named = frame[~several], []
    if len(plain):
        activation = str(plain["activation"].value_counts().idxmax())
        own = ":" in activation  # a user's net
        name = NetKind(activation, 1).label if own else f"small {activation_label(activation)} nets"
        named.append((name, plain[plain["activation"] == activation]))
    if several.any():
        named.append((_SEVERAL, frame[several]))
    return named


def rows(named: Sequence[tuple[str, pd.DataFrame]], traits: RuleTraits) -> list[Row]:
    """Rows of the table: uses with a verdict for any family; `named` is the result of :func:`families`."""
    made = [Row(use, tuple(_verdict(use, frame, traits) for _, frame in named)) for use in USES]
    return [row for row in made if any(row.verdicts)]


def _verdict(use: Use, frame: pd.DataFrame, traits: RuleTraits) -> Verdict | None:
    heavy = frame["noise"] == CAUCHY.family
    own = frame[frame["metric"].isin(use.metrics) & ~frame["component"].isin(BOUNDS) & (heavy == use.heavy)]
    own = own.drop_duplicates(["net", "input", "noise", "sigma", "rule", "metric", "component"])
    overall = Overall.measured(own, use.score, traits)
    if overall is None:
        return None
    deterministic = [rule for rule in overall.rules if not traits.is_sampling(rule)]
    if len(deterministic) < 2:
        return None
    costs = Costs.measured(own, traits)
    seconds = {rule: cost.seconds for rule, cost in costs.by_rule.items()}
    every = rank(overall, overall.rules)
    # Without a known spread all rules are tied, and the cheapest could be the worst.
    known = math.isfinite(overall.half_width(every.leader))
    advised = every.cheapest(seconds) if known else every.leader
    ranking = rank(overall, deterministic)
    return Verdict(use, overall, costs, advised, ranking, _partial(use, own, overall, ranking.leader, traits))


def _partial(use: Use, own: pd.DataFrame, overall: Overall, leader: str, traits: RuleTraits) -> str:
    """The most accurate rule with too few settings that is significantly better than the leader there."""
    better = []
    others = [rule for rule in set(own["rule"]).difference(overall.rules) if not traits.is_sampling(rule)]
    for rule in others:
        units = own.loc[own["rule"] == rule, [*SETTING, *UNIT]].drop_duplicates()
        pair = Overall.measured(own[own["rule"].isin([rule, leader])].merge(units), use.score, traits)
        if pair and pair.beats(rule, leader, len(others)):
            shown = [f"{traits.label(name)} {use.shown(pair.mean(name))}" for name in (rule, leader)]
            text = f"in {pair.places} of {overall.of} settings: {', '.join(shown)}"
            better.append((pair.mean(rule), text))
    return min(better, default=(0.0, ""))[1]


def which_rule(names: Sequence[str], rows: Sequence[Row], traits: RuleTraits) -> str:
    """The recommended rules of each family, in words."""
    parts = []
    for number, name in enumerate(names):
        uses: dict[str, list[str]] = {}
        for row in rows:
            if verdict := row.verdicts[number]:
                uses.setdefault(traits.action(verdict.advised), []).append(row.use.title)
        advice = [f"{action} for {labels.listed(own)}" for action, own in uses.items()]
        if len(uses) == 1:
            advice = [f"{next(iter(uses))} for every use"]
        if advice:
            parts.append(f"On {name}, {'; '.join(advice)}.")
    return " ".join(parts)


def when_to_sample(names: Sequence[str], rows: Sequence[Row], traits: RuleTraits) -> str:
    """For each family, samples as accurate as the best deterministic rules, and their relative time."""
    said = []
    for number, name in enumerate(names):
        own = [v for row in rows if (v := row.verdicts[number]) and math.isfinite(v.slowdown)]
        slower, faster = ([v for v in own if v.slowdown >= 1.5], [v for v in own if v.slowdown <= 1])
        chosen = slower or faster
        if not chosen:
            continue
        rules = labels.listed(list(dict.fromkeys(traits.label(v.ranking.leader) for v in chosen)))
        counts = labels.span([v.samples[1] for v in chosen if v.samples], 0)
        if slower:
            factors = labels.span([float(f"{v.slowdown:.1g}") for v in slower], 0)
            said.append(
                f"On {name}, {counts} Monte Carlo samples are as accurate as the best "
                f"deterministic rule, {rules}, which takes {factors} times as long."
            )
        else:
            said.append(
                f"On {name}, the best deterministic rule, {rules}, is faster than the {counts} samples that "
                "reach its accuracy. Draw more samples if higher accuracy is required."
            )
    return " ".join(said)


@look()
def figure(names: Sequence[str], rows: Sequence[Row], traits: RuleTraits) -> Figure | None:
    """Accuracy against cost for the whole distribution, a panel for each family; None without times."""
    verdicts = next((row.verdicts for row in rows if row.use is WHOLE), ())
    known = [
        (name, verdict)
        for name, verdict in zip(names, verdicts, strict=False)
        if verdict and any(rule in verdict.costs.by_rule for rule in verdict.overall.rules)
    ]
    if not known:
        return None
    styled = styles((rule for _, verdict in known for rule in verdict.overall.rules), traits)
    drawing, every = panels(
        [name for name, _ in known],
        columns=1,
        width=3.75,
        height=1.7,
        left=0.32,
        right=0.12,
        below=0.42,
    )
    unnamed: list[str] = []
    for axes, (_, verdict) in zip(every, known, strict=True):
        overall, costs = verdict.overall, verdict.costs
        standings = (
            Standing(
                rule, 1 - overall.mean(rule), overall.half_width(rule), None, *front(rule, overall, costs)
            )
            for rule in overall.rules
        )
        points = draw(axes, standings, costs, recorded_metric("tv_headline"), styled)
        axes.set_ylabel("")
        unnamed += label_points(axes, points)
    rest = f" Without a label for lack of room: {', '.join(dict.fromkeys(unnamed))}." if unnamed else ""
    caption = (
        "Mean 1 − TV of the whole distribution over all settings with 95 % intervals, against the time for "
        f"one input. Up and left is better. Dots: Monte Carlo. Ringed: on the front; hollow: off it.{rest}"
    )
    return Figure("figure-overview", "Accuracy against cost", caption, drawing)


class Overview(Section):
    name = "overview"
    title = "Answers"
    page = OVERVIEW
    order = 5

    def build(self, results: Results) -> Context:
        from .distributions import distributions

        compared = comparison(results)
        named = families(results.tabled)
        names, verdicts = [name for name, _ in named], rows(named, results.traits)
        return {
            "measured": len(results.frame) > 0,
            "failed": len(results.failed),
            "families": names,
            "rows": verdicts,
            "which_rule": which_rule(names, verdicts, results.traits),
            "when_to_sample": when_to_sample(names, verdicts, results.traits),
            "taken": results.traits.recommended,
            "inside_or_sample": "" if compared is None else answer(compared),
            "picture": distributions(results.traits),
            "figure": figure(names, verdicts, results.traits),
            "styles": results.styles,
            "news": "" if results.published else _news(results),
        }


def _news(results: Results) -> str:
    frame = results.frame
    if frame.empty:
        return ""
    newest_run = max(frame["run"].unique())
    suites = sorted(frame["experiment"][frame["run"] == newest_run].unique())
    named = ", ".join(suites) if len(suites) <= 3 else labels.plural(len(suites), "suite")
    finished = results.meta.get("finished")
    when = f", finished {moment(finished)}" if finished else ""
    once = frame["run"][~frame.duplicated(MEASUREMENT)]  # shared by several experiments
    newest = once == newest_run
    if newest.all():
        return f"all {labels.plural(len(once), 'measurement')}, of {named}{when}."
    count = labels.plural(int(newest.sum()), "measurement")
    return f"{count} of {named}{when}, next to {int((~newest).sum()):,} by earlier runs."
