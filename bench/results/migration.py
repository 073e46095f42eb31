"""Results files of older schemas made into today's: 4, up to version 0.7, 3, up to 0.6, and 2, up to 0.4."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, astuple
from typing import Any

import sdp_ref
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.results import checksums, ranges, schema, tables
from sdp_bench.bench.results.checksums import Row
from sdp_bench.bench.results.record import LeftOut, Selection, Unit
from sdp_ref.rules import Traits, traits

SCHEMA = 2
TABLES = ("nets", "subjects", "runs", "members", "records", "failures")
DEFINITIONS = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, started TEXT NOT NULL, finished TEXT, seconds REAL, command TEXT NOT NULL,
    preset TEXT NOT NULL, settings TEXT NOT NULL, suites TEXT NOT NULL, left_out TEXT NOT NULL,
    environment TEXT NOT NULL);
CREATE TABLE nets (
    digest TEXT PRIMARY KEY, network TEXT NOT NULL, activation TEXT NOT NULL, depth INTEGER NOT NULL,
    seed INTEGER NOT NULL, accuracy REAL NOT NULL, recipe TEXT NOT NULL, source TEXT NOT NULL,
    weights BLOB);
CREATE TABLE subjects (
    key TEXT PRIMARY KEY, net TEXT NOT NULL REFERENCES nets, input INTEGER NOT NULL, sigma REAL NOT NULL,
    sampler TEXT NOT NULL, samples INTEGER NOT NULL);
CREATE TABLE members (
    run INTEGER NOT NULL REFERENCES runs, suite TEXT NOT NULL, subject TEXT NOT NULL REFERENCES subjects,
    PRIMARY KEY (run, suite, subject)) WITHOUT ROWID;
CREATE TABLE records (
    subject TEXT NOT NULL REFERENCES subjects, rule TEXT NOT NULL, metric TEXT NOT NULL,
    component TEXT NOT NULL, value REAL NOT NULL, floor REAL, floor95 REAL, stderr REAL,
    unit TEXT NOT NULL, seconds REAL NOT NULL, fingerprint TEXT NOT NULL, run INTEGER NOT NULL,
    PRIMARY KEY (subject, rule, metric, component)) WITHOUT ROWID;
CREATE TABLE failures (
    subject TEXT NOT NULL REFERENCES subjects, rule TEXT NOT NULL, metric TEXT NOT NULL,
    error TEXT NOT NULL, seconds REAL NOT NULL, run INTEGER NOT NULL,
    PRIMARY KEY (subject, rule, metric)) WITHOUT ROWID;
"""

_CAUCHY = "iris-cauchy"  # the one suite of schema 2 whose noise was not Gaussian; the noise was not stored
_REFERENCES = {
    "oracle_moments": Traits("the oracle’s own moments", reference=True, rank=300),
    "oracle_again": Traits("the oracle again", reference=True, rank=300),
}

# '*' stood for every rule or metric, '' for a number without components, -1 for no accuracy, and tasks
# without an oracle wrote a rule's time of 0. The total variation of the class had a second name, class_tv.
_COPY = """
UPDATE OR IGNORE old_records SET metric = 'tv_class' WHERE metric = 'class_tv';
UPDATE OR IGNORE old_failures SET metric = 'tv_class' WHERE metric = 'class_tv';
INSERT INTO members SELECT run, suite, subject FROM old_members;
INSERT INTO records SELECT subject, rule, metric, NULLIF(component, ''), value, floor, floor95, stderr, unit,
    CASE WHEN key IN (SELECT key FROM units WHERE net IS NULL) THEN NULL ELSE seconds END, fingerprint, run,
    NULL FROM old_records JOIN units ON units.key = subject WHERE metric != 'class_tv'
    ORDER BY subject, rule, metric, component;
INSERT INTO failures SELECT subject, NULLIF(rule, '*'), NULLIF(metric, '*'), error, seconds, run
    FROM old_failures WHERE metric != 'class_tv';
"""


_ADDED = {"records": "precision"}
"""Columns by table that schema 4 has and schema 3 had not; what was measured before has no value there."""


