"""A results file: one SQLite file, written a group at a time, whole or not at all."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import filelock
import pandas as pd

from sdp_bench.bench import files
from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.results import migration, schema, tables
from sdp_bench.bench.results.queries import Queries
from sdp_bench.bench.results.record import Failure, Record, RunDescription, StoredNet, Unit, Verification
from sdp_ref.rules import Traits

_NEWEST_TRAITS = """ON CONFLICT (spec) DO UPDATE SET label = excluded.label, colour = excluded.colour,
    sampling = excluded.sampling, marginal = excluded.marginal, reference = excluded.reference,
    rank = excluded.rank"""


class Store(Queries):
    """A results file.

    One of an older schema is read by a copy in today's, and is brought to today's when it is opened for
    writing.

    Parameters
    ----------
    path : Path
    writing : bool
        Create it if it is missing, and hold it against other writers until closed.

    Raises
    ------
    UserError
        If the file is not ours, or of a newer schema, or missing when reading.
    RunFailedError
        If it cannot be opened or written, or another run is writing to it.
    """

    def __init__(self, path: Path, *, writing: bool = False) -> None:
        self._lock: filelock.BaseFileLock | None = None
        try:
            self._created = not path.exists()
            new = self._created or path.stat().st_size == 0
        except OSError as error:
            raise RunFailedError(f"cannot read {path}: {error.strerror}") from error
        if new and not writing:
            raise UserError(f"no results at {path}; `sdp-bench run` makes them (or give --database)")
        if not new:
            _check_header(path)
        if writing:
            self._lock = _lock(path)
        try:
            super().__init__(path, self._connect(path, create=new))
        except BaseException:
            self._release()
            raise

    def _connect(self, path: Path, *, create: bool) -> sqlite3.Connection:
        writing = self._lock is not None
        try:
            db = sqlite3.connect(_address(path, writing=writing), timeout=30, isolation_level=None, uri=True)
            application = db.execute("PRAGMA application_id").fetchone()[0]
            version = db.execute("PRAGMA user_version").fetchone()[0]
            # A run killed while it made the file leaves one without any table.
            empty = not application and not db.execute("SELECT 1 FROM sqlite_master").fetchone()
            if application or not (create or (empty and writing)):
                _check_identity(path, application, version)
            if writing:
                db.execute("PRAGMA journal_mode = WAL")
            if not application:
                db.execute("BEGIN IMMEDIATE")
                schema.create(db)
                db.execute("COMMIT")
            elif version < schema.SCHEMA:
                db = db if writing else _copied(db)
                migration.migrate(db, version)
            db.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error as error:
            raise RunFailedError(f"cannot use {path} as a results file: {error}") from error
        return db

    def close(self) -> None:
        """Close the file and let other writers in; a new file in which no run was begun is removed."""
        unused = self._created and not self._connection.execute("SELECT COUNT(*) FROM runs").fetchone()[0]
        self._connection.close()
        if unused:
            self.path.unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        if self._lock:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise RunFailedError(f"cannot write {self.path}: {error}") from error
            raise

    def begin_run(
        self,
        description: RunDescription,
        *,
        nets: Iterable[StoredNet],
        units: Iterable[Unit],
        rules: Mapping[str, Traits],
        members: Iterable[tuple[str, str]],
    ) -> int:
        """Record what a run is about to do.

        Parameters
        ----------
        description : RunDescription
        nets, units
            What it asks about; what is here already stays.
        rules
            Traits by spec: of today, in place of those that are here.
        members
            Experiments and keys of their units.

        Returns
        -------
        int
            Number of the run.
        """
        with self._transaction() as db:
            inserted = db.execute(
                "INSERT INTO runs (started, command, preset, settings, experiments, left_out, environment) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    *(_now(), description.command, description.preset, json.dumps(description.settings)),
                    json.dumps({name: asdict(part) for name, part in description.experiments.items()}),
                    json.dumps([asdict(line) for line in description.left_out]),
                    json.dumps(description.environment),
                ),
            )
            run = cast(int, inserted.lastrowid)  # of a table with an INTEGER PRIMARY KEY
            rows = [tuple({**vars(net), "recipe": json.dumps(net.recipe)}.values()) for net in nets]
            db.executemany(schema.insertion("nets", tables.KEEP_WEIGHTS), rows)
            db.executemany(schema.insertion("units", "ON CONFLICT DO NOTHING"), map(astuple, units))
            described = [(spec, *astuple(traits)) for spec, traits in rules.items()]
            db.executemany(schema.insertion("rules", _NEWEST_TRAITS), described)
            db.executemany(
                schema.insertion("members", "ON CONFLICT DO NOTHING"), ((run, *member) for member in members)
            )
        return run

    def write_group(
        self,
        run: int,
        records: Iterable[Record],
        failures: Iterable[Failure],
        wanted: Iterable[tuple[str, str, str]],
    ) -> None:
        """Put the result of a group in place of what was known of the same measurements.

        `wanted` is what it set out to measure, (unit, rule, metric): all that was known of it was
        out of date, and does not stay where there is nothing new.
        """
        wanted = set(wanted)
        names = schema.columns()["records"]

        def recorded(record: Record) -> tuple[Any, ...]:
            values = {**vars(record), "run": run}
            return tuple(values[name] for name in names)

        with self._transaction() as db:
            for table in ("records", "failures"):
                statement = f"DELETE FROM {table} WHERE unit = ? AND rule = ? AND metric = ?"  # noqa: S608  as above
                db.executemany(statement, wanted)
            db.executemany(
                "DELETE FROM failures WHERE unit = ? AND rule = ? AND metric IS NULL",
                {(unit, rule) for unit, rule, _ in wanted},
            )
            # Another group of this run may have failed on the same unit.
            db.executemany(
                "DELETE FROM failures WHERE unit = ? AND rule IS NULL AND run != ?",
                {(unit, run) for unit, _, _ in wanted},
            )
            db.executemany(schema.insertion("records"), map(recorded, records))
            failures = tuple(failures)
            db.executemany(
                "DELETE FROM failures WHERE unit = ? AND rule IS ? AND metric IS ?",
                [(failure.unit, failure.rule, failure.metric) for failure in failures],
            )
            db.executemany(schema.insertion("failures"), [(*astuple(failure), run) for failure in failures])

    def finish_run(self, run: int, seconds: float) -> None:
        """Mark a run as gone through to its end, after `seconds`."""
        with self._transaction() as db:
            db.execute("UPDATE runs SET finished = ?, seconds = ? WHERE id = ?", (_now(), seconds, run))

    def stamp(self, marks: Iterable[tuple[str, str, str, str]], verification: Verification) -> None:
        """Give measurements other fingerprints, and keep the evidence for it, all or nothing.

        Parameters
        ----------
        marks : iterable of (unit, rule, metric, fingerprint)
        verification : Verification
        """
        evidence = {
            **vars(verification),
            "environment": json.dumps(verification.environment),
            "experiments": json.dumps(verification.experiments),
        }
        with self._transaction() as db:
            db.executemany(
                "UPDATE records SET fingerprint = ? WHERE unit = ? AND rule = ? AND metric = ?",
                ((mark, *place) for *place, mark in marks),
            )
            db.execute(schema.insertion("verifications"), tuple(evidence.values()))

    def tables(self) -> dict[str, pd.DataFrame]:
        """Everything in the file; see :func:`sdp_bench.bench.results.tables.read`."""
        return tables.read(self._connection)

    def add(self, others: Mapping[str, pd.DataFrame]) -> int:
        """Put the tables of another file beside what is here.

        See :func:`sdp_bench.bench.results.tables.add`, also for what it raises.

        Returns
        -------
        int
            Measurements that were new.
        """
        with self._transaction() as db:
            return tables.add(db, others)


def _check_identity(path: Path, application: int, version: int) -> None:
    if application != schema.APPLICATION:
        raise UserError(f"{path} is a SQLite file of something else; nothing was changed")
    if version < migration.SCHEMA:
        raise UserError(f"{path} has schema {version}, which this version cannot read; start a new file")
    if version > schema.SCHEMA:
        raise UserError(
            f"{path} has schema {version}, newer than this version's {schema.SCHEMA}; update sdp-bench"
        )


def _address(path: Path, *, writing: bool) -> str:
    """Address for SQLite. A reader does not write, not even where it could."""
    address = path.resolve().as_uri()
    if writing:
        return address
    # In a folder that cannot be written a WAL file opens only as immutable, which it is without a log.
    log = path.with_name(path.name + "-wal")
    writable = os.access(path.parent, os.W_OK) and os.access(path, os.W_OK)
    return address + ("?mode=ro" if writable or log.exists() else "?mode=ro&immutable=1")


def _copied(db: sqlite3.Connection) -> sqlite3.Connection:
    """A private copy of a file; SQLite removes it when it is closed."""
    copy = sqlite3.connect("", isolation_level=None)
    db.backup(copy)
    db.close()
    return copy


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _check_header(path: Path) -> None:
    try:
        with path.open("rb") as file:
            header = file.read(16)
    except OSError as error:
        raise RunFailedError(f"cannot read {path}: {error.strerror}") from error
    if header != b"SQLite format 3\x00":
        raise UserError(f"{path} is not a results file of sdp-bench; nothing was changed")


def _lock(path: Path) -> filelock.BaseFileLock:
    """Hold ``path.lock``; the system lets go of it however the process ends."""
    lock = filelock.FileLock(path.with_name(path.name + ".lock"))
    with files.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout as error:
            raise RunFailedError(
                f"another run is writing to {path}; wait for it or give another --database"
            ) from error
    return lock
