"""The tables of a results file, and their checksums."""

from __future__ import annotations

import functools
import itertools
import marshal
import operator
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

APPLICATION = (
    0x53445042  # "SDPB", in the header of the file: distinguishes results files from other SQLite files
)
SCHEMA = 6
"""Schema of results files and exports."""
LAST_READER = "0.22"
"""Newest version of sdp-bench that reads older schemas."""

# An optional column cannot be part of a primary key in SQLite: `records` and `failures` have unique indexes
# instead.
DEFINITIONS = """
CREATE TABLE nets (
    digest TEXT PRIMARY KEY, network TEXT NOT NULL, activation TEXT NOT NULL, depth INTEGER NOT NULL,
    seed INTEGER NOT NULL, accuracy REAL, recipe TEXT NOT NULL, recipe_label TEXT NOT NULL,
    source TEXT NOT NULL, weights BLOB);
CREATE TABLE units (
    key TEXT PRIMARY KEY, net TEXT REFERENCES nets, input INTEGER, noise TEXT, sigma REAL, sampler TEXT,
    samples INTEGER, dataset TEXT, objective TEXT, seed INTEGER, design TEXT);
CREATE TABLE rules (
    spec TEXT PRIMARY KEY, label TEXT NOT NULL, colour TEXT, sampling INTEGER, marginal INTEGER NOT NULL,
    reference INTEGER NOT NULL, rank INTEGER NOT NULL);
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, started TEXT NOT NULL, finished TEXT, seconds REAL, command TEXT NOT NULL,
    preset TEXT NOT NULL, settings TEXT NOT NULL, experiments TEXT NOT NULL, left_out TEXT NOT NULL,
    environment TEXT NOT NULL);
CREATE TABLE members (
    run INTEGER NOT NULL REFERENCES runs, experiment TEXT NOT NULL, unit TEXT NOT NULL REFERENCES units,
    PRIMARY KEY (run, experiment, unit)) WITHOUT ROWID;
CREATE TABLE records (
    unit TEXT NOT NULL REFERENCES units, rule TEXT NOT NULL REFERENCES rules, metric TEXT NOT NULL,
    component TEXT, value REAL NOT NULL, floor REAL, floor95 REAL, stderr REAL,
    unit_of_measure TEXT NOT NULL, seconds REAL, fingerprint TEXT NOT NULL, run INTEGER NOT NULL,
    precision TEXT);
CREATE UNIQUE INDEX one_record ON records (unit, rule, metric, COALESCE(component, ''));
CREATE TABLE failures (
    unit TEXT NOT NULL REFERENCES units, rule TEXT, metric TEXT, error TEXT NOT NULL, seconds REAL NOT NULL,
    run INTEGER NOT NULL);
CREATE UNIQUE INDEX one_failure ON failures (unit, COALESCE(rule, ''), COALESCE(metric, ''));
CREATE TABLE checksums (
    name TEXT NOT NULL, part TEXT NOT NULL, rows INTEGER NOT NULL, sum INTEGER NOT NULL,
    PRIMARY KEY (name, part)) WITHOUT ROWID;
"""

KEYS = {
    "nets": ("digest",),
    "units": ("key",),
    "rules": ("spec",),
    "runs": ("id",),
    "members": ("run", "experiment", "unit"),
    "records": ("unit", "rule", "metric", "component"),
    "failures": ("unit", "rule", "metric"),
}
"""Columns that identify a row; a missing text counts as an empty one."""

TABLES = tuple(KEYS)
"""Tables with contents; a table comes after those that it refers to."""

REFERENCES = (
    ("units", "net", "nets"),
    ("members", "run", "runs"),
    ("members", "unit", "units"),
    ("records", "unit", "units"),
    ("records", "rule", "rules"),
    ("records", "run", "runs"),
    ("failures", "unit", "units"),
    ("failures", "run", "runs"),
)
"""Table and column of each reference, and the table whose key it refers to."""


@dataclass(frozen=True)
class Column:
    """Type of a column, ``TEXT``, ``INTEGER``, ``REAL`` or ``BLOB``, and whether a value is required."""

    kind: str
    required: bool


def create(db: sqlite3.Connection) -> None:
    """Create the tables of a results file; the caller has begun a transaction."""
    for statement in DEFINITIONS.split(";"):  # not executescript, which commits the transaction
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {SCHEMA}")


@functools.cache
def statements() -> frozenset[tuple[str, str]]:
    """Return name and statement of every table and index of a new results file."""
    with closing(sqlite3.connect(":memory:")) as db:
        create(db)
        return statements_of(db)


def statements_of(db: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    """Return name and statement of every table and index of a file, with white space normalised."""
    found = db.execute("SELECT name, COALESCE(sql, '') FROM sqlite_master")
    return frozenset((str(name), " ".join(str(sql).split())) for name, sql in found)


@functools.cache
def columns() -> dict[str, dict[str, Column]]:
    """Return the columns by table and name."""
    with closing(sqlite3.connect(":memory:")) as db:
        create(db)
        described = {
            name: db.execute(f"PRAGMA table_info({name})").fetchall() for name in (*TABLES, "checksums")
        }
    return {
        name: {row[1]: Column(row[2], bool(row[3]) or row[1] == KEYS.get(name, ("",))[0]) for row in rows}
        for name, rows in described.items()
    }


@functools.cache
def rows(table: str, where: str = "") -> str:
    """Return the query for the rows of a table in the order of their keys."""
    known = columns()[table]
    order = (key if known[key].required else f"COALESCE({key}, '')" for key in KEYS[table])
    return f"SELECT * FROM {table} {where} ORDER BY {', '.join(order)}"  # noqa: S608  names of the schema


def insertion(table: str, rest: str = "") -> str:
    """Return the statement that inserts a row; `rest` is its conflict clause."""
    places = ", ".join("?" * len(columns()[table]))
    return f"INSERT INTO {table} VALUES ({places}) {rest}"  # noqa: S608  names and clauses of this package


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
            db.executemany(insertion("checksums"), sums)


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
        yield "", db.execute(rows(table)).fetchall()
        return
    where, values = ("", ()) if part is None else (f"WHERE {KEYS[table][0]} = ?", (part,))
    for name, scanned in itertools.groupby(db.execute(rows(table, where), values), operator.itemgetter(0)):
        yield str(name), list(scanned)


def _sum(rows: list[Row]) -> int:
    # Version 2 of the format writes each value by itself, so that equal rows have equal bytes on every
    # machine.
    return zlib.crc32(marshal.dumps(rows, 2))


def _damage(table: str, part: str) -> str:
    where = f" of {part!r}" if part else ""
    return f"the {table}{where} are not what was written"
