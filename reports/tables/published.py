"""Comparison of tables with the paper's: differences of numbers, and the best rule in each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sdp_bench.bench.metrics import Metric
from sdp_bench.reports.paper.printed import Printed
from sdp_bench.reports.tables.tables import Cell, Row, Table


@dataclass(frozen=True)
class Difference:
    """One cell of the run and its counterpart in the paper."""

    table: Table
    row: Row
    cell: Cell
    printed: Printed

    @property
    def gap(self) -> float:
        """Run minus paper."""
        return self.cell.mean - self.printed.mean

    @property
    def spread(self) -> float:
        """Standard deviations of both, over nets and inputs, added in quadrature; NaN if neither is known."""
        known = [sd for sd in (self.cell.sd, self.printed.spread) if math.isfinite(sd)]
        return math.hypot(*known) if known else math.nan

    @property
    def differs(self) -> bool:
        """Whether the gap is wider than the spread."""
        return abs(self.gap) > self.spread

    @property
    def where(self) -> str:
        text = f"{self.table.nets_label}, σ\u00a0=\u00a0{self.row.sigma:g}"
        if self.row.component:
            text += f", {self.table.metric.component or 'component'} {self.row.component}"
        return text


@dataclass(frozen=True)
class Order:
    """The best of the paper's own rules in one setting, in the paper and in the run."""

    table: Table
    row: Row
    paper: Difference
    run: Difference

    @property
    def agrees(self) -> bool:
        """Whether the best rule of the run is also the best in the paper, or ties with it there."""
        tied = math.isclose(self.paper.printed.mean, self.run.printed.mean)
        return tied or self.paper.cell.rule == self.run.cell.rule


def differences(tables: Sequence[Table]) -> list[Difference]:
    """Return every cell that the paper prints as well, in the order of the tables."""
    return [
        Difference(table, row, cell, cell.printed)
        for table in tables
        for row in table.rows
        for cell in row.cells
        if cell and cell.printed
    ]


def orders(tables: Sequence[Table]) -> list[Order]:
    """Compare the best rules of rows with two or more deterministic rules that the paper has too."""
    ranked = []
    for table in tables:
        for row in table.rows:
            both = [
                Difference(table, row, cell, cell.printed)
                for cell in row.cells
                if cell and cell.printed and not cell.sampling
            ]
            if len(both) > 1:
                paper = min(both, key=lambda each: _score(table.metric, each.printed.mean))
                run = min(both, key=lambda each: each.cell.score)
                ranked.append(Order(table, row, paper, run))
    return ranked


def _score(metric: Metric, printed: float) -> float:
    unknown = np.array(math.nan)
    return float(metric.score(metric.shown(np.array(printed)), unknown))  # 1 - (1 - TV) is the TV again
