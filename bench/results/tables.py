"""Rows of a results file: whether they can be, and how those of one file are put into another."""

from __future__ import annotations

import itertools
import math
import operator
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sdp_bench.bench.results import ranges, schema
from sdp_bench.bench.results.checksums import Row, verified
from sdp_bench.bench.results.record import Run, StoredNet, redrawn, same

KEEP_WEIGHTS = "ON CONFLICT (digest) DO UPDATE SET weights = COALESCE(weights, excluded.weights)"
"""A net may come from an export without weights first, and be trained or come with them later."""

NUMBERS = ("value", "floor", "floor95", "stderr")
WORDS = ("unit_of_measure", "precision")
"""What is measured: the numbers of a record, and what these are."""

_KINDS = {"TEXT": str, "INTEGER": int, "REAL": float, "BLOB": bytes}
_READ = {"nets": StoredNet.from_row, "runs": Run.from_row}
"""What makes an object of a row, of tables with nested values."""

# What else a row has is for people and by the version that wrote it, or by the machine.
_FACTS = {
    "nets": ("network", "activation", "depth", "seed"),
    "units": ("net", "input", "noise", "sigma", "sampler", "samples", "dataset", "objective", "seed"),
    "verifications": tuple(schema.columns()["verifications"]),
}
"""Columns in which rows that have one key are to agree, but for records."""


def checked(table: str, rows: Iterable[Row], definitions: str = schema.DEFINITIONS) -> Iterator[Row]:
    """Rows that a table can have.

    Parameters
    ----------
    table : str
    rows : iterable of tuple
        In the order of its columns.
    definitions : str
        Of the tables.

    Yields
    ------
    tuple

    Raises
    ------
    ValueError
        If a value is of another type, missing, not finite or not in the range of its metric, or is to be
        JSON and is not.
    """
    columns = schema.columns(definitions)[table]
    names = list(columns)
    numbers = [names.index(name) for name in ("metric", *NUMBERS)] if table == "records" else []
    estimate = operator.itemgetter(*numbers) if numbers else None
    real = [
        place
        for place, column in enumerate(columns.values())
        if column.kind == "REAL" and place not in numbers
    ]
    read = _READ.get(table) if definitions == schema.DEFINITIONS else None
    seen: set[tuple[type, ...]] = set()
    for row in rows:
        if (types := tuple(map(type, row))) not in seen:
            _check_types(table, columns, types)
            seen.add(types)
        if estimate and (wrong := ranges.outside(*estimate(row))):
            raise ValueError(f"table {table} has a {wrong}")
        for place in real:
            if row[place] is not None and not math.isfinite(row[place]):
                raise ValueError(f"table {table} has a {names[place]} {row[place]}, which cannot be")
        if read:
            _check_nested(table, read, dict(zip(columns, row, strict=True)))
        yield row


def _check_types(table: str, columns: Mapping[str, schema.Column], types: Sequence[type]) -> None:
    if len(types) != len(columns):
        raise ValueError(f"table {table} has rows of {len(types)} values in place of {len(columns)}")
    for (name, column), kind in zip(columns.items(), types, strict=True):
        if kind is type(None):
            if column.required or name == next(iter(columns)):
                raise ValueError(f"table {table} has no {name} in a row")
        elif not issubclass(kind, _KINDS[column.kind]):
            raise ValueError(f"table {table} has a {name} that is no {column.kind}")


def _check_nested(table: str, read: Callable[[Mapping[str, Any]], object], row: Mapping[str, Any]) -> None:
    try:
        read(row)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        first = next(iter(row.values()))
        raise ValueError(f"table {table} has a row {first} that cannot be read: {error}") from error


def add(db: sqlite3.Connection, tables: Mapping[str, Iterable[Row]], units: set[str]) -> int:
    """Put the tables of another file beside what is in this one; runs get new numbers.

    Parameters
    ----------
    db : sqlite3.Connection
        In a transaction.
    tables : mapping of str to iterable of tuple
        Rows of each, in the order of its columns; they are gone through once.
    units : set of str
        Gets those whose records are no longer what their checksums are of.

    Returns
    -------
    int
        Measurements that were new.

    Raises
    ------
    ValueError
        If a row cannot be, refers to what is not there, or is here already and differs; the message names
        the first ones.
    DamageError
        If records that are here of the same units are not what was written.
    """
    first = db.execute("SELECT COALESCE(MAX(id), 0) FROM runs").fetchone()[0]
    new = {}
    moved: dict[int, int] = {}
    for name in schema.TABLES:
        rows: Iterable[Row] = checked(name, tables[name])
        if name == "runs":
            rows = sorted(rows, key=operator.itemgetter(0))
            moved |= {row[0]: first + place for place, row in enumerate(rows, 1)}
        before = _count(db, name)
        try:
            new[name] = _put(db, name, _renumbered(name, rows, moved), units)
        except (sqlite3.IntegrityError, OverflowError) as error:
            raise ValueError(f"table {name} does not fit: {error}") from error
        if _count(db, name) - before != new[name]:
            raise ValueError(f"table {name} did not arrive whole")
    db.execute("DELETE FROM failures WHERE (unit, rule, metric) IN (SELECT unit, rule, metric FROM records)")
    return new["records"]


