"""A metric over a rule's parameter, drawn: a panel for each kind of nets, a line for each noise level."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from sdp_bench.reports.sections.sweeps.sweeps import Curves, Sweep
from sdp_bench.reports.style.drawing import (
    Figure,
    Panel,
    Style,
    canvas_of,
    label_x,
    legend_of,
    look,
    svg_of,
)
from sdp_bench.reports.style.labels import number

_COLOURS = ("#0072b2", "#009e73", "#b59f00", "#d55e00", "#aa4466", "#7f3c8d", "#8c564b", "#00848c")
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "h")
_DECADE = 10.0
"""Times the smallest value that the largest is, from which on an axis is logarithmic."""


def figure(sweep: Sweep) -> Figure:
    """Figure of a sweep."""
    first = sweep.kinds[0].table
    sigmas = sorted({line.sigma for curves in sweep.kinds for line in curves.lines})
    styled = {
        sigma: Style(
            f"{first.scale} = {sigma:g}", _COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)], ()
        )
        for place, sigma in enumerate(sigmas)
    }
    with look():
        panels = tuple(
            _panel(sweep, curves, styled, f"{sweep.anchor}-{place}")
            for place, curves in enumerate(sweep.kinds)
        )
        legend = legend_of(styled.values(), f"{sweep.anchor}-swatch")
    left_out = sweep.count - len(sweep.kinds)
    rest = f" The other {left_out} kinds of nets are in the tables." if left_out else ""
    better = {"higher": ", higher is better", "lower": ", lower is better"}.get(first.metric.better, "")
    return Figure(
        anchor=sweep.anchor,
        title=f"{first.metric.title}, {sweep.swept.title}",
        caption=f"Mean over nets and inputs ({first.experiment}{better}), a line for each noise level, all "
        f"else of the rule being equal.{rest}",
        panels=panels,
        legend=legend,
    )


def _panel(sweep: Sweep, curves: Curves, styled: dict[float, Style], prefix: str) -> Panel:
    metric, values = curves.table.metric, curves.values
    canvas, axes = canvas_of(height=0.86, left=0.52 if metric.complement else 0.72)
    ends = []
    for line in curves.lines:
        style = styled[line.sigma]
        means = {value: cell.mean for value, cell in line.cells.items() if math.isfinite(cell.mean)}
        axes.plot(
            list(means),
            list(means.values()),
            color=style.colour,
            marker=style.marker,
            markersize=5,
            markeredgewidth=0,
        )
        low, high = (number(means[end]) for end in (min(means), max(means)))
        ends.append(f"{style.label} {low} to {high}")
    axes.set(xscale=_scale(values), xlabel=sweep.swept.parameter, ylabel=metric.label)
    if metric.complement:
        axes.set_ylim(0, 1.02)
    else:
        axes.set_yscale(_scale([cell.mean for line in curves.lines for cell in line.cells.values()]))
    label_x(axes, values, [f"{value:g}" for value in values])
    axes.minorticks_off()
    title = curves.table.nets_label
    alt = (
        f"Line chart for {title}: {metric.label} from {sweep.swept.parameter} = {values[0]:g} to "
        f"{values[-1]:g}. {'; '.join(ends)}."
    )
    return Panel(title, svg_of(canvas, prefix), alt)


def _scale(values: Iterable[float]) -> Literal["log", "linear"]:
    """Logarithmic where values are positive and far apart."""
    known = [value for value in values if math.isfinite(value)]
    return "log" if min(known) > 0 and max(known) >= _DECADE * min(known) else "linear"
