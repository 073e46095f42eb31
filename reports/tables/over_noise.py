"""Tables as charts: a metric over the noise level, one line per rule."""

from __future__ import annotations

import math

import numpy as np

from sdp_bench.reports.style.axis import Axis
from sdp_bench.reports.style.chart import Chart, Series
from sdp_bench.reports.style.drawing import Style
from sdp_bench.reports.style.labels import number
from sdp_bench.reports.tables.tables import Table

_DECADE = 10.0  # ratio of the largest to the smallest value from which an axis is logarithmic


def over_noise(table: Table, styled: dict[str, Style], component: str = "") -> Chart:
    """Chart the means of a table, with standard deviations, over its noise levels, for one component."""
    rows = [row for row in table.rows if row.component == component]
    series = []
    for place, rule in enumerate(table.rules):
        known = [(row.sigma, cell) for row in rows if (cell := row.cells[place])]
        points = [(sigma, cell.mean, cell.sd) for sigma, cell in known if math.isfinite(cell.mean)]
        if points:
            sigmas, means, deviations = map(np.array, zip(*points, strict=True))
            ends = [means - deviations, means + deviations]
            low, high = np.clip(ends, 0, 1) if table.metric.complement else ends
            series.append(Series(styled[rule], sigmas, means, error=deviations, low=low, high=high))
    shown = [mean for each in series for mean in each.ys.tolist()]
    ticks = tuple((sigma, f"{sigma:g}") for sigma in sorted({row.sigma for row in rows}))
    across = Axis(
        f"input noise {table.scale}",
        log=all(sigma > 0 for sigma, _ in ticks),
        ticks=ticks,
        told=lambda sigma: f"{table.scale} = {sigma:g}",
    )
    if table.metric.complement:
        along = Axis(table.metric.label, 0, 1.02)
    else:
        far = bool(shown) and min(shown) > 0 and max(shown) >= _DECADE * min(shown)
        along = Axis(table.metric.label, log=far)
    return Chart(across, along, tuple(series))


def in_words(chart: Chart, table: Table, title: str) -> str:
    """Alternative text of the chart of :func:`over_noise`."""
    ends = [
        f"{each.style.label} {number(float(each.ys[0]), 2 if table.metric.complement else None)} to "
        f"{number(float(each.ys[-1]), 2 if table.metric.complement else None)}"
        for each in chart.series
    ]
    sigmas = [float(sigma) for each in chart.series for sigma in each.xs]
    scale = table.scale
    return (
        f"Line chart for {title}: {table.metric.label} from {scale} = {min(sigmas):g} to "
        f"{scale} = {max(sigmas):g}. {'; '.join(ends)}."
    )
