"""Tables as LaTeX with the page's numbers: a row per rule, a column per noise level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sdp_bench.reports.style.latex import escaped, number, spread
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
        last = len(self.rows) + 1
        lines = [
            "% sdp-bench: \\usepackage{booktabs}",
            f"% caption: {self.caption}",
            f"% {escaped(KEY)}",
            f"\\begin{{tabular}}{{l{'r' * len(self.rows)}}}",
            "\\toprule",
            f" & \\multicolumn{{{len(self.rows)}}}{{c}}{{{head}}} \\\\",
            f"\\cmidrule(lr){{2-{last}}}",
            _line("rule", (f"{escaped(table.scale)} = {row.sigma:g}" for row in self.rows)),
            "\\midrule",
        ]
        if table.has_floor:
            first = "floor" if table.metric.better == "lower" else "exact law"
            lines += [_line(first, (self._floor(row) for row in self.rows)), "\\midrule"]
        for place, rule in enumerate(table.rules):
            cells = [row.cells[place] for row in self.rows]
            if any(cells):
                lines.append(_line(escaped(traits.label(rule)), map(self._cell, cells)))
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])

    def _floor(self, row: Row) -> str:
        return (
            _NOT_MEASURED if math.isnan(row.floor) else f"${number(row.floor, self.table.metric.decimals)}$"
        )

    def _cell(self, cell: Cell | None) -> str:
        if cell is None:
            return _NOT_MEASURED
        decimals = self.table.metric.decimals
        mean = number(cell.mean, decimals)
        if cell.best or cell.leads:
            mean = f"\\{'mathbf' if cell.best else 'underline'}{{{mean}}}"
        beside = ""
        if cell.infinite:
            beside = f"in {cell.infinite} of {cell.count}"
        elif not math.isnan(cell.sd):
            beside = f"$\\pm {spread(cell.sd, cell.mean, decimals)}$"
        if cell.count != self.table.units:
            beside += f" ($n = {cell.count}$)"
        return f"${mean}$" + (f" {{\\scriptsize {beside.strip()}}}" if beside else "")


def tabulars(tables: Iterable[Table]) -> Iterator[Tabular]:
    for table in tables:
        by_component: dict[str, list[Row]] = {}
        for row in table.rows:
            by_component.setdefault(row.component, []).append(row)
        for component, rows in by_component.items():
            yield Tabular(table, tuple(rows), component)


def _line(first: str, rest: Iterable[str]) -> str:
    cells: Sequence[str] = (first, *rest)
    return " & ".join(cells) + " \\\\"
