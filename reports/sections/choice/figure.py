"""Figures of the accuracy-cost front: one panel for each kind of nets and sigma."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from sdp_bench.reports.sections.choice.choice import OFF, ON, Band, Choice, Condition, Standing
from sdp_bench.reports.sections.figures.figures import time_axis
from sdp_bench.reports.statistics.costs import plain_samples
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.figure import SMALL, Figure, look, panels
from sdp_bench.reports.style.theme import GREY, INK, LIGHT, Style, is_plain, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 3
"""Kinds of nets, and values of sigma, in the first figure."""
MOST = 12
"""Largest number of panels in the second figure."""

PLAIN = Style("Monte Carlo, with its number of samples", GREY, "o", (1.0, 1.4))

_COUNTS = (100, 1000, 10_000, 100_000, 1_000_000)
"""Sample counts along the upper edge."""


def choice_figures(choice: Choice) -> tuple[Figure | None, Figure | None]:
    """Return the main figure, and one with further kinds of nets; None without panels.

    The first has up to three kinds of the first non-linearity (fewest layers, most, and one between), each at
    the smallest, a middle and the largest sigma for which all of them were measured. The second has all
    others at the middle one of their sigmas.
    """
    block = choice.blocks[0]
    own = [band for band in block.bands if band.activation == block.bands[0].activation]
    first = own if len(own) <= SHOWN else [own[0], own[(len(own) - 1) // 2], own[-1]]
    main = [(band, condition) for band in first for condition in _shown_conditions(band, first)]
    others = [band for band in choice.bands if band not in first and len(band.rules) > 2]
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


@look()
def _figure(anchor: str, title: str, pairs: Sequence[tuple[Band, Condition]]) -> Figure | None:
    pairs = [
        (band, condition)
        for band, condition in pairs
        if any(s.rule in band.costs.by_rule for s in condition.standings)
    ]
    if not pairs:
        return None
    styled = styles((s.rule for _, condition in pairs for s in condition.standings), pairs[0][0].traits)
    names = [f"{band.title}, {band.scale}\u00a0=\u00a0{condition.sigma:g}" for band, condition in pairs]
    drawing, every = panels(names, legend(styled), above=0.46)
    for axes, (band, condition) in zip(every, pairs, strict=True):
        draw(axes, band, condition, styled)
    words = (description(name, band, condition) for name, (band, condition) in zip(names, pairs, strict=True))
    lower = {band.metric.title for band, _ in pairs if band.metric.better == "lower"}
    up = f" The axis of {' and '.join(sorted(lower))}, a distance, is inverted." if lower else ""
    caption = (
        f"Mean {pairs[0][0].metric.title} over nets and inputs against the rule’s own time for one input "
        f"(logarithmic; the thin line reaches from the fastest run to the median). Up and to the left is "
        f"better.{up} Bars are 95 % intervals; rules are compared in pairs, so rules with overlapping bars "
        "may still differ significantly. The step line is the front: the most accurate rule, on average, "
        "for the time. Ringed: shown to be on the front; hollow: shown to be off it, because another rule "
        "is more accurate and no slower; otherwise undecided. The numbers above are how many Monte Carlo "
        "samples take that long. The dashed line is the value of a rule with the exact law."
    )
    return Figure(anchor, title, caption, " ".join(words), drawing)


def legend(styled: dict[str, Style]) -> list[Style]:
    """Styles of a legend, with one entry for Monte Carlo of any sample count."""
    rules = [style for rule, style in styled.items() if not is_plain(rule)]
    return [*rules, PLAIN] if len(rules) < len(styled) else rules


def draw(
    axes: Axes, band: Band, condition: Condition, styled: dict[str, Style]
) -> list[tuple[float, float, str, str]]:
    """Draw accuracy against cost in one condition, in which at least one rule has a time.

    Return the points with their labels and colours; Monte Carlo has no label.
    """
    costs = band.costs
    known = [each for each in condition.standings if each.rule in costs.by_rule]
    low = min(costs.by_rule[each.rule].seconds for each in known) / 1.6
    high = max(costs.by_rule[each.rule].typical for each in known) * 1.7
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    if band.metric.complement:
        axes.set_ylim(0, 1.03)
        axes.set_ylabel(band.metric.label)
    else:
        axes.set_ylabel("distance")
        if band.metric.better != "higher":
            axes.invert_yaxis()
    axes.plot(*_step(band, known, high), color=INK, linewidth=0.9, alpha=0.75)
    if math.isfinite(condition.floor):
        axes.axhline(condition.floor, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    _draw_plain(axes, band, known)
    points = []
    for each in known:
        cost, style = costs.by_rule[each.rule], PLAIN if is_plain(each.rule) else styled[each.rule]
        ends = np.clip(
            [each.value - each.half_width, each.value + each.half_width],
            0,
            1 if band.metric.complement else None,
        )
        axes.vlines(cost.seconds, *ends, color=style.colour, linewidth=1, alpha=0.6)
        axes.hlines(each.value, cost.seconds, cost.typical, color=style.colour, linewidth=1, alpha=0.6)
        marker: dict[str, Any] = {"marker": style.marker or "."}
        if each.front == OFF:
            marker |= {"markerfacecolor": LIGHT, "markeredgewidth": 1.1}
        elif each.front == ON:
            marker |= {"markeredgecolor": INK, "markeredgewidth": 1.2, "markersize": 5}
        axes.plot([cost.seconds], [each.value], **style.line | marker)
        points.append((cost.seconds, each.value, "" if is_plain(each.rule) else style.label, style.colour))
    time_axis(axes)
    axes.set_xlim(low, high)
    _samples(axes, band, low, high)
    return points


def _step(band: Band, known: Sequence[Standing], end: float) -> tuple[list[float], list[float]]:
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
    return [x for x, _ in corners], [y for _, y in corners]


def _draw_plain(axes: Axes, band: Band, known: Iterable[Standing]) -> None:
    """Line through plain Monte Carlo, and its sample counts as far as they have room."""
    plain = sorted(
        (k, band.costs.by_rule[each.rule].seconds, each.value)
        for each in known
        if (k := plain_samples(each.rule)) is not None
    )
    axes.plot([x for _, x, _ in plain], [y for _, _, y in plain], **PLAIN.line | {"marker": ""})
    low, high = axes.get_xlim()
    last = math.inf
    for k, seconds, value in sorted(plain, key=itemgetter(1), reverse=True):
        if seconds * (high / low) ** 0.09 <= last:
            last = seconds
            axes.annotate(
                f"{k}",
                (seconds, value),
                (0, -9),
                textcoords="offset points",
                fontsize=SMALL - 0.5,
                ha="center",
            )


def _samples(axes: Axes, band: Band, low: float, high: float) -> None:
    """How many samples take how long, along the upper edge."""
    sampling = band.costs.sampling
    if sampling is None:
        return
    last = -math.inf
    for k in _COUNTS:
        share = math.log(sampling.seconds(k) / low) / math.log(high / low)
        if 0.05 < share < 0.93 and share - last > 0.16:
            text = f"{k:,} samples" if last < 0 else f"{k:,}"
            axes.text(share, 1.02, text, transform=axes.transAxes, fontsize=SMALL - 0.5, ha="center")
            last = share + (0.09 if last < 0 else 0)
    if last > 0:
        axes.set_title(axes.get_title(loc="left"), pad=13)


def description(name: str, band: Band, condition: Condition) -> str:
    """Alternative text of :func:`draw`."""
    parts = [
        f"{band.traits.label(each.rule)} {labels.duration(band.costs.by_rule[each.rule].seconds)}, "
        f"{each.value:.2f}{' on the front' if each.front == ON else ''}"
        for each in condition.standings
        if each.rule in band.costs.by_rule
    ]
    return f"Scatter chart for {name}: cost and accuracy. {'; '.join(parts)}."
