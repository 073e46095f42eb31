"""Tables as line charts: a metric over the noise level, a line for each rule and a band for Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sdp_bench.reports.statistics.costs import plain_samples
from sdp_bench.reports.style.figure import log_scale, panels
from sdp_bench.reports.style.theme import GREY, INK, Style, is_plain
from sdp_bench.reports.tables.tables import Row, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LINES = 9
"""Most rules in one panel, without those of the band."""

_DECADE = 10.0  # ratio of the largest to the smallest value from which an axis is logarithmic


def over_noise(parts: Sequence[tuple[str, Table]], styled: dict[str, Style]) -> Drawing:
    """Draw the first component of each table, in a panel with its title."""
    from matplotlib.patches import Patch

    lined = {rule for _, table in parts for rule in _lined(table)}
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
        draw(axes, table, styled)
        if place % 3 and one_metric:
            axes.set_ylabel("")
    return drawing


def draw(axes: Axes, table: Table, styled: dict[str, Style]) -> None:
    rows = [row for row in table.rows if row.component == table.rows[0].component]
    shown: list[float] = []
    for rule in _lined(table):
        points = _points(table, rows, rule)
        axes.plot(*zip(*points, strict=True), **styled[rule].line)
        shown += [mean for _, mean in points]
    by_sigma: dict[float, list[float]] = {}
    for sigma, mean in (p for rule in table.rules if is_plain(rule) for p in _points(table, rows, rule)):
        by_sigma.setdefault(sigma, []).append(mean)
        shown.append(mean)
    if by_sigma:
        sigmas = sorted(by_sigma)
        low, high = ([end(by_sigma[sigma]) for sigma in sigmas] for end in (min, max))
        axes.fill_between(sigmas, low, high, color=GREY, alpha=0.35, linewidth=0)
        for end in (low, high):  # visible even if all sample counts are equally accurate
            axes.plot(sigmas, end, color=GREY, linewidth=0.7)
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


def _lined(table: Table) -> list[str]:
    """The first rules of a table that have a line of their own."""
    rows = [row for row in table.rows if row.component == table.rows[0].component]
    return [rule for rule in table.rules if not is_plain(rule) and _points(table, rows, rule)][:LINES]


def _points(table: Table, rows: Iterable[Row], rule: str) -> list[tuple[float, float]]:
    place = table.rules.index(rule)
    cells = ((row.sigma, row.cells[place]) for row in rows)
    return [(sigma, cell.mean) for sigma, cell in cells if cell and math.isfinite(cell.mean)]
