"""Measurements that runs request and results lack."""

from __future__ import annotations

from .columns import CELL
from .folder import Stored, damaged_nets, read_plan


def missing(stored: Stored) -> list[str]:
    """Return a line for each damaged net, and for each finished run with missing measurements."""
    lines = [line for folder in stored.folders for line in damaged_nets(folder)]
    known = stored.measurements[CELL].astype(object).drop_duplicates().assign(is_known=True)
    for run in stored.runs.values():
        requested = read_plan(run, CELL).astype(object).drop_duplicates()
        missing_count = int(requested.merge(known, on=CELL, how="left")["is_known"].isna().sum())
        if missing_count and run.finished:
            lines.append(
                f"run {run.id}: {missing_count} of {len(requested)} measurements are missing; run it again"
            )
    return lines
