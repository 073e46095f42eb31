"""The opening section: a picture of the problem, and three short answers with figures and details."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ....bench.metrics import Metric, recorded_metric
from ....bench.noise import CAUCHY, GAUSSIAN
from ...results import MEASUREMENT, Results
from ...section import Context, Section
from ...site import OVERVIEW
from ...statistics.costs import Costs, plain_samples
from ...statistics.ranking import SETTING, UNIT, Overall, Ranking, Score, metric_score, rank
from ...style import labels
from ...style.figure import SMALL, Figure, label_points, look, panels
from ...style.names import NetKind, RuleTraits, activation_label
from ...style.theme import INK, marked, styles
from ...tables.frame import BOUNDS, by_kind
from ...writing import moment
from ..choice import Standing, as_accurate, draw, front
from ..compute import answer, comparison, shares_by_noise, short_answer, wins_of

_CLASSIFIERS = "images and sequences"
_PUBLISHED = "published"
"""Name of the experiment on nets that others trained."""


def _over_floor(
    _metric: Metric, values: NDArray[np.float64], floors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Logarithm of a distance relative to its floor, so that distances of all sizes have the same weight."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(floors > 0, np.log(values / floors), math.nan)


def _shared(score: float) -> str:
    # The interval of a mean can exceed what a total variation can be.
    return labels.number(1 - min(max(score, 0.0), 1.0), 2)


def _factor(score: float) -> str:
    with np.errstate(over="ignore"):
        factor = float(np.exp(score))
    return labels.number(factor, 3 if factor < 10 else None)


_SCALES: Mapping[Callable[[float], str], Callable[[float], float]] = {
    _shared: lambda score: 1 - score,
    _factor: lambda score: math.exp(min(score, 700.0)),
    labels.number: float,
}
"""Numbers of scores, by the function that formats them."""


@dataclass(frozen=True)
class RankedUse:
    """One use of predicted distributions.

    A net has at most one of the `metrics`. `score` is judged by its mean over settings, lower is better;
    `shown` converts the mean for readers. `heavy` marks the use for noise without a variance.
    """

    title: str
    about: str
    metrics: tuple[str, ...]
    score: Score = metric_score
    shown: Callable[[float], str] = _shared
    heavy: bool = False


ERROR_FACTOR = "error factor"
CLASS = RankedUse("class", "1 − TV of the class", ("tv_class",))
WHOLE = RankedUse("whole distribution", "1 − TV", ("tv_headline", "tv_principal"))
USES = (
    CLASS,
    RankedUse("standard deviations", ERROR_FACTOR, ("std_ratio",), shown=_factor),
    WHOLE,
    RankedUse("W1", "W1 / its floor", ("w1", "w1_certified"), _over_floor, _factor),
    RankedUse("Cauchy noise", "1 − TV", ("tv_joint",), heavy=True),
    RankedUse(
        "quantiles under Cauchy noise",
        "largest error",
        ("quantile_max",),
        metric_score,
        labels.number,
        heavy=True,
    ),
)
"""Uses in the order of the table."""


@dataclass(frozen=True, eq=False)
class UseResult:
    """Rules for a use on one family of nets.

    `advised` is the cheapest rule tied with the most accurate one, whether it samples or not. `ranking` is
    that of the deterministic rules. `partial` names a rule that was measured in too few settings to be
    compared and is better than the leader there. `ties` is the number of rules, sampling included, that are
    the most accurate one or tied with it.
    """

    use: RankedUse
    overall: Overall
    costs: Costs
    advised: str
    ranking: Ranking
    partial: str = ""
    ties: int = 1

    @property
    def is_resolved(self) -> bool:
        """Whether at most half of the rules are tied: with few nets, nearly all can be."""
        return self.ties <= len(self.overall.rules) / 2

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
        low, high = self.use.shown(mean - half), self.use.shown(mean + half)
        return f"{high} to {low}" if self.use.shown is _shared else f"{low} to {high}"

    def seconds(self, rule: str) -> float:
        cost = self.costs.by_rule.get(rule)
        return float(f"{cost.seconds:.2g}") if cost else math.nan

    @functools.cached_property
    def samples(self) -> tuple[str, float] | None:
        """Number of Monte Carlo samples as accurate as the best deterministic rule (`choice.as_accurate`)."""
        score_by_samples = {}
        for rule in self.overall.rules:
            count = plain_samples(rule)
            if count:
                score_by_samples[count] = self.overall.mean(rule)
        return as_accurate(self.overall.mean(self.ranking.leader), score_by_samples)

    @property
    def slowdown(self) -> float:
        """Time of the best deterministic rule, relative to that of equally many samples; NaN if unknown."""
        seconds = self.seconds(self.ranking.leader)
        if self.samples is None or self.samples[0] == ">" or self.costs.sampling is None:
            return math.nan
        return seconds / self.costs.sampling.seconds(self.samples[1])


class UseRow(NamedTuple):
    """One use, with a result for each family of nets, None without one."""

    use: RankedUse
    results: tuple[UseResult | None, ...]


def families(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return nets judged together, by name: the most common fully connected kind, and classifiers."""
    if frame.empty:
        return []
    is_classifier = by_kind(frame["activation"], lambda name: NetKind(name, 1).is_classifier).astype(bool)
    others = frame[~is_classifier]
    named = []
    if len(others):
        activation = str(others["activation"].value_counts().idxmax())
        is_users_net = ":" in activation
        name = f"small {activation_label(activation)} nets"
        if is_users_net:
            name = NetKind(activation, 1).label
        named.append((name, others[others["activation"] == activation]))
    if is_classifier.any():
        named.append((_CLASSIFIERS, frame[is_classifier]))
    return named


