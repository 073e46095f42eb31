"""The section on accuracy over one parameter of a rule."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sdp_ref.rules import parse_parameters

from ...numbers import slug
from ...results import Results
from ...section import Context, Section
from ...site import CHARTS
from ...style.figure import Figure, log_scale, look, panels
from ...style.labels import number
from ...style.names import RuleTraits
from ...style.theme import LIGHT, ORDERED, Style, marked, shade
from ...tables.tables import Cell, Table, TableRow, setting_of, suite_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST = 3
"""Smallest number of values in a line."""
MOST = 6
"""Largest number of kinds of nets shown for a sweep."""

_PARAMETERS = re.compile(r" (?:\(|k=|\d)")  # before the parameters in a label


class Parameter(NamedTuple):
    """A parameter of a rule that varies; `fixed` are the other parameters as written in the spec."""

    rule: str
    name: str
    fixed: tuple[str, ...]


class Curves(NamedTuple):
    """Cells of one table by value of the parameter, a line for each of its rows with enough values."""

    table: Table
    values: list[float]
    lines: list[tuple[TableRow, dict[float, Cell]]]


def sweeps(tables: Iterable[Table]) -> dict[tuple[Parameter, str, str], list[Curves]]:
    """Sweeps by parameter, experiment and its first metric without components.

    If several parameters of a rule vary, there is one sweep for each of them and each combination of the
    others with at least `LEAST` values.
    """
    first_tables: dict[tuple[object, ...], Table] = {}
    for table in tables:
        if not table.has_components:
            nets = (table.experiment, table.network, table.activation, table.depth, table.recipe, table.noise)
            first_tables.setdefault(nets, table)
    curves_by_sweep: dict[tuple[Parameter, str, str], list[Curves]] = {}
    for table in sorted(first_tables.values(), key=lambda table: table.metric.rank):
        for parameter, rule_of_value in varied_parameters(table.rules).items():
            curves = _curves(table, rule_of_value)
            if curves.lines:
                key = (parameter, table.experiment, table.metric.name)
                curves_by_sweep.setdefault(key, []).append(curves)
    return curves_by_sweep


def _curves(table: Table, rule_of_value: Mapping[float, str]) -> Curves:
    columns = {value: table.rules.index(rule) for value, rule in rule_of_value.items()}
    lines = []
    values: set[float] = set()
    for row in table.rows:
        cells = {value: row.cells[column] for value, column in columns.items()}
        measured = {value: cell for value, cell in cells.items() if cell}
        if sum(math.isfinite(cell.mean) for cell in measured.values()) >= LEAST:
            lines.append((row, measured))
            values.update(measured)
    return Curves(table, sorted(values), lines)


def varied_parameters(rules: Sequence[str]) -> dict[Parameter, dict[float, str]]:
    """Return the specs of rules by parameter and its value, for parameters with at least `LEAST` values."""
    specs: dict[Parameter, dict[float, str]] = {}
    for spec in rules:
        rule, _, text = spec.partition(":")
        try:
            parameters = parse_parameters(rule, text) if text else {}
        except ValueError:  # a user's rule whose name has a colon and no parameters
            continue
        for name, value in parameters.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                fixed = tuple(f"{other}={parameters[other]}" for other in parameters if other != name)
                specs.setdefault(Parameter(rule, name, fixed), {})[float(value)] = spec
    return {
        parameter: dict(sorted(specs_by_value.items()))
        for parameter, specs_by_value in specs.items()
        if len(specs_by_value) >= LEAST
    }


@look()
def figure(parameter: Parameter, curves_of_nets: Sequence[Curves], traits: RuleTraits) -> Figure:
    """A panel for each of the first `MOST` kinds of nets, with a line for each noise level."""
    first, shown = curves_of_nets[0].table, curves_of_nets[:MOST]
    styles = _styles_of_levels(shown, first.scale)
    drawing, axes_of_panels = panels([curves.table.nets_label for curves in shown], styles.values())
    for axes, curves in zip(axes_of_panels, shown, strict=True):
        _draw(axes, curves, styles)
        axes.set(xlabel=parameter.name, ylabel=curves.table.metric.label)
    hidden = len(curves_of_nets) - len(shown)
    remainder = f" The other {hidden} kinds of nets are in the tables." if hidden else ""
    better = {"higher": ", higher is better", "lower": ", lower is better"}.get(first.metric.better, "")
    fixed = f" {', '.join(parameter.fixed)}." if parameter.fixed else ""
    spec = next(iter(varied_parameters(first.rules)[parameter].values()))
    rule = _PARAMETERS.split(traits.label(spec))[0]
    return Figure(
        slug("sweep", parameter.rule, parameter.name, *parameter.fixed, first.experiment, first.metric.name),
        f"{rule} over {parameter.name}: {suite_title(first.experiment)}",
        f"Mean {first.metric.title} over nets and inputs{better}, by noise level.{fixed}{remainder}",
        drawing,
        setting=setting_of([curves.table for curves in shown]),
    )


def _styles_of_levels(curves_of_nets: Sequence[Curves], scale: str) -> dict[float, Style]:
    sigmas = {row.sigma for curves in curves_of_nets for row, _ in curves.lines}
    colours, markers = itertools.cycle(ORDERED[:8]), itertools.cycle("osD^vPXh")
    return {
        sigma: Style(f"{scale} = {sigma:g}", shade(next(colours), LIGHT), next(markers))
        for sigma in sorted(sigmas)
    }


def _draw(axes: Axes, curves: Curves, styles: Mapping[float, Style]) -> None:
    table, values, lines = curves
    for row, cells in lines:
        known = {value: cell.mean for value, cell in cells.items() if math.isfinite(cell.mean)}
        style = styles[row.sigma]
        tips = [f", {value:g}: {number(mean)}" for value, mean in known.items()]
        axes.plot(list(known), list(known.values()), **style.line | {"gid": marked(style.label, tips)})
    if _is_wide(values):
        axes.set_xscale("log")
    if table.metric.complement:
        axes.set_ylim(0, 1.02)
    elif _is_wide([cell.mean for _, cells in lines for cell in cells.values()]):
        log_scale(axes.yaxis)
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set_xticks([], minor=True)


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
        drawn = []
        for (parameter, _, _), curves_of_nets in sweeps(results.tables).items():
            drawing = figure(parameter, curves_of_nets, results.traits)
            drawn.append((parameter.name, curves_of_nets[:MOST], drawing))
        return {"sweeps": drawn} if drawn else None
