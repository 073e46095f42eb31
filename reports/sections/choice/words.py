"""Sentences on the choice between rules, computed from results."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence

from sdp_bench.reports.sections.choice.choice import BUDGETS, Band, Condition
from sdp_bench.reports.statistics.costs import plain_samples
from sdp_bench.reports.statistics.ranking import Ranking
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.nets import NetKind
from sdp_bench.reports.style.rules import RuleTraits


def names(rules: Iterable[str], traits: RuleTraits) -> str:
    """Labels of rules on one line, with plain Monte Carlo estimates together."""
    ordered = traits.in_order(rules)
    counts = [k for rule in ordered if (k := plain_samples(rule)) is not None]
    others = [rule for rule in ordered if plain_samples(rule) is None]
    parts = [re.sub("^MC estimate (.*), Sobol$", r"Sobol MC \1", traits.label(rule)) for rule in others]
    return _listed([*parts, f"MC k={', '.join(map(str, counts))}"] if counts else parts)


def by_nets(bands: Sequence[Band]) -> Iterator[str]:
    """Rules with the best mean at any cost, among all and among deterministic ones, by nets and sigma."""
    for band in bands:
        every = [(condition, condition.answers[-1].best) for condition in band.conditions]
        deterministic = [(condition, condition.answers[-1].deterministic) for condition in band.conditions]
        parts = [_best_by_sigma(band, every)]
        if any(one != other for one, other in zip(every, deterministic, strict=True)):
            parts.append(f"without sampling {_best_by_sigma(band, deterministic)}")
        said = ". ".join(part[:1].upper() + part[1:] if number else part for number, part in enumerate(parts))
        yield f"{band.title}: {said}."


def sentences(bands: Sequence[Band]) -> Iterator[str]:
    """Findings over all nets: the best deterministic rules, where sampling wins, and costs."""
    timed = [band for band in bands if len(band.budgets) > 1]
    yield from _without_sampling(timed)
    yield from _against_sampling(timed)
    yield from _sample_times(timed)


def by_family(bands: Sequence[Band]) -> Iterator[str]:
    """Best deterministic rules by family of classifiers: attention, convolution, ..."""
    families: dict[str, list[Band]] = {}
    for band in bands:
        if family := NetKind(band.activation, band.depths[-1]).family:
            families.setdefault(family, []).append(band)
    for family, own in families.items():
        titles = dict.fromkeys(NetKind(band.activation, band.depths[-1]).label for band in own)
        yield from _without_sampling(own, f"{family} ({_listed(list(titles))})")


def _sample_times(bands: Sequence[Band]) -> Iterator[str]:
    """Number of samples that take as long as each deterministic rule, as a range over kinds of nets."""
    spans: dict[str, list[float]] = {}
    for band in bands:
        for rule, cost in band.costs.by_rule.items():
            if not band.traits.is_sampling(rule) and math.isfinite(cost.samples):
                spans.setdefault(rule, []).append(cost.samples)
    if not spans:
        return
    parts = []
    traits = bands[0].traits
    for rule in traits.in_order(spans):
        low, high = (_rounded(end(spans[rule])) for end in (min, max))
        parts.append(f"{traits.label(rule)} {low}" + (f" to {high}" if high != low else ""))
    yield (
        "Time for one input, in Monte Carlo samples that take as long, from one kind of nets to another: "
        f"{', '.join(parts)}."
    )


def _rounded(samples: float) -> str:
    """Sample count to two figures."""
    if samples < 5:
        return "< 5"
    digits = 1 - math.floor(math.log10(samples))
    return f"{round(samples, digits):,.0f}"


def _best_by_sigma(band: Band, answers: Sequence[tuple[Condition, Ranking | None]]) -> str:
    """Best rules, joining adjacent sigmas with the same one, significant or not."""
    known = [(condition, contest) for condition, contest in answers if contest]
    runs = itertools.groupby(known, key=lambda pair: (pair[1].leader, pair[0].fixed, pair[1].decided))
    return "; ".join(_best_over(band, leader, list(run)) for (leader, *_), run in runs) or "nothing to rank"


def _best_over(band: Band, leader: str, run: list[tuple[Condition, Ranking]]) -> str:
    low, high = run[0][0].sigma, run[-1][0].sigma
    text = f"{band.traits.label(leader)} at {band.scale}\u00a0=\u00a0{low:g}"
    text += f" to {high:g}" if len(run) > 1 else ""
    if run[0][0].fixed:
        return f"{text} (on {run[0][0].design} alone)"
    level = {rule for _, contest in run for rule in contest.tied}
    if not level:
        return f"{text} (shown to be best)"
    if len(level) < 3:
        return f"{text} (not told from {names(level, band.traits)})"
    return f"{text} ({len(level)} others are not told from it)"


def _without_sampling(bands: Sequence[Band], nets: str = "") -> Iterator[str]:
    """Deterministic rules that are best or tied with the best over settings, perhaps of some `nets`."""
    answers = [
        condition.answers[-1].deterministic
        for band in bands
        for condition in band.conditions
        if not condition.fixed
    ]
    contests = [each for each in answers if each]
    if not contests:
        return
    counts: dict[str, list[int]] = {}
    for each in contests:
        for number, rule in enumerate((each.leader, *each.tied)):
            count = counts.setdefault(rule, [0, 0])
            count[0] += number == 0
            count[1] += 1
    ranked = sorted(counts, key=lambda rule: (-counts[rule][1], -counts[rule][0]))
    first, *others = ranked
    label = bands[0].traits.label
    count_of_places = labels.plural(len(contests), "place")
    begun = f"Of nets of {nets}, without" if nets else "Without"
    text = (
        f"{begun} sampling, at any price, {label(first)} is best, or not told from the best, at "
        f"{counts[first][1]} of {count_of_places} (each kind of nets at each σ), and has the best mean at "
        f"{counts[first][0]}"
    )
    for rule in others:
        text += f"; {label(rule)} at {counts[rule][1]} and {counts[rule][0]}"
    yield f"{text}."


def _against_sampling(bands: Sequence[Band]) -> Iterator[str]:
    """For each budget, how often the significantly best rule samples, and how often it does not."""
    parts: list[str] = []
    for budget in BUDGETS[:-1]:
        alike = [
            {band.traits.is_sampling(rule) for rule in (answer.best.leader, *answer.best.tied)}
            for band in bands
            for condition in band.conditions
            if not condition.fixed
            for answer in condition.answers
            if answer.budget == budget and answer.best and answer.deterministic
        ]
        if alike:
            lost, won = alike.count({False}), alike.count({True})
            first = f"In the time of {budget:g} samples not sampling is shown to be better at {lost} of "
            first += f"{labels.plural(len(alike), 'place')} and sampling at {won}"
            parts.append(f"in that of {budget:g} at {lost} and {won}" if parts else first)
    if parts:
        yield f"{'; '.join(parts)}. Elsewhere it may be either."


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else list(parts))
