"""Rules that were measured at several values of one parameter, all else of them being equal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sdp_bench.reports.numbers.number import slug
from sdp_bench.reports.tables.tables import Cell, Table
from sdp_ref.rules import parse_parameters

LEAST = 3
"""Values of a parameter that make a line."""
MOST = 6
"""Kinds of nets that are shown of a sweep."""


@dataclass(frozen=True)
class Swept:
    """What varies: a parameter of a rule, `fixed` being its other parameters as they are written."""

    rule: str
    parameter: str
    fixed: tuple[str, ...]

    @property
    def title(self) -> str:
        """For people: ``split over k (base=sdp)``."""
        beside = f" ({', '.join(self.fixed)})" if self.fixed else ""
        return f"{self.rule} over {self.parameter}{beside}"


@dataclass(frozen=True)
class Line:
    """Means at one noise level, by the parameter's value, ascending; `floor` is as in a table's row."""

    sigma: float
    floor: float
    cells: Mapping[float, Cell]


@dataclass(frozen=True)
class Curves:
    """One kind of nets: the table that means are of, and a line for each noise level."""

    table: Table
    lines: tuple[Line, ...]

    @property
    def values(self) -> list[float]:
        """Of the parameter, wherever it was measured."""
        return sorted({value for line in self.lines for value in line.cells})


@dataclass(frozen=True)
class Sweep:
    """One metric over one parameter, on some kinds of nets; `count` is of how many, shown or not."""

    swept: Swept
    kinds: tuple[Curves, ...]
    count: int

    @property
    def anchor(self) -> str:
        """Of its figure."""
        first = self.kinds[0].table
        swept = (self.swept.rule, self.swept.parameter, *self.swept.fixed)
        return slug("sweep", *swept, first.experiment, first.metric.name)


def sweeps(tables: Iterable[Table]) -> list[Sweep]:
    """Every sweep that some tables hold, of each experiment by its first metric of whole outputs.

    Parameters
    ----------
    tables : iterable of Table
        In the order of the report.

    Returns
    -------
    list of Sweep
        By metric, as tables are. Of a rule that was measured with several values of several parameters, one
        for each of these and each combination of the others that has at least `LEAST` values.
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
    """What varies among some rules.

    Parameters
    ----------
    rules : sequence of str
        Their specs.

    Returns
    -------
    dict of Swept to dict of float to str
        The rules of each sweep by their parameter's value, in ascending order.
    """
    found: dict[Swept, dict[float, str]] = {}
    for rule in rules:
        name, _, text = rule.partition(":")
        try:
            parameters = parse_parameters(name, text) if text else {}
        except ValueError:  # a name of a user's that has a colon and no parameters
            continue
        for parameter, value in parameters.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                fixed = tuple(f"{key}={other}" for key, other in parameters.items() if key != parameter)
                found.setdefault(Swept(name, parameter, fixed), {})[float(value)] = rule
    return {swept: dict(sorted(own.items())) for swept, own in found.items() if len(own) >= LEAST}


def _curves(table: Table, rules: Mapping[float, str]) -> Curves | None:
    """Lines of one table; None where no noise level has enough values."""
    places = {value: table.rules.index(rule) for value, rule in rules.items()}
    lines = []
    for row in table.rows:
        cells = {value: cell for value, place in places.items() if (cell := row.cells[place])}
        if sum(math.isfinite(cell.mean) for cell in cells.values()) >= LEAST:
            lines.append(Line(row.sigma, row.floor, cells))
    return Curves(table, tuple(lines)) if lines else None