def rows(named: Sequence[tuple[str, pd.DataFrame]], traits: RuleTraits) -> list[UseRow]:
    """Rows of the table: uses with a result for any family; `named` is from :func:`families`."""
    table = []
    for use in USES:
        row = UseRow(use, tuple(_result(use, frame, traits) for _, frame in named))
        if any(row.results):
            table.append(row)
    return table


def results_on_published(frame: pd.DataFrame, traits: RuleTraits) -> dict[str, UseResult]:
    """Return the result of each use on published nets, by title; `frame` is that of their experiment.

    A setting is the lowest, middle or highest noise level of every net. Nets are thus replicates, so that
    intervals hold for nets like these.
    """
    if frame.empty:
        return {}
    rows = frame.assign(level=frame.groupby("net", observed=True)["sigma"].rank(method="dense"))
    by_use = {use.title: _result(use, rows, traits, ("level",)) for use in USES}
    return {title: result for title, result in by_use.items() if result}


@functools.lru_cache(maxsize=2)
def rows_of(results: Results) -> tuple[list[tuple[str, pd.DataFrame]], list[UseRow]]:
    """Return families of nets and the rows of the table, once for all sections."""
    named = families(results.tabled)
    return named, rows(named, results.traits)


@functools.lru_cache(maxsize=1)
def published_of(results: Results) -> dict[str, UseResult]:
    """Return :func:`results_on_published` of some results, once for all sections."""
    is_published = results.frame["experiment"] == _PUBLISHED
    return results_on_published(results.frame[is_published], results.traits)


def _result(
    use: RankedUse, frame: pd.DataFrame, traits: RuleTraits, setting: Sequence[str] = SETTING
) -> UseResult | None:
    is_heavy = frame["noise"] == CAUCHY.family
    measurements = frame[
        frame["metric"].isin(use.metrics) & ~frame["component"].isin(BOUNDS) & (is_heavy == use.heavy)
    ]
    measurements = measurements.drop_duplicates(
        ["net", "input", "noise", "sigma", "rule", "metric", "component"]
    )
    overall = Overall.from_measurements(measurements, use.score, traits, setting)
    if overall is None:
        return None
    deterministic = [rule for rule in overall.rules if not traits.is_sampling(rule)]
    if len(deterministic) < 2:
        return None
    costs = Costs.from_measurements(measurements, traits)
    seconds = {rule: cost.seconds for rule, cost in costs.by_rule.items()}
    ranking_of_all = rank(overall, overall.rules)
    advised = ranking_of_all.leader
    # Without a known spread all rules are tied, and the cheapest could be the worst.
    if math.isfinite(overall.half_width(ranking_of_all.leader)):
        advised = ranking_of_all.cheapest(seconds)
    ranking = rank(overall, deterministic)
    partial = _partial(use, measurements, overall, ranking.leader, traits, setting)
    ties = 1 + len(ranking_of_all.tied)
    return UseResult(use, overall, costs, advised, ranking, partial, ties)


