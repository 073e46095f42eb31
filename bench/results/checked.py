"""What runs asked for and results lack."""

from __future__ import annotations

from .columns import CELL
from .folder import Stored, plan_of


def missing(stored: Stored) -> list[str]:
    """Return a line for each finished run whose measurements are not all there."""
    known = stored.measurements[CELL].astype(object).drop_duplicates().assign(is_known=True)
    lines = []
    for run in stored.runs.values():
        asked = plan_of(run, CELL).astype(object).drop_duplicates()
        absent = int(asked.merge(known, on=CELL, how="left")["is_known"].isna().sum())
        if absent and run.finished:
            lines.append(f"run {run.id}: {absent} of {len(asked)} measurements are missing; run it again")
    return lines
