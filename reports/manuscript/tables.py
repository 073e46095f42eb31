"""Tables as LaTeX with the page's numbers: a row per rule, a column per noise level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from sdp_bench.reports.style.labels import number, spread
from sdp_bench.reports.style.latex import escaped
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.tables import Cell, Row, Table

KEY = (
    "Mean ± standard deviation over nets and inputs. Bold: best at its noise level, and whatever lies within "
    "one paired standard error of it; underlined: the same among rules that do not sample, where sampling is "
    "best."
)
"""Explanation of the cells."""
_NOT_MEASURED = "--"
_UNITS = {"": "", "1": "", "output": "units of the output", "nat": "nats"}


@dataclass(frozen=True)
class Tabular:
    """One component of a table of the page; `component` is empty if there is only one."""

    table: Table
    rows: tuple[Row, ...]
    component: str

    @property
    def words(self) -> tuple[str, ...]:
        """Words that distinguish this table from others."""
        table = self.table
        nets = (table.activation, str(table.depth))
        return (
            table.experiment,
            *nets,
            table.metric.name,
            table.under,
            table.variant,
            table.recipe,
            self.component,
        )

    @property
    def caption(self) -> str:
        table = self.table
        which = f"{table.metric.component or 'component'} {self.component}" if self.component else ""
        said = ", ".join(filter(None, (table.title, which, table.kind.label)))
        better = {"higher": " Higher is better.", "lower": " Lower is better."}.get(table.metric.better, "")
        return escaped(f"{said} ({table.design}).{better}")

    def latex(self, traits: RuleTraits) -> str:
        r"""The table as a file for ``\input``, for the package booktabs."""
        table = self.table
        unit = _UNITS.get(table.unit, table.unit)
        head = escaped(table.label) + (f" [{escaped(unit)}]" if unit else "")
        by_rule: dict[str, list[str]] = {}
        if table.has_floor:
            floors = [
                _NOT_MEASURED if math.isnan(row.floor) else self._number(row.floor) for row in self.rows
            ]
            by_rule["floor" if table.metric.better == "lower" else "exact law"] = floors
        for place, rule in enumerate(table.rules):
            cells = [row.cells[place] for row in self.rows]
            if any(cells):
                by_rule[escaped(traits.label(rule))] = [self._cell(cell) for cell in cells]
        columns = pd.MultiIndex.from_product(
            [[head], [f"{escaped(table.scale)} = {row.sigma:g}" for row in self.rows]]
        )
        frame = pd.DataFrame.from_dict(by_rule, orient="index", columns=columns)
        columns_of = "l" + "r" * len(self.rows)
        body = frame.style.to_latex(column_format=columns_of, multicol_align="c", hrules=True)
        return f"% sdp-bench: \\usepackage{{booktabs}}\n% caption: {self.caption}\n% {escaped(KEY)}\n{body}"

    def _number(self, x: float) -> str:
        return escaped(number(x, self.table.metric.decimals))

    def _cell(self, cell: Cell | None) -> str:
        if cell is None:
            return _NOT_MEASURED
        mean = self._number(cell.mean)
        if cell.best or cell.leads:
            mean = f"\\{'textbf' if cell.best else 'underline'}{{{mean}}}"
        beside = ""
        if cell.infinite:
            beside = f"in {cell.infinite} of {cell.count}"
        elif not math.isnan(cell.sd):
            beside = escaped(f"± {spread(cell.sd, cell.mean, self.table.metric.decimals)}")
        if cell.count != self.table.units:
            beside += f" (n = {cell.count})"
        return mean + (f" {{\\scriptsize {beside.strip()}}}" if beside else "")


def tabulars(tables: Iterable[Table]) -> Iterator[Tabular]:
    for table in tables:
        by_component: dict[str, list[Row]] = {}
        for row in table.rows:
            by_component.setdefault(row.component, []).append(row)
        for component, rows in by_component.items():
            yield Tabular(table, tuple(rows), component)