def migrate(db: sqlite3.Connection, version: int) -> None:
    """Make a file of an older schema into one of today's, in one transaction.

    Parameters
    ----------
    db : sqlite3.Connection
    version : int
        Its schema, :data:`SCHEMA` or the one after it.

    Raises
    ------
    sqlite3.Error
        If it cannot be written, is no such file, or has rows that cannot be.
    """
    db.execute("PRAGMA foreign_keys = OFF")  # has no effect within a transaction
    db.execute("BEGIN IMMEDIATE")
    try:
        checksums.check_structure(db)
        if version == SCHEMA:
            _rebuild(db)
        else:
            for table, column in _ADDED.items() if version == 3 else ():
                db.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT")
            db.execute(schema.definition("checksums"))
            db.execute(f"PRAGMA user_version = {schema.SCHEMA}")
        _put_aside(db)
        _check_contents(db)
        checksums.seal(db, dict.fromkeys(schema.TABLES))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _rebuild(db: sqlite3.Connection) -> None:
    """Tables of schema 2 as those of today."""
    for table in TABLES:
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    schema.create(db)
    _nets_and_units(db)
    _runs(db)
    _rules(db)
    for statement in _COPY.split(";"):
        db.execute(statement)
    for table in reversed(TABLES):
        db.execute(f"DROP TABLE old_{table}")


def _put_aside(db: sqlite3.Connection) -> None:
    """Make failures of measurements with numbers that cannot be, as a run does: older versions kept them."""
    query = f"SELECT unit, rule, metric, run, {', '.join(tables.NUMBERS)} FROM records"  # noqa: S608  of the schema
    wrong: dict[Row, tuple[str, int]] = {}
    for unit, rule, metric, run, *numbers in db.execute(query):
        typed = all(isinstance(number, float | None) for number in numbers)  # else refused with other types
        if typed and (reason := ranges.outside(metric, *numbers)):
            wrong[unit, rule, metric] = reason, run
    for cell, (reason, run) in wrong.items():
        for table in ("records", "failures"):
            db.execute(f"DELETE FROM {table} WHERE unit = ? AND rule = ? AND metric = ?", cell)  # noqa: S608  as above
        db.execute(schema.insertion("failures"), (*cell, reason, 0.0, run))


def _check_contents(db: sqlite3.Connection) -> None:
    """Raise if what was written without checksums cannot be what was written."""
    cannot = f"the results cannot be brought to schema {schema.SCHEMA}"
    checksums.check_structure(db, *schema.TABLES)
    if broken := db.execute("PRAGMA foreign_key_check").fetchone():
        raise checksums.DamageError(f"{cannot}: {broken}")
    try:
        for name in schema.TABLES:
            for _ in tables.checked(name, db.execute(schema.rows(name))):
                pass
    except ValueError as error:
        raise checksums.DamageError(f"{cannot}: {error}") from error


def expected(version: int) -> tuple[Sequence[str], str]:
    """Names and definitions of the tables that an export of some schema has."""
    return (TABLES, DEFINITIONS) if version == SCHEMA else (schema.TABLES, schema.DEFINITIONS)


def added(version: int) -> Mapping[str, str]:
    """Columns by table that an export of some schema lacks."""
    return _ADDED if version == 3 else {}


@contextmanager
def migrated(rows: Mapping[str, Iterable[Row]]) -> Iterator[dict[str, Iterable[Row]]]:
    """Exported tables of schema 2 as tables of today's, for as long as the block runs.

    Parameters
    ----------
    rows : mapping of str to iterable of tuple
        By the names of :func:`expected`.

    Yields
    ------
    dict of str to iterable of tuple

    Raises
    ------
    UserError
        If they do not fit together.
    """
    with closing(sqlite3.connect("", isolation_level=None)) as db:
        try:
            db.execute("BEGIN")
            schema.create(db, DEFINITIONS, SCHEMA)
            for name in TABLES:
                statement = schema.insertion(name, definitions=DEFINITIONS)
                db.executemany(statement, tables.checked(name, rows[name], DEFINITIONS))
            db.execute("COMMIT")
            migrate(db, SCHEMA)
        except (sqlite3.Error, ValueError, OverflowError, KeyError) as error:
            raise UserError(f"tables of schema {SCHEMA} that do not fit together: {error}") from error
        yield {name: db.execute(schema.rows(name)) for name in schema.TABLES}


