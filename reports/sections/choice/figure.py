"""Figures of the accuracy-cost front: one panel for each kind of nets and sigma."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import itemgetter

import numpy as np

from sdp_bench.reports.sections.choice.choice import OFF, ON, Band, Choice, Condition, Standing
from sdp_bench.reports.statistics.costs import plain_samples
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.axis import Axis
from sdp_bench.reports.style.chart import Chart, Guide, Series
from sdp_bench.reports.style.drawing import Style, styles
from sdp_bench.reports.style.figure import Figure, Panel

SHOWN = 3
"""Kinds of nets, and values of sigma, in the first figure."""
MOST = 12
"""Largest number of panels in the second figure."""

_GREY = "#8c8c8c"
_COUNTS = (100, 1000, 10_000, 100_000, 1_000_000)
"""Sample counts along the upper edge."""


def choice_figures(choice: Choice) -> tuple[Figure | None, Figure | None]:
    """Return the main figure, and one with further kinds of nets; None without panels.

    The first has up to three kinds of the first non-linearity (fewest layers, most, and one between), each at
    the smallest, a middle and the largest sigma for which all of them were measured. The second has all
    others at these sigmas, or only at the middle one if there would be more than `MOST` panels.
    """
    block = choice.blocks[0]
    own = [band for band in block.bands if band.activation == block.bands[0].activation]
    first = own if len(own) <= SHOWN else [own[0], own[(len(own) - 1) // 2], own[-1]]
    main = [(band, condition) for band in first for condition in _shown_conditions(band, first)]
    others = [band for band in choice.bands if band not in first and len(band.rules) > 2]
    rest = [(band, condition) for band in others for condition in _shown_conditions(band, [band])]
    if len(rest) > MOST:
        rest = [(band, band.conditions[(len(band.conditions) - 1) // 2]) for band in others][:MOST]
    return (
        _figure("figure-front", "Accuracy against cost, and the front", main),
        _figure("figure-front-rest", "The other nets", rest),
    )


def _shown_conditions(band: Band, among: Sequence[Band]) -> list[Condition]:
    common = set.intersection(*({condition.sigma for condition in each.conditions} for each in among))
    known = [condition for condition in band.conditions if condition.sigma in common] or list(band.conditions)
    if len(known) <= SHOWN:
        return known
    return [known[0], known[(len(known) - 1) // 2], known[-1]]


def _figure(anchor: str, title: str, pairs: Sequence[tuple[Band, Condition]]) -> Figure | None:
    pairs = [
        (band, condition)
        for band, condition in pairs
        if any(s.rule in band.costs.by_rule for s in condition.standings)
    ]
    if not pairs:
        return None
    styled = styles((s.rule for _, condition in pairs for s in condition.standings), pairs[0][0].traits)
    panels = []
    for band, condition in pairs:
        at = f"{band.scale}\u00a0=\u00a0{condition.sigma:g}"
        name = f"{band.title}, {at}"
        facets = {"metric": band.metric.title, "net": band.title, "noise": at}
        panels.append(Panel(name, chart(band, condition, styled), description(name, band, condition), facets))
    lower = {band.metric.title for band, _ in pairs if band.metric.better == "lower"}
    up = f" Of {' and '.join(sorted(lower))}, a distance, the axis is turned round." if lower else ""
    metric = pairs[0][0].metric
    caption = (
        f"Mean {metric.title} over nets and inputs against the rule’s own time for one input (logarithmic; "
        "fastest of its runs, the thin line reaches to their median). Up and to the left is better."
        f"{up} Bars are 95 % intervals; rules are compared in pairs, so where bars overlap they may still be "
        "told apart. The step line is the front: the most accurate rule, on average, for the time. Ringed: "
        "shown to be on the front; hollow: shown to be off it, because some rule that takes no longer is "
        "more accurate; else undecided. Plain Monte Carlo is joined by a dotted line, with its number of "
        "samples; the numbers above are how many samples take that long. The dashed line is what the exact "
        "law would show."
    )
    return Figure(anchor, title, caption, tuple(panels), tuple(styled.values()))


def chart(band: Band, condition: Condition, styled: dict[str, Style]) -> Chart:
    """Chart of accuracy against cost in one condition, in which at least one rule has a time."""
    costs = band.costs
    known = [each for each in condition.standings if each.rule in costs.by_rule]
    low = min(costs.by_rule[each.rule].seconds for each in known) / 1.5
    high = max(costs.by_rule[each.rule].typical for each in known) * 1.7
    time = Axis("time for one input", low, high, log=True, write=labels.duration, told=labels.duration)
    if band.metric.complement:
        accuracy = Axis(band.metric.label, 0, 1.02)
    else:
        accuracy = Axis("distance (up is better)", flipped=band.metric.better != "higher")
    joined, plain = _plain(band, known)
    guides = [_step(band, known, high), *joined]
    if math.isfinite(condition.floor):
        guides.append(Guide([low, high], [condition.floor] * 2, dashes=(4, 3), opacity=0.7))
    series = tuple(_series(band, each, styled[each.rule], plain.get(each.rule, "")) for each in known)
    return Chart(time, accuracy, series, tuple(guides), top=tuple(_samples(band, low, high)))


def _series(band: Band, standing: Standing, style: Style, note: str) -> Series:
    cost, value, half = band.costs.by_rule[standing.rule], standing.value, standing.half_width
    ends = np.clip([value - half, value + half], 0, 1 if band.metric.complement else None)
    return Series(
        style,
        [cost.seconds],
        [value],
        error=[half],
        low=ends[:1],
        high=ends[1:],
        until=[cost.typical],
        notes=[note] if note else (),
        size=3.5,
        hollow=standing.front == OFF,
        ringed=standing.front == ON,
    )


def _step(band: Band, known: Sequence[Standing], end: float) -> Guide:
    """Best mean by time: horizontal until the next better rule."""
    sign = 1 if band.metric.better == "higher" else -1
    points = [(band.costs.by_rule[each.rule].seconds, each.value) for each in known]
    corners: list[tuple[float, float]] = []
    for seconds, value in sorted(points, key=lambda point: (point[0], -sign * point[1])):
        if not corners or sign * value > sign * corners[-1][1]:
            if corners:
                corners.append((seconds, corners[-1][1]))
            corners.append((seconds, value))
    corners.append((end, corners[-1][1]))
    x, y = zip(*corners, strict=True)
    return Guide(x, y, opacity=0.75)


def _plain(band: Band, known: Sequence[Standing]) -> tuple[list[Guide], dict[str, str]]:
    """Line through plain Monte Carlo, and its sample counts by rule if there is room."""
    seconds = {each.rule: band.costs.by_rule[each.rule].seconds for each in known}
    plain = sorted(
        ((k, each) for each in known if (k := plain_samples(each.rule)) is not None), key=itemgetter(0)
    )
    if not plain:
        return [], {}
    apart = (max(seconds.values()) / min(seconds.values())) ** 0.07
    notes: dict[str, str] = {}
    last = math.inf
    for k, each in reversed(plain):
        if seconds[each.rule] * apart <= last:
            last = seconds[each.rule]
            notes[each.rule] = f"{k}"
    x, y = zip(*((seconds[each.rule], each.value) for _, each in plain), strict=True)
    return [Guide(x, y, colour=_GREY, dashes=(1.0, 1.5), width=1.6)], notes


def _samples(band: Band, low: float, high: float) -> Iterator[tuple[float, str]]:
    sampling = band.costs.sampling
    if sampling is None:
        return
    span, last = math.log(high / low), -math.inf
    for k in _COUNTS:
        seconds = sampling.seconds(k)
        share = math.log(seconds / low) / span
        if 0.05 < share < 0.93 and share - last > 0.13:
            yield seconds, f"{k:,} samples" if last < 0 else f"{k:,}"
            last = share + (0.09 if last < 0 else 0)


def description(name: str, band: Band, condition: Condition) -> str:
    """Alternative text of :func:`chart`."""
    parts = [
        f"{band.traits.label(each.rule)} {labels.duration(band.costs.by_rule[each.rule].seconds)}, "
        f"{each.value:.2f}{' on the front' if each.front == ON else ''}"
        for each in condition.standings
        if each.rule in band.costs.by_rule
    ]
    return f"Scatter chart for {name}: cost and accuracy. {'; '.join(parts)}."
