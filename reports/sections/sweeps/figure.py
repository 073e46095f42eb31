"""Figure of a metric over a rule's parameter: a panel for each kind of nets, a line for each noise level."""

from __future__ import annotations

import math
from collections.abc import Iterable

from sdp_bench.reports.sections.sweeps.sweeps import Curves, Sweep
from sdp_bench.reports.style.axis import Axis
from sdp_bench.reports.style.chart import Chart, Series
from sdp_bench.reports.style.drawing import Style
from sdp_bench.reports.style.figure import Figure, Panel
from sdp_bench.reports.style.labels import number

_COLOURS = ("#0072b2", "#009e73", "#b59f00", "#d55e00", "#aa4466", "#7f3c8d", "#8c564b", "#00848c")
_MARKERS = ("circle", "square", "diamond", "up", "down", "plus", "cross", "hexagon")
_DECADE = 10.0
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


def figure(sweep: Sweep) -> Figure:
    first = sweep.kinds[0].table
    sigmas = sorted({line.sigma for curves in sweep.kinds for line in curves.lines})
    styled = {
        sigma: Style(
            f"{first.scale} = {sigma:g}", _COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)]
        )
        for place, sigma in enumerate(sigmas)
    }
    panels = tuple(_panel(sweep, curves, styled) for curves in sweep.kinds)
    left_out = sweep.count - len(sweep.kinds)
    rest = f" The other {left_out} kinds of nets are in the tables." if left_out else ""
    better = {"higher": ", higher is better", "lower": ", lower is better"}.get(first.metric.better, "")
    return Figure(
        anchor=sweep.anchor,
        title=f"{first.metric.title}, {sweep.swept.title}",
        caption=f"Mean over nets and inputs ({first.experiment}{better}), with their standard deviation, a "
        f"line for each noise level, all else of the rule being equal.{rest}",
        panels=panels,
        styles=tuple(styled.values()),
    )


def _panel(sweep: Sweep, curves: Curves, styled: dict[float, Style]) -> Panel:
    metric, values = curves.table.metric, curves.values
    series, ends = [], []
    for line in curves.lines:
        style = styled[line.sigma]
        known = {value: cell for value, cell in line.cells.items() if math.isfinite(cell.mean)}
        deviations = [cell.sd for cell in known.values()]
        series.append(Series(style, list(known), [cell.mean for cell in known.values()], error=deviations))
        low, high = (number(known[end].mean) for end in (min(known), max(known)))
        ends.append(f"{style.label} {low} to {high}")
    means = [cell.mean for line in curves.lines for cell in line.cells.values()]
    along = Axis(metric.label, 0, 1.02) if metric.complement else Axis(metric.label, log=_is_wide(means))
    name = sweep.swept.parameter
    ticks = tuple((value, f"{value:g}") for value in values)
    across = Axis(name, log=_is_wide(values), ticks=ticks, told=lambda value: f"{name} = {value:g}")
    title = curves.table.nets_label
    alt = (
        f"Line chart for {title}: {metric.label} from {name} = {values[0]:g} to {values[-1]:g}. "
        f"{'; '.join(ends)}."
    )
    return Panel(title, Chart(across, along, tuple(series)), alt, {"metric": metric.title, "net": title})


def _is_wide(values: Iterable[float]) -> bool:
    """Whether values are positive and far apart, so that an axis is logarithmic."""
    known = [value for value in values if math.isfinite(value)]
    return min(known) > 0 and max(known) >= _DECADE * min(known)