def _nets_and_units(db: sqlite3.Connection) -> None:
    """Nets, and units in place of subjects: a task stood there as a net, and its seed as the input."""
    designs: dict[str, tuple[str, dict[str, Any]]] = {}
    for digest, network, activation, depth, seed, accuracy, recipe, source, weights in db.execute(
        "SELECT digest, network, activation, depth, seed, accuracy, recipe, source, weights FROM old_nets"
    ).fetchall():
        options = json.loads(recipe)
        if "experiment" in options:
            designs[digest] = network, options
            continue
        known = None if accuracy == -1 else accuracy
        row = (digest, network, activation, depth, seed, known, recipe, _label(options), source, weights)
        db.execute(schema.insertion("nets"), row)
    heavy = {key for (key,) in db.execute("SELECT subject FROM old_members WHERE suite = ?", (_CAUCHY,))}
    for key, net, row, sigma, sampler, samples in db.execute(
        "SELECT key, net, input, sigma, sampler, samples FROM old_subjects"
    ).fetchall():
        if net in designs:
            unit = _without_oracle(key, row, *designs[net])
        else:
            noise = "cauchy" if key in heavy else "gaussian"
            unit = Unit(key, net, row, noise, sigma, sampler, samples)
        db.execute(schema.insertion("units"), astuple(unit))


def _without_oracle(key: str, seed: int, network: str, recipe: Mapping[str, Any]) -> Unit:
    """Unit of a task: its "networks" were called ``yacht 6-64`` and ``MNIST softmax``."""
    name, _, rest = network.partition(" ")
    objective = rest if recipe["experiment"] == "selective" else None
    return Unit(key, dataset=name.lower(), objective=objective, seed=seed, design=recipe["text"])


def _label(recipe: Mapping[str, Any]) -> str:
    """A recipe in few words: of a user's own net, of an image classifier, or of a fully connected net."""
    if "own" in recipe:
        return f"yours, on {recipe['inputs']}"
    rate = f"{recipe['optimizer']} {recipe['learning_rate']:g}"
    if "parts" in recipe:
        augmented = "" if recipe["augmentation"] == "none" else f", {recipe['augmentation']}"
        mixed = "" if recipe["precision"] == "float32" else f", {recipe['precision']}"
        return (
            f"{recipe['dataset']} ({', '.join(recipe['parts'])}), {rate} {recipe['schedule']}, "
            f"{recipe['epochs']} epochs of batch {recipe['batch_size']}{augmented}{mixed}"
        )
    epochs = "" if recipe["epochs"] == 5000 else f", {recipe['epochs']} epochs"
    return f"{rate}, {recipe['features']} features{epochs}"


def _runs(db: sqlite3.Connection) -> None:
    for *first, suites, left_out, environment in db.execute(
        "SELECT id, started, finished, seconds, command, preset, settings, suites, left_out, environment "
        "FROM old_runs"
    ).fetchall():
        experiments = {
            name: asdict(Selection(tuple(metrics), tuple(rules)))
            for name, (metrics, rules) in json.loads(suites.replace('"class_tv"', '"tv_class"')).items()
        }
        lines = [asdict(_left_out(key, reason)) for key, reason in json.loads(left_out).items()]
        row = (*first, json.dumps(experiments), json.dumps(lines), environment)
        db.execute(schema.insertion("runs"), row)


def _left_out(key: str, reason: str) -> LeftOut:
    """What was left out, from ``dvia (sigmoid)``, or ``uci ()`` for a whole task."""
    name, _, where = key.removesuffix(")").rpartition(" (")
    return LeftOut(name, where, reason) if where else LeftOut(None, name, reason)


def _rules(db: sqlite3.Connection) -> None:
    """Traits of every rule: of a user's own, whose code is not run here, its name alone."""
    specs = {
        spec for (spec,) in db.execute("SELECT rule FROM old_records UNION SELECT rule FROM old_failures")
    }
    for (text,) in db.execute("SELECT experiments FROM runs"):
        specs.update(spec for selection in json.loads(text).values() for spec in selection["rules"])
    rows = [(spec, *astuple(_traits(spec))) for spec in sorted(specs - {"*"})]
    db.executemany(schema.insertion("rules"), rows)


def _traits(spec: str) -> Traits:
    if spec in _REFERENCES:
        return _REFERENCES[spec]
    try:
        return traits(sdp_ref.rule(spec))
    except ValueError:
        return Traits(spec)
