"""Tables as CSV files: a line for each cell, with all its numbers and its setting."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

from ...bench.text import cell as spreadsheet_cell
from ..style.names import RuleTraits
from .tables import Cell, Table, TableRow

FOLDER = "tables"
"""Folder of the files inside a report's."""


def as_csv(table: Table, traits: RuleTraits) -> str:
    """Return a table as CSV; numbers have full precision, and unknown ones are empty.

    ``value`` is the mean as shown, ``spread`` the standard deviation over ``count`` nets and inputs.
    ``tied_with_best`` marks the best rule of a setting and its ties, and ``tied_with_best_deterministic``
    those among rules that do not sample. ``exact_law`` and ``exact_law_95`` are the mean and the 95 % point
    of a rule with the exact distribution, as shown. ``floor`` and ``floor_95`` are the rule's own floor, not
    on the shown scale.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    setting = {
        "experiment": table.experiment,
        "network": table.network,
        "activation": table.activation,
        "depth": table.depth,
        "recipe": table.recipe,
        "noise": table.noise,
        "metric": table.metric.name,
        "shown": table.metric.label,
        "variant": table.variant,
        "unit": table.unit,
    }
    records = [
        setting | _numbers(row, cell, traits) for row in table.rows for cell in row.cells if cell is not None
    ]
    if records:
        lines.writerow(records[0])
    lines.writerows([_written(value) for value in record.values()] for record in records)
    return text.getvalue()


def _numbers(row: TableRow, cell: Cell, traits: RuleTraits) -> dict[str, Any]:
    printed = cell.printed
    is_ranked = not math.isnan(cell.score)
    return {
        "noise_level": row.sigma,
        "component": row.component,
        "rule": traits.label(cell.rule),
        "spec": cell.rule,
        "value": cell.mean,
        "spread": cell.sd,
        "count": cell.count,
        "tied_with_best": cell.best if is_ranked else "",
        "tied_with_best_deterministic": cell.leads if is_ranked and not cell.sampling else "",
        "exact_law": row.floor,
        "exact_law_95": row.floor95,
        "floor": cell.floor,
        "floor_95": cell.floor95,
        "indistinguishable_from_exact": cell.indistinguishable,
        "infinite": cell.infinite,
        "corrected": cell.corrected,
        "bracket": cell.bracket,
        "companion": cell.companion,
        "paper": printed.value if printed else "",
        "paper_spread": printed.sd if printed else "",
        "paper_table": printed.label if printed else "",
    }


def _written(value: object) -> object:
    if isinstance(value, float) and math.isnan(value):
        return ""
    return spreadsheet_cell(value)