def _renumbered(table: str, rows: Iterable[Row], moved: Mapping[int, int]) -> Iterator[Row]:
    """Rows with the numbers that their runs have here."""
    names = list(schema.columns()[table])
    number = "id" if table == "runs" else "run"
    if number not in names:
        yield from rows
        return
    place = names.index(number)
    for row in rows:
        here = moved.get(row[place])
        if here is None:
            raise ValueError(f"table {table} speaks of a run {row[place]} that is not there")
        yield row if here == row[place] else (*row[:place], here, *row[place + 1 :])


def _put(db: sqlite3.Connection, table: str, rows: Iterable[Row], units: set[str]) -> int:
    """Insert the rows whose keys are not here, and compare the others; how many are new."""
    names = list(schema.columns()[table])
    key = operator.itemgetter(*(names.index(name) for name in schema.KEYS[table]))
    statement = schema.insertion(table)
    new, conflicts = 0, []
    for part, group in itertools.groupby(rows, operator.itemgetter(0)):
        theirs = list(group)
        here = {
            key(row): row for row in _here(db, table, part, checked=table == "records" and part not in units)
        }
        if here:
            conflicts += [
                _called(table, row)
                for row in theirs
                if key(row) in here and _differs(table, here[key(row)], row)
            ]
            if table == "nets":
                db.executemany(
                    "UPDATE nets SET weights = COALESCE(weights, ?) WHERE digest = ?",
                    [(row[names.index("weights")], part) for row in theirs],
                )
            theirs = [row for row in theirs if key(row) not in here]
        db.executemany(statement, theirs)
        new += len(theirs)
        if theirs and table == "records":
            units.add(part)
    if conflicts:
        shown = "; ".join(conflicts[:5]) + ("; ..." if len(conflicts) > 5 else "")
        what = "measurements" if table == "records" else table
        raise ValueError(f"{len(conflicts)} {what} differ from those here: {shown}")
    return new


def _here(db: sqlite3.Connection, table: str, part: Any, *, checked: bool) -> Iterator[Row]:
    """Rows with the same first value that are here, compared with their checksum if that is of them."""
    if checked:
        return (row for _, rows in verified(db, table, part) for row in rows)
    return db.execute(schema.rows(table, f"WHERE {schema.KEYS[table][0]} = ?"), (part,))


def _called(table: str, row: Row) -> str:
    names = list(schema.columns()[table])
    parts = (row[names.index(name)] for name in schema.KEYS[table])
    return "/".join(str(part) for part in parts if part is not None)


def differing(a: Row, b: Row) -> list[str]:
    """Columns in which two records are not the same, rounding apart: numbers, and what these are.

    By which code, in which run and in what time they were made is another matter.

    Parameters
    ----------
    a, b : tuple
        Rows of the table.

    Returns
    -------
    list of str
    """
    if a[_VALUE : _STDERR + 1] == b[_VALUE : _STDERR + 1]:
        numbers = []
    else:
        numbers = [name for name in NUMBERS if not same(a[_AT[name]], b[_AT[name]], a[_STDERR])]
    return numbers + [name for name in WORDS if a[_AT[name]] != b[_AT[name]]]


_AT = {name: place for place, name in enumerate(schema.columns()["records"])}
_VALUE, _STDERR = _AT["value"], _AT["stderr"]


def _differs(table: str, here: Row, row: Row) -> bool:
    """Whether rows of one key contradict each other."""
    if table != "records":
        places = [list(schema.columns()[table]).index(name) for name in _FACTS.get(table, ())]
        return any(here[place] != row[place] for place in places)
    if here[_AT["fingerprint"]] != row[_AT["fingerprint"]]:
        return True
    # Records of older files have no precision.
    return any(
        not (
            (name == "precision" and None in (here[_AT[name]], row[_AT[name]]))
            or (name in ("floor", "floor95") and redrawn(here[_AT[name]], row[_AT[name]], here[_STDERR]))
        )
        for name in differing(here, row)
    )


def _count(db: sqlite3.Connection, table: str) -> int:
    return int(db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])  # noqa: S608  a name of the schema
