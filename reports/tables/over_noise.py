"""Tables as line charts: a metric over the noise level, a line for each rule and a band for Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..statistics.costs import plain_samples
from ..style.figure import log_scale, panels
from ..style.theme import GREY, INK, Style, is_plain
from .tables import Row, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LINES = 9
"""Most rules in one panel, without those of the band."""

_DECADE = 10.0  # ratio of the largest to the smallest value from which an axis is logarithmic


def over_noise(parts: Sequence[tuple[str, Table]], styled: dict[str, Style]) -> Drawing:
    """Draw the first component of each table, in a panel with its title."""
    from matplotlib.patches import Patch

    lined = {rule for _, table in parts for rule in _curves(table)[0]}
    counts = [plain_samples(rule) or 100 for _, table in parts for rule in table.rules if is_plain(rule)]
    legend: list[Any] = [style for rule, style in styled.items() if rule in lined]
    if counts:
        label = f"Monte Carlo, {min(counts)} to {max(counts)} samples"
        legend.append(Patch(facecolor=GREY, alpha=0.35, label=label))
    if any(math.isfinite(row.floor95) for _, table in parts for row in table.rows):
        legend.append(Style("exact law, 95 % point", INK, "", (4.0, 3.0)))
    drawing, every = panels([title for title, _ in parts], legend)
    one_metric = len({table.metric.label for _, table in parts}) == 1
    for place, (axes, (_, table)) in enumerate(zip(every, parts, strict=True)):
        _draw(axes, table, styled)
        if place % 3 and one_metric:
            axes.set_ylabel("")
    return drawing


def _draw(axes: Axes, table: Table, styled: dict[str, Style]) -> None:
    lined, band = _curves(table)
    for rule, points in lined.items():
        axes.plot(*zip(*points, strict=True), **styled[rule].line)
    shown = [mean for points in (*lined.values(), band) for _, mean in points]
    if band:
        ends = pd.DataFrame(band, columns=["sigma", "mean"]).groupby("sigma")["mean"].agg(["min", "max"])
        axes.fill_between(ends.index, ends["min"], ends["max"], color=GREY, alpha=0.35, linewidth=0)
        for end in ends:  # visible even if all sample counts are equally accurate
            axes.plot(ends.index, ends[end], color=GREY, linewidth=0.7)
    rows = _rows(table)
    floors = sorted((row.sigma, row.floor95) for row in rows if math.isfinite(row.floor95))
    if floors:
        axes.plot(*zip(*floors, strict=True), color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    sigmas = sorted({row.sigma for row in rows})
    if all(sigma > 0 for sigma in sigmas):
        axes.set_xscale("log")
    axes.set_xticks(sigmas, [f"{sigma:g}" for sigma in sigmas])
    axes.set_xticks([], minor=True)
    axes.set(xlabel=f"noise level {table.scale}", ylabel=table.metric.label)
    if table.metric.complement:
        axes.set_ylim(0, 1.02)
    elif shown and min(shown) > 0 and max(shown) >= _DECADE * min(shown):
        log_scale(axes.yaxis)


def _rows(table: Table) -> list[Row]:
    return [row for row in table.rows if row.component == table.rows[0].component]


def _curves(table: Table) -> tuple[dict[str, list[tuple[float, float]]], list[tuple[float, float]]]:
    """Noise levels and means of the first rules that have a line of their own, and those of the band."""
    lined: dict[str, list[tuple[float, float]]] = {}
    band: list[tuple[float, float]] = []
    for place, rule in enumerate(table.rules):
        cells = ((row.sigma, row.cells[place]) for row in _rows(table))
        points = [(sigma, cell.mean) for sigma, cell in cells if cell and math.isfinite(cell.mean)]
        if is_plain(rule):
            band += points
        elif points and len(lined) < LINES:
            lined[rule] = points
    return lined, band