def _partial(
    use: RankedUse,
    measurements: pd.DataFrame,
    overall: Overall,
    leader: str,
    traits: RuleTraits,
    setting: Sequence[str],
) -> str:
    """The most accurate rule with too few settings that is significantly better than the leader there."""
    better = []
    by_rule = {str(rule): rows for rule, rows in measurements.groupby("rule", observed=True)}
    not_compared = by_rule.keys() - set(overall.rules)
    others = [rule for rule in not_compared if not traits.is_sampling(rule)]
    for rule in others:
        units = by_rule[rule][[*setting, *UNIT]].drop_duplicates()
        rows = pd.concat([by_rule[rule], by_rule[leader]]).sort_index().merge(units)
        pair = Overall.from_measurements(rows, use.score, traits, setting)
        if pair and pair.beats(rule, leader, len(others)):
            means = [f"{traits.label(name)} {use.shown(pair.mean(name))}" for name in (rule, leader)]
            text = f"in {pair.settings} of {overall.measured_settings} settings: {', '.join(means)}"
            better.append((pair.mean(rule), text))
    if not better:
        return ""
    _, text = min(better)
    return text


def which_rule(
    names: Sequence[str], rows: Sequence[UseRow], published: Mapping[str, UseResult], traits: RuleTraits
) -> str:
    """The recommended rules of each family and of `published` nets (by use), for the uses that have room."""
    results_by_use: dict[str, dict[str, UseResult]] = {}
    for row in sorted(rows, key=lambda row: row.use is not WHOLE):
        families = dict(zip(names, row.results, strict=True))
        results_by_use[row.use.title] = {name: result for name, result in families.items() if result}
    for use, result in published.items():
        nets = int(result.overall.nets.max()) + 1
        results_by_use.setdefault(use, {})[f"{nets} published nets with this metric"] = result
    sentences = []
    for use, results in results_by_use.items():
        families_of_action: dict[str, list[str]] = {}
        undecided = []
        for name, result in results.items():
            if result.is_resolved:
                families_of_action.setdefault(traits.action(result.advised), []).append(name)
            else:
                undecided.append(f"{name} ({result.ties} of {len(result.overall.rules)} rules are tied)")
        advice = [f"{action} on {labels.listed(nets)}" for action, nets in families_of_action.items()]
        clauses = [labels.listed(advice)] if advice else []
        if undecided:
            clauses.append(f"on {labels.listed(undecided)} it is undecided")
        sentences.append(f"{use[0].upper()}{use[1:]}: {'; '.join(clauses)}.")
    of_class = results_by_use.get(CLASS.title, {})
    if _CLASSIFIERS in of_class:
        action = traits.action(of_class[_CLASSIFIERS].advised)
        sentences.insert(1, f"Class of {_CLASSIFIERS}: {action}.")
    return brief(sentences)


def uses_that_differ(rows: Sequence[UseRow], published: Mapping[str, UseResult]) -> list[str]:
    """Titles of uses for which another rule is recommended on published nets than on some other nets."""
    return [
        row.use.title
        for row in rows
        if row.use.title in published
        and published[row.use.title].is_resolved
        and any(result and result.advised != published[row.use.title].advised for result in row.results)
    ]


def depths_and_noise(named: Sequence[tuple[str, pd.DataFrame]]) -> str:
    """Numbers of layers and noise levels of each family, over which means are taken."""
    extents = []
    for name, frame in named:
        sigmas = frame["sigma"][frame["noise"] == GAUSSIAN.family]
        if len(sigmas):
            noise = f"σ\u00a0=\u00a0{sigmas.min():g} to {sigmas.max():g}"
            extents.append(f"{name}: {labels.layers(frame['depth'])}, {noise}")
    return "; ".join(extents)


def on_shallowest(named: Sequence[tuple[str, pd.DataFrame]], traits: RuleTraits) -> str:
    """Recommended rules on the shallowest nets of the first family, as a sentence; empty for one depth."""
    if not named or named[0][1]["depth"].nunique() < 2:
        return ""
    _, frame = named[0]
    depth = frame["depth"].min()
    parts = []
    for row in rows([("", frame[frame["depth"] == depth])], traits):
        (result,) = row.results
        if result and not row.use.heavy:
            value = result.value(result.advised)
            parts.append(f"{traits.label(result.advised)} for {row.use.title} ({value})")
    if not parts:
        return ""
    return f"The depth decides: with {labels.layers([depth])}, the table would have {labels.listed(parts)}."


WORDS = 40
"""Largest number of words of an answer."""


