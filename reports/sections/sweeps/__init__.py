"""The section on accuracy over one parameter of a rule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from sdp_bench.reports.numbers import slug
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.site import CHARTS
from sdp_bench.reports.style.figure import Figure, log_scale, look, panels
from sdp_bench.reports.style.labels import number
from sdp_bench.reports.style.theme import LIGHT, ORDERED, Style, shade
from sdp_bench.reports.tables.tables import Cell, Table
from sdp_ref.rules import parse_parameters

LEAST = 3
"""Smallest number of values in a line."""
MOST = 6
"""Largest number of kinds of nets shown for a sweep."""


@dataclass(frozen=True)
class Swept:
    """A parameter of a rule that varies; `fixed` are the other parameters as written in the spec."""

    rule: str
    parameter: str
    fixed: tuple[str, ...]

    @property
    def title(self) -> str:
        """Title for readers: ``split over k (base=sdp)``."""
        beside = f" ({', '.join(self.fixed)})" if self.fixed else ""
        return f"{self.rule} over {self.parameter}{beside}"


@dataclass(frozen=True)
class Line:
    """Means at one noise level, by ascending value of the parameter; `floor` is that of a table's row."""

    sigma: float
    floor: float
    cells: Mapping[float, Cell]


@dataclass(frozen=True)
class Curves:
    """One kind of nets: the table with the means, and a line for each noise level."""

    table: Table
    lines: tuple[Line, ...]

    @property
    def values(self) -> list[float]:
        return sorted({value for line in self.lines for value in line.cells})


@dataclass(frozen=True)
class Sweep:
    """One metric over one parameter, on kinds of nets; `count` is their number, including hidden ones."""

    swept: Swept
    kinds: tuple[Curves, ...]
    count: int

    @property
    def anchor(self) -> str:
        first = self.kinds[0].table
        swept = (self.swept.rule, self.swept.parameter, *self.swept.fixed)
        return slug("sweep", *swept, first.experiment, first.metric.name)


def sweeps(tables: Iterable[Table]) -> list[Sweep]:
    """Find the sweeps in tables, for each experiment by its first metric without components.

    If several parameters of a rule vary, there is one sweep for each of them and each combination of the
    others with at least `LEAST` values.
    """
    kinds: dict[tuple[object, ...], Table] = {}
    for table in tables:
        if not table.has_components:
            nets = (table.experiment, table.network, table.activation, table.depth, table.recipe, table.noise)
            kinds.setdefault(nets, table)
    found: dict[tuple[Swept, str, str], list[Curves]] = {}
    for table in kinds.values():
        for swept, rules in swept_in(table.rules).items():
            if curves := _curves(table, rules):
                found.setdefault((swept, table.experiment, table.metric.name), []).append(curves)
    every = [Sweep(swept, tuple(own[:MOST]), len(own)) for (swept, *_), own in found.items()]
    return sorted(every, key=lambda sweep: sweep.kinds[0].table.metric.rank)


def swept_in(rules: Sequence[str]) -> dict[Swept, dict[float, str]]:
    """Rules of each sweep, by ascending value of its parameter."""
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


def _curves(table: Table, rules: Mapping[float, str]) -> Curves | None:
    """Lines of one table; None if no noise level has enough values."""
    places = {value: table.rules.index(rule) for value, rule in rules.items()}
    lines = []
    for row in table.rows:
        cells = {value: cell for value, place in places.items() if (cell := row.cells[place])}
        if sum(math.isfinite(cell.mean) for cell in cells.values()) >= LEAST:
            lines.append(Line(row.sigma, row.floor, cells))
    return Curves(table, tuple(lines)) if lines else None


_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "h")
_DECADE = 10.0
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


@look()
def figure(sweep: Sweep) -> Figure:
    import seaborn as sns

    first = sweep.kinds[0].table
    sigmas = sorted({line.sigma for curves in sweep.kinds for line in curves.lines})
    styled = {
        sigma: Style(f"{first.scale} = {sigma:g}", shade(ORDERED[k % 8], LIGHT), _MARKERS[k % 8])
        for k, sigma in enumerate(sigmas)
    }
    drawing, every = panels([curves.table.nets_label for curves in sweep.kinds], styled.values())
    words = []
    for axes, curves in zip(every, sweep.kinds, strict=True):
        data = _data(curves)
        sns.lineplot(
            data, x="parameter", y="mean", hue="sigma", style="sigma", dashes=False, errorbar=None,
            legend=False, ax=axes,
            palette={sigma: style.colour for sigma, style in styled.items()},
            markers={sigma: style.marker for sigma, style in styled.items()}, markeredgewidth=0,
        )  # fmt: skip
        metric, values = curves.table.metric, curves.values
        if _is_wide(values):
            axes.set_xscale("log")
        if metric.complement:
            axes.set_ylim(0, 1.02)
        elif _is_wide(data["mean"]):
            log_scale(axes.yaxis)
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set_xticks([], minor=True)
        axes.set(xlabel=sweep.swept.parameter, ylabel=metric.label)
        words.append(_words(sweep, curves, data))
    left_out = sweep.count - len(sweep.kinds)
    rest = f" The other {left_out} kinds of nets are in the tables." if left_out else ""
    better = {"higher": ", higher is better", "lower": ", lower is better"}.get(first.metric.better, "")
    return Figure(
        sweep.anchor,
        f"{first.metric.title}, {sweep.swept.title}",
        f"Mean over nets and inputs ({first.experiment}{better}), a line for each noise level; the rule's "
        f"other parameters are fixed.{rest}",
        " ".join(words),
        drawing,
    )


def _data(curves: Curves) -> pd.DataFrame:
    rows = [
        (line.sigma, value, cell.mean)
        for line in curves.lines
        for value, cell in line.cells.items()
        if math.isfinite(cell.mean)
    ]
    return pd.DataFrame(rows, columns=["sigma", "parameter", "mean"])


def _words(sweep: Sweep, curves: Curves, data: pd.DataFrame) -> str:
    name, table = sweep.swept.parameter, curves.table
    ends = []
    for sigma, own in data.groupby("sigma"):
        means = own.sort_values("parameter")["mean"]
        ends.append(f"{table.scale} = {sigma:g} {number(means.iloc[0])} to {number(means.iloc[-1])}")
    return (
        f"Line chart for {table.nets_label}: {table.metric.label} from {name} = {curves.values[0]:g} to "
        f"{curves.values[-1]:g}. {'; '.join(ends)}."
    )


def _is_wide(values: Iterable[float]) -> bool:
    """Whether values are positive and far apart, so that an axis is logarithmic."""
    known = [value for value in values if math.isfinite(value)]
    return min(known) > 0 and max(known) >= _DECADE * min(known)


class Sweeps(Section):
    """Metrics over each numeric parameter of a rule that was measured at three values or more."""

    name = "sweeps"
    title = "Over a parameter"
    page = CHARTS
    order = 35

    def build(self, results: Results) -> Context | None:
        found = sweeps(results.tables)
        return {"sweeps": [(each, figure(each)) for each in found]} if found else None
