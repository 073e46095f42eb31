"""Rules that were measured at several values of one parameter, with equal other parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sdp_bench.reports.numbers.number import slug
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