def brief(sentences: Sequence[str]) -> str:
    """Return the first sentences that have at most `WORDS` words together; at least one if there is one."""
    count = 1
    while count < len(sentences) and len(" ".join(sentences[: count + 1]).split()) <= WORDS:
        count += 1
    return " ".join(sentences[:count])


def when_to_sample(names: Sequence[str], rows: Sequence[UseRow], traits: RuleTraits) -> str:
    return " ".join(sampling_by_family(names, rows, traits))


def sampling_by_family(names: Sequence[str], rows: Sequence[UseRow], traits: RuleTraits) -> list[str]:
    """For each family, samples as accurate as the best deterministic rules, and their relative time."""
    sentences = []
    for family, name in enumerate(names):
        results = [row.results[family] for row in rows]
        comparable = [result for result in results if result and math.isfinite(result.slowdown)]
        slower = [result for result in comparable if result.slowdown >= 1.5]
        chosen = slower or [result for result in comparable if result.slowdown <= 1]
        if not chosen:
            continue
        rules = labels.listed(list(dict.fromkeys(traits.label(result.ranking.leader) for result in chosen)))
        measured_by = labels.listed([result.use.title for result in chosen])
        counts = labels.span([result.samples[1] for result in chosen if result.samples], 0)
        if slower:
            factors = labels.span([float(f"{result.slowdown:.1g}") for result in slower], 0)
            sentences.append(
                f"On {name}, {counts} Monte Carlo samples are as accurate ({measured_by}) as the best "
                f"deterministic rule, {rules}, which takes {factors} times as long."
            )
        else:
            sentences.append(
                f"On {name}, the best deterministic rule, {rules}, is faster than the {counts} samples that "
                f"reach its accuracy ({measured_by}). Draw more samples if higher accuracy is required."
            )
    return sentences


@look()
def figure(names: Sequence[str], rows: Sequence[UseRow], traits: RuleTraits) -> Figure | None:
    """Accuracy against cost for the whole distribution, a panel for each family; None without times."""
    results = next((row.results for row in rows if row.use is WHOLE), ())
    drawn = {
        name: result
        for name, result in zip(names, results, strict=False)
        if result and any(rule in result.costs.by_rule for rule in result.overall.rules)
    }
    if not drawn:
        return None
    styles_of_rules = styles((rule for result in drawn.values() for rule in result.overall.rules), traits)
    drawing, axes_of_panels = panels(
        list(drawn),
        columns=1,
        width=3.75,
        height=1.7,
        left=0.32,
        right=0.12,
        below=0.42,
    )
    unnamed: list[str] = []
    for axes, result in zip(axes_of_panels, drawn.values(), strict=True):
        overall, costs = result.overall, result.costs
        standings = [
            Standing(
                rule, 1 - overall.mean(rule), overall.half_width(rule), None, *front(rule, overall, costs)
            )
            for rule in overall.rules
        ]
        points = draw(axes, standings, costs, recorded_metric("tv_headline"), styles_of_rules)
        axes.set_ylabel("")
        unnamed += label_points(axes, points)
    remark = f" Without a label for lack of room: {', '.join(dict.fromkeys(unnamed))}." if unnamed else ""
    caption = (
        "Mean 1 − TV of the whole distribution over all settings with 95 % intervals, against the time for "
        f"one input. Up and left is better. Dots: Monte Carlo. Ringed: on the front; hollow: off it.{remark}"
    )
    return Figure("figure-overview", "Accuracy against cost", caption, drawing)


_RANKED = 5
"""Rules in a panel of the figure of ranked rules."""
_PANELS = 4


