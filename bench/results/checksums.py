"""Checksums of the rows of a results file.

They are stored in a table of the file, one for each part of a table, and change in the transaction that
changes the rows. A part holds the rows with the same value in the first column, a unit of the records or a
run of the members, so that writing a group touches few parts. The tables `units` and `rules` are one part
each. A checksum covers the rows in the order of their keys.
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

_WHOLE = frozenset({"units", "rules"})

Row = tuple[Any, ...]
Parts = Iterator[tuple[str, list[Row]]]
"""Rows by part."""

Touched = Mapping[str, Collection[str | int] | None]
"""Parts by table; None stands for all parts."""


class DamageError(sqlite3.DatabaseError):
    """A file does not contain what was written to it."""


def verified(db: sqlite3.Connection, table: str, part: str | int | None = None) -> Parts:
    """Yield the parts of a table (or one of them) in ascending order, each after its checksum was verified.

    Rows are in the order of their keys. Raises DamageError if a checksum differs, or a part or its checksum
    is missing.
    """
    where, values = ("", ()) if part is None or table in _WHOLE else (" AND part = ?", (str(part),))
    query = f"SELECT part, rows, sum FROM checksums WHERE name = ?{where}"  # noqa: S608  one of the two above
    expected = {name: (rows, total) for name, rows, total in db.execute(query, (table, *values))}
    for name, rows in _scanned(db, table, part):
        if expected.pop(name, None) != (len(rows), _sum(rows)):
            raise DamageError(_damage(table, name))
        yield name, rows
    for name in expected:
        raise DamageError(_damage(table, name))


def check(db: sqlite3.Connection, touched: Touched) -> None:
    """Verify the checksums of some parts; raises DamageError."""
    for table, parts in touched.items():
        for part in (None,) if parts is None else parts:
            for _ in verified(db, table, part):
                pass


def seal(db: sqlite3.Connection, touched: Touched) -> None:
    """Replace the checksums of some parts by those of their rows, in the transaction that wrote the rows."""
    for table, parts in touched.items():
        for part in (None,) if parts is None else parts:
            where, values = ("", ()) if part is None or table in _WHOLE else (" AND part = ?", (str(part),))
            db.execute(f"DELETE FROM checksums WHERE name = ?{where}", (table, *values))  # noqa: S608  as above
            sums = [(table, name, len(rows), _sum(rows)) for name, rows in _scanned(db, table, part)]
            db.executemany(schema.insertion("checksums"), sums)


def check_structure(db: sqlite3.Connection, *tables: str) -> None:
    """Run SQLite's own check, of all pages without contents, or of tables with their indexes.

    Raises DamageError.
    """
    for pragma in [f"integrity_check({table})" for table in tables] or ["quick_check"]:
        ((found,), *_) = db.execute(f"PRAGMA {pragma}")
        if found != "ok":
            raise DamageError(" ".join(str(found).split()))


def _scanned(db: sqlite3.Connection, table: str, part: str | int | None) -> Parts:
    if table in _WHOLE:
        yield "", db.execute(schema.rows(table)).fetchall()
        return
    where, values = ("", ()) if part is None else (f"WHERE {schema.KEYS[table][0]} = ?", (part,))
    for name, rows in itertools.groupby(
        db.execute(schema.rows(table, where), values), operator.itemgetter(0)
    ):
        yield str(name), list(rows)


def _sum(rows: list[Row]) -> int:
    # Version 2 of the format writes each value by itself, so that equal rows have equal bytes on every
    # machine.
    return zlib.crc32(marshal.dumps(rows, 2))


def _damage(table: str, part: str) -> str:
    where = f" of {part!r}" if part else ""
    return f"the {table}{where} are not what was written"
