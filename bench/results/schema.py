"""The tables of a results file."""

from __future__ import annotations

import functools
import sqlite3
from contextlib import closing
from dataclasses import dataclass

APPLICATION = 0x53445042  # "SDPB", in the file's header: tells our files from any other SQLite file
SCHEMA = 5
EXPORTED = 4
"""Schema of an export's tables: the one after it added the checksums, which an export has in its manifest."""

TABLES = ("nets", "units", "rules", "runs", "members", "records", "failures", "verifications")
"""Tables of a results file, those first that others refer to. Until 0.21 `verifications` had rows."""

KEYS = {
    "nets": ("digest",),
    "units": ("key",),
    "rules": ("spec",),
    "runs": ("id",),
    "members": ("run", "experiment", "unit"),
    "records": ("unit", "rule", "metric", "component"),
    "failures": ("unit", "rule", "metric"),
    "verifications": ("finished", "environment", "seed"),
}
"""What a row of a table is known by; what of it may be unknown is unique, and in order, as an empty text."""

# The primary key of a table WITHOUT ROWID cannot be NULL: what may be unknown is unique by an index.
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
CREATE TABLE verifications (
    finished TEXT NOT NULL, environment TEXT NOT NULL, experiments TEXT NOT NULL, share REAL NOT NULL,
    seed INTEGER NOT NULL, measured INTEGER NOT NULL, redrawn INTEGER NOT NULL,
    unrepeatable INTEGER NOT NULL, stamped INTEGER NOT NULL, remaining INTEGER NOT NULL,
    PRIMARY KEY (finished, environment, seed));
CREATE TABLE checksums (
    name TEXT NOT NULL, part TEXT NOT NULL, rows INTEGER NOT NULL, sum INTEGER NOT NULL,
    PRIMARY KEY (name, part)) WITHOUT ROWID;
"""


def definition(table: str) -> str:
    """Statement that makes one table of today's."""
    return next(one for one in DEFINITIONS.split(";") if one.split()[:3] == ["CREATE", "TABLE", table])


def create(db: sqlite3.Connection, definitions: str = DEFINITIONS, schema: int = SCHEMA) -> None:
    """Make the tables of a results file; the caller has begun a transaction."""
    for statement in definitions.split(";"):  # not executescript, which commits what was done before it
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {schema}")


@dataclass(frozen=True)
class Column:
    """Type of a column, ``TEXT``, ``INTEGER``, ``REAL`` or ``BLOB``, and whether it must have a value."""

    kind: str
    required: bool


@functools.cache
def rows(table: str, where: str = "") -> str:
    """Query for the rows of a table in the order of their keys; `where` says which."""
    known = columns()[table]
    order = (
        key if known[key].required or key == KEYS[table][0] else f"COALESCE({key}, '')" for key in KEYS[table]
    )
    return f"SELECT * FROM {table} {where} ORDER BY {', '.join(order)}"  # noqa: S608  names of the schema


@functools.cache
def statements(definitions: str = DEFINITIONS) -> frozenset[tuple[str, str]]:
    """Name and statement of all that the definitions make, as a file of them has it."""
    with closing(sqlite3.connect(":memory:")) as db:
        create(db, definitions)
        return statements_of(db)


def statements_of(db: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    """Name and statement of all tables and indexes of a file, whatever space is between the words."""
    found = db.execute("SELECT name, COALESCE(sql, '') FROM sqlite_master")
    return frozenset((str(name), " ".join(str(sql).split())) for name, sql in found)


@functools.cache
def columns(definitions: str = DEFINITIONS) -> dict[str, dict[str, Column]]:
    """Columns by table and name."""
    with closing(sqlite3.connect(":memory:")) as db:
        create(db, definitions)
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        described = {name: db.execute(f"PRAGMA table_info({name})").fetchall() for name in names}
    return {name: {row[1]: Column(row[2], bool(row[3])) for row in rows} for name, rows in described.items()}


def insertion(table: str, rest: str = "", definitions: str = DEFINITIONS) -> str:
    """Statement that puts a row into a table; `rest` says what is done about one that is there."""
    places = ", ".join("?" * len(columns(definitions)[table]))
    return f"INSERT INTO {table} VALUES ({places}) {rest}"  # noqa: S608  names and clauses of this wing
