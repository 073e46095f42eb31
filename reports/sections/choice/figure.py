"""The accuracy-cost front, drawn: one panel for each kind of nets at each sigma that is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from sdp_bench.reports.sections.choice.choice import OFF, ON, Band, Choice, Condition
from sdp_bench.reports.statistics.costs import plain_samples
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.drawing import (
    INK,
    Figure,
    Panel,
    Style,
    canvas_of,
    legend_of,
    look,
    styles,
    svg_of,
)

SHOWN = 3
"""Kinds of nets, and values of sigma, in the first figure."""
MOST = 12
"""Panels of the second figure, at most."""

_TICKS = (1, 2, 5)


def choice_figures(choice: Choice) -> tuple[Figure | None, Figure | None]:
    """The figure that everybody sees, and the one with the other kinds of nets; None where there is none.

    The first has up to three kinds of the first non-linearity (fewest layers, most, and between), each at the
    smallest, a middle and the largest sigma that all of them were measured at. The second has what else
    there is at these sigmas, or at the middle one alone where that would be more than `MOST` panels.

    Parameters
    ----------
    choice : Choice

    Returns
    -------
    main, rest : Figure or None
    """
    block = choice.blocks[0]
    own = [band for band in block.bands if band.activation == block.bands[0].activation]
    first = own if len(own) <= SHOWN else [own[0], own[(len(own) - 1) // 2], own[-1]]
    main = [(band, condition) for band in first for condition in _shown_conditions(band, first)]
    others = [band for band in choice.bands if band not in first and len(band.rules) > 2]
    rest = [(band, condition) for band in others for condition in _shown_conditions(band, [band])]
    if len(rest) > MOST:
        rest = [(band, band.conditions[(len(band.conditions) - 1) // 2]) for band in others][:MOST]
    with look():
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
    for number, (band, condition) in enumerate(pairs):
        canvas, axes = canvas_of(height=0.86, left=0.52 if band.metric.complement else 0.72, top=0.24)
        _draw(axes, band, condition, styled)
        name = f"{band.title}, {band.scale}\u00a0=\u00a0{condition.sigma:g}"
        panels.append(Panel(name, svg_of(canvas, f"{anchor}-{number}"), _description(name, band, condition)))
    lower = {band.metric.title for band, _ in pairs if band.metric.better == "lower"}
    up = f" Of {' and '.join(sorted(lower))}, a distance, the axis is turned round." if lower else ""
    metric = pairs[0][0].metric
    caption = (
        f"Mean {metric.title} over nets and inputs against the rule’s own time for one input (logarithmic; "
        "fastest of its runs, the thin line reaches to their median). Up and to the left is better."
        f"{up} Bars are 95 % intervals; rules are compared in pairs, so where bars overlap they may still be "
        "told apart. The step line is the front: the most accurate rule, on average, for the time. Ringed: "
        "shown to be on the front; pale: shown to be off it, because some rule that takes no longer is more "
        "accurate; else undecided. Plain Monte Carlo is joined by a dotted line, with its number of samples; "
        "the numbers above are how many samples take that long. The dashed line is what the exact law would "
        "show."
    )
    return Figure(anchor, title, caption, tuple(panels), legend_of(styled.values(), f"{anchor}-swatch"))


def _draw(axes: Axes, band: Band, condition: Condition, styled: dict[str, Style]) -> None:
    costs = band.costs
    known = [each for each in condition.standings if each.rule in costs.by_rule]
    sign = 1 if band.metric.better == "higher" else -1
    low = min(costs.by_rule[each.rule].seconds for each in known)
    high = max(costs.by_rule[each.rule].typical for each in known)
    axes.set_xscale("log")
    axes.set_xlim(low / 1.5, high * 1.7)
    if band.metric.complement:
        axes.set_ylim(0, 1.02)
    if math.isfinite(condition.floor):
        axes.axhline(condition.floor, color=INK, linewidth=0.9, dashes=(4, 3), alpha=0.7)
    _step(axes, [(costs.by_rule[each.rule].seconds, each.value) for each in known], sign, high * 1.7)
    plain = sorted((k, each) for each in known if (k := plain_samples(each.rule)) is not None)
    if plain:
        grey = "#8c8c8c"
        axes.plot(
            [costs.by_rule[each.rule].seconds for _, each in plain],
            [each.value for _, each in plain],
            color=grey,
            linestyle=(0, (1, 1.5)),
        )
    for each in known:
        cost, style = costs.by_rule[each.rule], styled[each.rule]
        alpha = 0.35 if each.front == OFF else 1.0
        axes.hlines(
            each.value, cost.seconds, cost.typical, colors=style.colour, linewidth=0.9, alpha=alpha / 2
        )
        if math.isfinite(each.half_width):
            ends = np.array([each.value - each.half_width, each.value + each.half_width])
            if band.metric.complement:
                ends = ends.clip(0, 1)
            ends = ends.clip(min=0)
            axes.plot([cost.seconds] * 2, ends, color=style.colour, linewidth=1.5, alpha=alpha * 0.7)
        axes.plot(
            cost.seconds,
            each.value,
            marker=style.marker,
            color=style.colour,
            markersize=7,
            markeredgecolor=INK if each.front == ON else "none",
            markeredgewidth=1.3 if each.front == ON else 0,
            alpha=alpha,
        )
    last = math.inf
    for k, each in reversed(plain):
        at = (costs.by_rule[each.rule].seconds, each.value)
        if at[0] * (high / low) ** 0.07 > last:
            continue
        last = at[0]
        axes.annotate(f"{k}", at, (0, -13), textcoords="offset points", fontsize=8, ha="center", alpha=0.8)
    axes.set_ylabel(band.metric.label if band.metric.complement else "distance (up is better)")
    axes.set_xlabel("time for one input")
    if sign < 0:
        axes.invert_yaxis()
    _time_axis(axes)
    _sample_axis(axes, band)


def _step(axes: Axes, points: list[tuple[float, float]], sign: int, end: float) -> None:
    """Best mean for the time: horizontal until the next rule that is better."""
    corners: list[tuple[float, float]] = []
    for seconds, value in sorted(points, key=lambda point: (point[0], -sign * point[1])):
        if not corners or sign * value > sign * corners[-1][1]:
            if corners:
                corners.append((seconds, corners[-1][1]))
            corners.append((seconds, value))
    corners.append((end, corners[-1][1]))
    axes.plot(*zip(*corners, strict=True), color=INK, linewidth=0.9, alpha=0.75)


def _time_axis(axes: Axes) -> None:
    # Plain text: matplotlib's own labels of a logarithmic axis are formulae, slow to set.
    low, high = axes.get_xlim()
    ticks = [10.0**decade for decade in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    if len(ticks) < 2:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [m * 10.0**d for d in decades for m in _TICKS if low <= m * 10.0**d <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([labels.duration(tick) for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())


def _sample_axis(axes: Axes, band: Band) -> None:
    """Numbers of samples that take as long, along the top, where they do not crowd."""
    sampling = band.costs.sampling
    if sampling is None:
        return
    low, high = axes.get_xlim()
    span, last = math.log(high / low), -math.inf
    for k in (100, 1000, 10_000, 100_000, 1_000_000):
        share = math.log(sampling.seconds(k) / low) / span
        if 0.05 < share < 0.93 and share - last > 0.13:
            text = f"{k:,} samples" if last < 0 else f"{k:,}"
            style: dict[str, Any] = {"fontsize": 8, "ha": "center", "va": "bottom", "alpha": 0.8}
            axes.text(share, 1.0, text, transform=axes.transAxes, **style)
            axes.plot([share, share], [0.985, 1.0], transform=axes.transAxes, color=INK, linewidth=0.9)
            last = share + (0.09 if last < 0 else 0)


def _description(name: str, band: Band, condition: Condition) -> str:
    parts = [
        f"{band.traits.label(each.rule)} {labels.duration(band.costs.by_rule[each.rule].seconds)}, "
        f"{each.value:.2f}{' on the front' if each.front == ON else ''}"
        for each in condition.standings
        if each.rule in band.costs.by_rule
    ]
    return f"Scatter chart for {name}: cost and accuracy. {'; '.join(parts)}."
