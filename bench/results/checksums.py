"""Checksums of what a results file holds: what was damaged is not taken for what was measured.

They stand in a table of the file, one for each part of a table, and change with the rows in one transaction.
A part of records and failures is a unit, of nets a net, so that a group that is written touches few; the
other tables are small, and one part each. The sum is that of the rows in the order of their keys, as SQLite
gives them through the index that all queries go by.
"""

from __future__ import annotations

import itertools
import marshal
import operator
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sdp_bench.bench.results import schema

PARTED = frozenset({"nets", "records", "failures"})
"""Tables whose first column says of what a row is a part."""

Row = tuple[Any, ...]
Parts = Iterator[tuple[str, list[Row]]]
"""Rows by the part that they belong to."""

Touched = Mapping[str, Collection[str] | None]
"""Parts by table; None is all of them."""


class DamageError(sqlite3.DatabaseError):
    """A file does not hold what was written into it."""


def verified(db: sqlite3.Connection, table: str, part: str | None = None) -> Parts:
    """Rows of a table, each part of it when its checksum was found right.

    Parameters
    ----------
    db : sqlite3.Connection
    table : str
    part : str, optional
        This one alone.

    Yields
    ------
    (str, list of tuple)
        Part, in ascending order, and its rows in the order of their keys.

    Raises
    ------
    DamageError
        If a part has another checksum, or none, or is not there.
    """
    where, values = ("", ()) if part is None else (" AND part = ?", (part,))
    query = f"SELECT part, rows, sum FROM checksums WHERE name = ?{where}"  # noqa: S608  one of the two above
    expected = {name: (rows, total) for name, rows, total in db.execute(query, (table, *values))}
    for name, rows in _scanned(db, table, part):
        if expected.pop(name, None) != (len(rows), _sum(rows)):
            raise DamageError(_named(table, name))
        yield name, rows
    for name in expected:
        raise DamageError(_named(table, name))


def check(db: sqlite3.Connection, touched: Touched) -> None:
    """Compare parts with their checksums.

    Raises
    ------
    DamageError
        If one is not as it was written.
    """
    for table, parts in touched.items():
        for part in (None,) if parts is None else parts:
            for _ in verified(db, table, part):
                pass


def seal(db: sqlite3.Connection, touched: Touched) -> None:
    """Make the checksums of parts those of the rows that are there; in the transaction that wrote them."""
    for table, parts in touched.items():
        for part in (None,) if parts is None else parts:
            where, values = ("", ()) if part is None else (" AND part = ?", (part,))
            db.execute(f"DELETE FROM checksums WHERE name = ?{where}", (table, *values))  # noqa: S608  as above
            sums = [(table, name, len(rows), _sum(rows)) for name, rows in _scanned(db, table, part)]
            db.executemany(schema.insertion("checksums"), sums)


def check_structure(db: sqlite3.Connection, *tables: str) -> None:
    """Have SQLite look at its own pages: all of them without their contents, or tables with their indexes.

    Raises
    ------
    DamageError
        If anything is wrong with them.
    """
    for pragma in [f"integrity_check({table})" for table in tables] or ["quick_check"]:
        ((found,), *_) = db.execute(f"PRAGMA {pragma}")
        if found != "ok":
            raise DamageError(" ".join(str(found).split()))


def _scanned(db: sqlite3.Connection, table: str, part: str | None) -> Parts:
    if table not in PARTED:
        yield "", db.execute(schema.rows(table)).fetchall()
        return
    where, values = ("", ()) if part is None else (f"WHERE {schema.KEYS[table][0]} = ?", (part,))
    for name, rows in itertools.groupby(
        db.execute(schema.rows(table, where), values), operator.itemgetter(0)
    ):
        yield name, list(rows)


def _sum(rows: list[Row]) -> int:
    # Version 2 of the format writes each value by itself, so that equal rows are equal bytes everywhere.
    return zlib.crc32(marshal.dumps(rows, 2))


def _named(table: str, part: str) -> str:
    where = f" of {part!r}" if part else ""
    return f"the {table}{where} are not what was written"