@look()
def ranked_rules(names: Sequence[str], rows: Sequence[UseRow], traits: RuleTraits) -> Figure | None:
    """The best rules of the first family with 95 % intervals, a panel for each use."""
    shown = [(row.use, row.results[0]) for row in rows if row.results[0]][:_PANELS]
    if not shown:
        return None
    styled = styles((rule for _, result in shown for rule in result.overall.rules), traits)
    drawing, axes_of_panels = panels(
        [f"{use.title} ({use.about})" for use, _ in shown],
        columns=2,
        width=0.85,
        height=0.13 * _RANKED,
        left=0.92,
        right=0.08,
        above=0.2,
        below=0.2,
        title_size=SMALL - 0.5,
        title_start=0.92,
    )
    variants: set[str] = set()
    for axes, (use, result) in zip(axes_of_panels, shown, strict=True):
        best = sorted(result.overall.rules, key=result.overall.mean)[:_RANKED]
        if result.advised not in best:
            best[-1] = result.advised
        variants.update(styled[rule].label for rule in best if styled[rule].label.startswith("DVIA"))
        scale = _SCALES[use.shown]
        for position, rule in enumerate(best):
            mean, half = result.overall.mean(rule), result.overall.half_width(rule)
            style = styled[rule]
            tip = f": {result.value(rule)} ({result.interval(rule)})"
            line = style.line | {"marker": style.marker or "o", "gid": marked(style.label, [tip])}
            if rule == result.advised:
                line |= {"markeredgecolor": INK, "markeredgewidth": 1.2, "markersize": 5.5}
            axes.plot([scale(mean)], [position], **line)
            if math.isfinite(half):
                ends = scale(mean - half), scale(mean + half)
                axes.hlines(position, *ends, color=style.colour, linewidth=1.2, gid=style.series)
        axes.set_title(axes.get_title(loc="left"), fontsize=SMALL - 0.5, fontweight="normal")
        axes.set_yticks(range(len(best)), [styled[rule].label for rule in best], fontsize=SMALL - 0.5)
        axes.tick_params(axis="x", labelsize=SMALL - 0.5, pad=1)
        axes.locator_params(axis="x", nbins=3)
        axes.set_ylim(_RANKED - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
    caption = (
        f"Means for {names[0]} with 95 % intervals. Ringed: recommended. 1 − TV: the probability that "
        "prediction and truth have in common; 1 is perfect."
    )
    if any(use.about == ERROR_FACTOR for use, _ in shown):
        caption += " An error factor of 1.05 is 5 % off."
    variants.discard("DVIA")
    if variants:
        caption += f" {labels.listed(sorted(variants))}: variants of DVIA."
    return Figure("figure-ranked", f"Best rules by use, {names[0]}", caption, drawing)


class Overview(Section):
    name = "overview"
    title = "Answers"
    page = OVERVIEW
    order = 5

    def build(self, results: Results) -> Context:
        from .distributions import distributions

        compared = comparison(results)
        named, table = rows_of(results)
        names = [name for name, _ in named]
        if compared is None:
            when = brief(sampling_by_family(names, table, results.traits))
            shares = _costs_of_first(names, table, results)
        else:
            wins = wins_of(results)
            when, shares = short_answer(wins), shares_by_noise(wins)
        published = published_of(results)
        return {
            "measured": len(results.frame) > 0,
            "failed": len(results.failed),
            "families": names,
            "rows": table,
            "which_rule": which_rule(names, table, published, results.traits),
            "published": bool(published),
            "uses_that_differ": uses_that_differ(table, published),
            "extents": depths_and_noise(named),
            "on_shallowest": on_shallowest(named, results.traits),
            "when": when,
            "when_to_sample": when_to_sample(names, table, results.traits),
            "recommended": results.traits.recommended,
            "has_costs": compared is not None,
            "inside_or_sample": "" if compared is None else answer(compared, wins_of(results)),
            "shares": shares,
            "ranked": ranked_rules(names, table, results.traits),
            "picture": distributions(results.traits),
            "figure": figure(names, table, results.traits),
            "styles": results.styles,
            "news": "" if results.published else _news(results),
        }


def _costs_of_first(names: Sequence[str], table: Sequence[UseRow], results: Results) -> Figure | None:
    """Accuracy against cost on the first family, for reports without a comparison of equal compute."""
    drawn = figure(names[:1], table, results.traits)
    return drawn and replace(drawn, anchor="figure-cost")


def _news(results: Results) -> str:
    frame = results.frame
    if frame.empty:
        return ""
    newest_run = max(frame["run"].unique())
    experiments = sorted(frame["experiment"][frame["run"] == newest_run].unique())
    source = ", ".join(experiments) if len(experiments) <= 3 else labels.plural(len(experiments), "suite")
    finished = results.meta.get("finished")
    if finished:
        source += f", finished {moment(finished)}"
    runs = frame["run"][~frame.duplicated(MEASUREMENT)]  # a measurement may be of several experiments
    is_new = runs == newest_run
    if is_new.all():
        return f"all {labels.plural(len(runs), 'measurement')}, of {source}."
    count = labels.plural(int(is_new.sum()), "measurement")
    return f"{count} of {source}, next to {int((~is_new).sum()):,} by earlier runs."
