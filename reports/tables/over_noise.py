"""Tables as line charts: a metric over the noise level, a line for each rule and a band for Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..statistics.costs import plain_samples
from ..style.figure import SIDE, log_scale, panels
from ..style.labels import number, spread
from ..style.theme import GREY, INK, Style, is_plain, marked
from .tables import Cell, Table, TableRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LINES = 9
"""Most rules in one panel, without those of the band."""

_EXACT = Style("exact law, 95 % point", INK, "", (4.0, 3.0))
_Point = tuple[float, Cell]  # noise level and cell
_DECADE = 10.0  # ratio of the largest to the smallest value from which an axis is logarithmic


def over_noise(parts: Sequence[tuple[str, Table]], styled: dict[str, Style]) -> Drawing:
    """Draw the first component of each table, in a panel with its title."""
    from matplotlib.patches import Patch

    tables = [table for _, table in parts]
    drawn_rules: set[str] = set()
    sample_counts = []
    for table in tables:
        lines, _ = _curves(table)
        drawn_rules.update(lines)
        sample_counts += [plain_samples(rule) or 100 for rule in table.rules if is_plain(rule)]
    # Variants of a rule come last; the first rules of the legend stand out.
    in_order = sorted(styled, key=lambda rule: ":" in rule)
    legend: list[Any] = [styled[rule] for rule in in_order if rule in drawn_rules]
    band = ""
    if sample_counts:
        band = f"Monte Carlo, {min(sample_counts)} to {max(sample_counts)} samples"
        legend.append(Patch(facecolor=GREY, alpha=0.35, label=band, gid=marked(band)))
    if any(math.isfinite(row.floor95) for table in tables for row in table.rows):
        legend.append(_EXACT)
    drawing, axes_of_panels = panels([title for title, _ in parts], legend)
    is_one_metric = len({table.metric.label for table in tables}) == 1
    for panel, (axes, table) in enumerate(zip(axes_of_panels, tables, strict=True)):
        _draw(axes, table, styled, band)
        if panel % 3 and is_one_metric:
            axes.set_ylabel("")
        elif is_one_metric:
            axes.yaxis.label.set_gid(SIDE)
    return drawing


def _draw(axes: Axes, table: Table, styled: dict[str, Style], name_of_band: str) -> None:
    lines, band = _curves(table)
    means = [cell.mean for _, cell in band]
    for rule, points in lines.items():
        means_of_rule = [cell.mean for _, cell in points]
        tips = [f" at {table.scale} = {sigma:g}: {_with_spread(cell)}" for sigma, cell in points]
        line = styled[rule].line | {"gid": marked(styled[rule].label, tips)}
        axes.plot([sigma for sigma, _ in points], means_of_rule, **line)
        means += means_of_rule
    if band:
        pairs = [(sigma, cell.mean) for sigma, cell in band]
        ends = pd.DataFrame(pairs, columns=["sigma", "mean"]).groupby("sigma")["mean"].agg(["min", "max"])
        mark = marked(name_of_band)
        axes.fill_between(ends.index, ends["min"], ends["max"], color=GREY, alpha=0.35, linewidth=0, gid=mark)
        for end in ends:  # visible even if all sample counts are equally accurate
            axes.plot(ends.index, ends[end], color=GREY, linewidth=0.7, gid=mark)
    rows = sorted(_rows(table), key=lambda row: row.sigma)
    with_floor = [row for row in rows if math.isfinite(row.floor95)]
    if with_floor:
        levels, floors = [row.sigma for row in with_floor], [row.floor95 for row in with_floor]
        axes.plot(levels, floors, **_EXACT.line | {"label": None, "linewidth": 0.9})
    sigmas = sorted({row.sigma for row in rows})
    if all(sigma > 0 for sigma in sigmas):
        axes.set_xscale("log")
    axes.set_xticks(sigmas, [f"{sigma:g}" for sigma in sigmas])
    axes.set_xticks([], minor=True)
    axes.set(xlabel=f"noise level {table.scale}", ylabel=table.metric.label)
    if table.metric.complement:
        axes.set_ylim(0, 1.02)
    elif means and min(means) > 0 and max(means) >= _DECADE * min(means):
        log_scale(axes.yaxis)


def _rows(table: Table) -> list[TableRow]:
    return [row for row in table.rows if row.component == table.rows[0].component]


def _with_spread(cell: Cell) -> str:
    """Mean, and standard deviation over nets and inputs if known."""
    if math.isnan(cell.sd):
        return number(cell.mean)
    return f"{number(cell.mean)} ± {spread(cell.sd, cell.mean)} (standard deviation)"


def _curves(table: Table) -> tuple[dict[str, list[_Point]], list[_Point]]:
    """Points of the first rules that have a separate line, and those of the band."""
    lines: dict[str, list[_Point]] = {}
    band: list[_Point] = []
    for column, rule in enumerate(table.rules):
        points = []
        for row in _rows(table):
            cell = row.cells[column]
            if cell and math.isfinite(cell.mean):
                points.append((row.sigma, cell))
        if is_plain(rule):
            band += points
        elif points and len(lines) < LINES:
            lines[rule] = points
    return lines, band
