"""Whole tables out of a results file, and into another."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.results import schema
from sdp_bench.bench.results.record import same_number

KEEP_WEIGHTS = "ON CONFLICT (digest) DO UPDATE SET weights = COALESCE(weights, excluded.weights)"
"""A net may come from an export without weights first, and be trained or come with them later."""

_TYPES = {"INTEGER": "Int64", "REAL": "float64"}


def read(db: sqlite3.Connection) -> dict[str, pd.DataFrame]:
    """Everything in a file, a frame a table, in an order in which they can be put into another."""
    frames = {}
    for name in schema.TABLES:
        types = {c: _TYPES[each.kind] for c, each in schema.columns()[name].items() if each.kind in _TYPES}
        query = f"SELECT * FROM {name}"  # noqa: S608  a name of the schema
        frames[name] = pd.read_sql_query(query, db).astype(types)
    return frames


def add(db: sqlite3.Connection, tables: Mapping[str, pd.DataFrame]) -> int:
    """Put the tables of another file beside what is in this one; runs get new numbers.

    Parameters
    ----------
    db : sqlite3.Connection
        In a transaction.
    tables : mapping of str to DataFrame
        As :func:`read` gives them.

    Returns
    -------
    int
        Measurements that were new.

    Raises
    ------
    UserError
        If a column is missing, or a measurement is here already with another value; the message names the
        first ones.
    """
    columns = {name: list(each) for name, each in schema.columns().items()}
    for name in schema.TABLES:
        if missing := set(columns[name]) - set(tables[name].columns):
            raise UserError(f"table {name} lacks the columns {', '.join(sorted(missing))}")
    _refuse_conflicts(db, tables["records"])
    first = db.execute("SELECT COALESCE(MAX(id), 0) FROM runs").fetchone()[0]
    moved = {old: first + place for place, old in enumerate(sorted(tables["runs"]["id"]), 1)}
    before = _count(db)
    for name in schema.TABLES:
        frame = tables[name].copy()
        number = "id" if name == "runs" else "run"
        if number in frame:
            frame[number] = frame[number].map(moved)
        known = KEEP_WEIGHTS if name == "nets" else "ON CONFLICT DO NOTHING"
        db.executemany(schema.insertion(name, known), rows_of(frame[columns[name]]))
    db.execute("DELETE FROM failures WHERE (unit, rule, metric) IN (SELECT unit, rule, metric FROM records)")
    return _count(db) - before


def rows_of(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Rows as SQLite takes them: what is missing is NULL."""
    return [tuple(_plain(value) for value in row) for row in frame.astype(object).to_numpy()]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if value is pd.NA or (isinstance(value, float) and math.isnan(value)) else value


def _count(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT COUNT(*) FROM records").fetchone()[0])


def _refuse_conflicts(db: sqlite3.Connection, records: pd.DataFrame) -> None:
    """Raise if a measurement in `records` is in `db` with another value, rounding apart, or by other code."""
    names = ["unit", "rule", "metric", "component", "value", "stderr", "fingerprint"]
    query = f"SELECT {', '.join(names)} FROM records"  # noqa: S608  the names above
    known = {tuple(row[:4]): row[4:] for row in db.execute(query)}
    conflicts = [
        "/".join(str(part) for part in row[:4] if part is not None)
        for row in rows_of(records[names])
        if (here := known.get(row[:4])) and not (same_number(here[0], row[4], row[5]) and here[2] == row[6])
    ]
    if conflicts:
        shown = "; ".join(conflicts[:5]) + ("; ..." if len(conflicts) > 5 else "")
        raise UserError(f"{len(conflicts)} measurements differ from those here: {shown}")
