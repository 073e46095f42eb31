"""The section on accuracy over one parameter of a rule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sdp_ref.rules import parse_parameters

from ...numbers import slug
from ...results import Results
from ...section import Context, Section
from ...site import CHARTS
from ...style.figure import Figure, log_scale, look, panels
from ...style.theme import LIGHT, ORDERED, Style, shade
from ...tables.tables import Cell, Row, Table

LEAST = 3
"""Smallest number of values in a line."""
MOST = 6
"""Largest number of kinds of nets shown for a sweep."""


class Swept(NamedTuple):
    """A parameter of a rule that varies; `fixed` are the other parameters as written in the spec."""

    rule: str
    parameter: str
    fixed: tuple[str, ...]


class Curves(NamedTuple):
    """Cells of one table by value of the parameter, a line for each of its rows with enough values."""

    table: Table
    values: list[float]
    lines: list[tuple[Row, dict[float, Cell]]]


def sweeps(tables: Iterable[Table]) -> dict[tuple[Swept, str, str], list[Curves]]:
    """Sweeps by parameter, experiment and its first metric without components.

    If several parameters of a rule vary, there is one sweep for each of them and each combination of the
    others with at least `LEAST` values.
    """
    kinds: dict[tuple[object, ...], Table] = {}
    for table in tables:
        if not table.has_components:
            nets = (table.experiment, table.network, table.activation, table.depth, table.recipe, table.noise)
            kinds.setdefault(nets, table)
    found: dict[tuple[Swept, str, str], list[Curves]] = {}
    for table in sorted(kinds.values(), key=lambda table: table.metric.rank):
        for swept, rules in swept_in(table.rules).items():
            places = {value: table.rules.index(rule) for value, rule in rules.items()}
            lines = []
            for row in table.rows:
                own = {value: cell for value, place in places.items() if (cell := row.cells[place])}
                if sum(math.isfinite(cell.mean) for cell in own.values()) >= LEAST:
                    lines.append((row, own))
            if lines:
                values = sorted({value for _, own in lines for value in own})
                key = (swept, table.experiment, table.metric.name)
                found.setdefault(key, []).append(Curves(table, values, lines))
    return found


def swept_in(rules: Sequence[str]) -> dict[Swept, dict[float, str]]:
    found: dict[Swept, dict[float, str]] = {}
    for rule in rules:
        name, _, text = rule.partition(":")
        try:
            parameters = parse_parameters(name, text) if text else {}
        except ValueError:  # a user's rule whose name has a colon and no parameters
            continue
        for parameter, value in parameters.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                fixed = tuple(f"{key}={other}" for key, other in parameters.items() if key != parameter)
                found.setdefault(Swept(name, parameter, fixed), {})[float(value)] = rule
    return {swept: dict(sorted(own.items())) for swept, own in found.items() if len(own) >= LEAST}


@look()
def figure(swept: Swept, kinds: Sequence[Curves]) -> Figure:
    first, shown = kinds[0].table, kinds[:MOST]
    sigmas = sorted({row.sigma for curves in shown for row, _ in curves.lines})
    styled = {
        sigma: Style(f"{first.scale} = {sigma:g}", shade(ORDERED[k % 8], LIGHT), "osD^vPXh"[k % 8])
        for k, sigma in enumerate(sigmas)
    }
    drawing, every = panels([curves.table.nets_label for curves in shown], styled.values())
    for axes, (table, values, lines) in zip(every, shown, strict=True):
        for row, cells in lines:
            means = {value: cell.mean for value, cell in cells.items() if math.isfinite(cell.mean)}
            axes.plot(*zip(*means.items(), strict=True), **styled[row.sigma].line)
        if _is_wide(values):
            axes.set_xscale("log")
        if table.metric.complement:
            axes.set_ylim(0, 1.02)
        elif _is_wide([cell.mean for _, cells in lines for cell in cells.values()]):
            log_scale(axes.yaxis)
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set_xticks([], minor=True)
        axes.set(xlabel=swept.parameter, ylabel=table.metric.label)
    hidden = len(kinds) - len(shown)
    rest = f" The other {hidden} kinds of nets are in the tables." if hidden else ""
    better = {"higher": ", higher is better", "lower": ", lower is better"}.get(first.metric.better, "")
    fixed = f" ({', '.join(swept.fixed)})" if swept.fixed else ""
    return Figure(
        slug("sweep", swept.rule, swept.parameter, *swept.fixed, first.experiment, first.metric.name),
        f"{first.metric.title}, {swept.rule} over {swept.parameter}{fixed}",
        f"Mean over nets and inputs ({first.experiment}{better}) by noise level.{rest}",
        drawing,
    )


def _is_wide(values: Iterable[float]) -> bool:
    """Whether values are positive and span a decade or more, so that an axis is logarithmic."""
    known = [value for value in values if math.isfinite(value)]
    return min(known) > 0 and max(known) >= 10 * min(known)


class Sweeps(Section):
    name = "sweeps"
    title = "Over a parameter"
    page = CHARTS
    order = 35

    def build(self, results: Results) -> Context | None:
        found = sweeps(results.tables)
        drawn = [
            (swept.parameter, kinds[:MOST], figure(swept, kinds)) for (swept, *_), kinds in found.items()
        ]
        return {"sweeps": drawn} if drawn else None
