"""A results file: one SQLite file, written a group at a time, completely or not at all."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import filelock
import pandas as pd

from sdp_ref.rules import Traits

from .. import files
from ..errors import RunFailedError, UserError
from . import schema, tables
from .queries import Queries
from .record import Failure, Record, RunDescription, StoredNet, Unit
from .schema import DamageError

LOCK = ".sdp-bench-lock"
"""Suffix of the lock file next to a results file."""

_CACHE = 64 * 1024  # KiB of pages that SQLite caches while writing

# A net may come from an export without weights, and be trained or imported with them later.
_KEEP_WEIGHTS = "ON CONFLICT (digest) DO UPDATE SET weights = COALESCE(weights, excluded.weights)"
_NEWEST_TRAITS = """ON CONFLICT (spec) DO UPDATE SET label = excluded.label, colour = excluded.colour,
    sampling = excluded.sampling, marginal = excluded.marginal, reference = excluded.reference,
    rank = excluded.rank"""
_NEWEST_FAILURE = """ON CONFLICT (unit, COALESCE(rule, ''), COALESCE(metric, '')) DO UPDATE SET
    error = excluded.error, seconds = excluded.seconds, run = excluded.run"""


class Store(Queries, AbstractContextManager["Store"]):
    """A results file.

    With `writing`, a missing file is created, and other writers are locked out until it is closed. A reader
    sees the file as it was when it was opened, and never writes. Tables are verified with their checksums
    when they are read, all but the records when the file is opened.

    Raises UserError if the file has another format or schema, or does not exist and is only read, and
    RunFailedError if it is damaged, cannot be read or written, or another run is writing to it.
    """

    def __init__(self, path: Path, *, writing: bool = False) -> None:
        self.path = path
        self._tables: dict[str, pd.DataFrame] = {}
        self._lock: filelock.BaseFileLock | None = None
        self._place = path.resolve()  # SQLite names its log, and a run its lock, after the target of a link
        try:
            self._created = not path.exists()
            new = self._created or path.stat().st_size == 0
        except OSError as error:
            raise RunFailedError(f"cannot read {path}: {error.strerror}") from error
        if new and not writing:
            raise UserError(f"no results at {path}; `sdp-bench run` makes them (or give --database)")
        if writing:
            self._lock = _lock(path, self._place)
        try:
            self._connection = self._connect()
        except BaseException:
            self._release()
            raise

    def _connect(self) -> sqlite3.Connection:
        writing = self._lock is not None
        with self._reading():
            address = _address(self._place, writing=writing)
            db = sqlite3.connect(address, timeout=30, isolation_level=None, uri=True)
            application, version = (
                db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            )
            # A run that was killed while it created the file leaves one without tables.
            empty = not application and not db.execute("SELECT 1 FROM sqlite_master").fetchone()
            if empty and not writing:
                raise UserError(
                    f"{self.path} holds no tables; if it is a copy of a results file, copy its log "
                    f"{self.path.name}-wal too"
                )
            new = writing and empty
            if not new and application != schema.APPLICATION:
                raise UserError(f"{self.path} is a SQLite file of another program; nothing was changed")
            if not new:
                check_version(self.path, version)
            if writing:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute(f"PRAGMA cache_size = -{_CACHE}")
            if new:
                db.execute("BEGIN IMMEDIATE")
                schema.create(db)
                schema.seal(db, dict.fromkeys(schema.TABLES))
                db.execute("COMMIT")
            db.execute("PRAGMA foreign_keys = ON")
            if not writing:
                db.execute("BEGIN")  # until the file is closed: one state for all queries
            if schema.statements_of(db) != schema.statements():
                raise DamageError("its tables are not those of a results file")
            small = [name for name in schema.TABLES if name != "records"]
            schema.check_structure(db)
            schema.check_structure(db, *small)
            schema.check(db, dict.fromkeys(small))
        return db

    def close(self) -> None:
        """Close the file and unlock it; a new file in which no run was begun is removed."""
        unused = self._created and self._connection.execute("SELECT 1 FROM runs").fetchone() is None
        self._connection.close()
        if unused:
            for end in ("", "-wal", "-shm"):  # on a full disk SQLite leaves its log
                self._place.with_name(self._place.name + end).unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        if self._lock:
            self._lock.release()
            self._lock = None

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn an error of SQLite into one line."""
        try:
            yield
        except sqlite3.Error as error:
            reason = " ".join(str(error).split())
            if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
                raise UserError(
                    f"{self.path} is not a results file of sdp-bench; nothing was changed"
                ) from error
            damaged = type(error) in {DamageError, sqlite3.DatabaseError}
            raise RunFailedError(
                f"{self.path} is damaged: {reason}" if damaged else f"cannot read {self.path}: {reason}"
            ) from error

    def table(self, name: str) -> pd.DataFrame:
        if name not in self._tables:
            with self._reading():
                parts = schema.verified(self._connection, name)
                self._tables[name] = tables.from_rows(name, (row for _, rows in parts for row in rows))
        return self._tables[name]

    def verify(self) -> dict[str, int]:
        """Verify all checksums, and every index against its table; returns the number of rows by table.

        Raises RunFailedError if the file is damaged.
        """
        with self._reading():
            schema.check_structure(self._connection, *schema.TABLES)
            return {
                name: sum(len(rows) for _, rows in schema.verified(self._connection, name))
                for name in schema.TABLES
            }

    @contextmanager
    def _transaction(self, touched: schema.Touched) -> Iterator[sqlite3.Connection]:
        """Write to some parts of tables: their checksums are verified before, and replaced after."""
        db = self._connection
        self._tables.clear()
        try:
            db.execute("BEGIN IMMEDIATE")
            with self._reading():
                schema.check(db, touched)
            yield db
            schema.seal(db, touched)
            db.execute("COMMIT")
        except BaseException as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
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
        """Record what a run is about to do, and return its number.

        Nets and units that are stored already stay; the traits of `rules`, by spec, replace older ones.
        `members` are experiments and keys of their units.
        """
        nets = tuple(nets)
        (run,) = self._connection.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM runs").fetchone()
        touched = {
            "nets": {net.digest for net in nets},
            **dict.fromkeys(("units", "rules")),
            "runs": {run},
            "members": {run},
        }
        row = (
            *(run, _now(), None, None),
            *(description.command, description.preset, json.dumps(description.settings)),
            json.dumps({name: asdict(part) for name, part in description.experiments.items()}),
            json.dumps([asdict(line) for line in description.left_out]),
            json.dumps(description.environment),
        )
        with self._transaction(touched) as db:
            db.execute(schema.insertion("runs"), row)
            rows = [tuple({**vars(net), "recipe": json.dumps(net.recipe)}.values()) for net in nets]
            db.executemany(schema.insertion("nets", _KEEP_WEIGHTS), rows)
            db.executemany(schema.insertion("units", "ON CONFLICT DO NOTHING"), map(astuple, units))
            described = [(spec, *astuple(traits)) for spec, traits in rules.items()]
            db.executemany(schema.insertion("rules", _NEWEST_TRAITS), described)
            db.executemany(
                schema.insertion("members", "ON CONFLICT DO NOTHING"), ((run, *member) for member in members)
            )
        return cast(int, run)

    def write_group(
        self,
        run: int,
        records: Iterable[Record],
        failures: Iterable[Failure],
        wanted: Iterable[tuple[str, str, str]],
    ) -> None:
        """Replace what was known of a group's cells by its result.

        `wanted` are the cells (unit, rule, metric) that were to be measured: their old records and failures
        are deleted even if there is nothing new.

        Raises RunFailedError if the file cannot be written.
        """
        wanted, failures = set(wanted), tuple(failures)
        names = schema.columns()["records"]
        rows = [tuple({**vars(record), "run": run}[name] for name in names) for record in records]
        units = {unit for unit, *_ in (*rows, *wanted)} | {failure.unit for failure in failures}
        with self._transaction({"records": units, "failures": units}) as db:
            db.executemany("DELETE FROM records WHERE unit = ? AND rule = ? AND metric = ?", wanted)
            db.executemany(
                "DELETE FROM failures WHERE unit = ? AND rule = ? AND (metric = ? OR metric IS NULL)", wanted
            )
            # Another group of this run may have failed on the same unit.
            db.executemany(
                "DELETE FROM failures WHERE unit = ? AND rule IS NULL AND run != ?",
                {(unit, run) for unit, _, _ in wanted},
            )
            db.executemany(schema.insertion("records"), rows)
            rows = [(*astuple(failure), run) for failure in failures]
            db.executemany(schema.insertion("failures", _NEWEST_FAILURE), rows)

    def finish_run(self, run: int, seconds: float) -> None:
        """Mark a run as completed after `seconds`."""
        with self._transaction({"runs": {run}}) as db:
            db.execute("UPDATE runs SET finished = ?, seconds = ? WHERE id = ?", (_now(), seconds, run))

    def add(
        self, others: tables.Tables, on_replaced: Callable[[int], object] = bool, *, keep: bool = False
    ) -> int:
        """Add the tables of other results, all or nothing, and return the number of new measurements.

        The runs get new numbers. Measurements of newer versions replace older ones; `on_replaced` is then
        called with their number. Raises UserError if another measurement, unit or net differs from the one
        here; with `keep`, a measurement of the same versions as the one here is left out.
        """
        here = self.tables()
        try:
            new, replaced, ended = tables.new_rows(here, others, keep=keep)
        except ValueError as error:
            raise UserError(str(error)) from error
        nets = others["nets"].loc[others["nets"]["weights"].notna(), ["weights", "digest"]]
        touched: dict[str, set[str | int] | None] = {
            name: set(new[name][schema.KEYS[name][0]].tolist()) for name in ("members", "records")
        }
        touched["runs"] = {*new["runs"]["id"].tolist(), *ended["id"].tolist()}
        touched |= dict.fromkeys(("units", "rules", "nets", "failures"))
        with self._transaction(touched) as db:
            db.executemany("DELETE FROM records WHERE unit = ? AND rule = ? AND metric = ?", replaced)
            for name in schema.TABLES:
                db.executemany(schema.insertion(name), tables.to_rows(new[name]))
            db.executemany(
                "UPDATE nets SET weights = COALESCE(weights, ?) WHERE digest = ?", tables.to_rows(nets)
            )
            db.executemany(
                "UPDATE runs SET finished = ?, seconds = ? WHERE id = ?",
                tables.to_rows(ended[["finished", "seconds", "id"]]),
            )
            db.execute(
                "DELETE FROM failures WHERE (unit, rule, metric) IN (SELECT unit, rule, metric FROM records)"
            )
        if replaced:
            on_replaced(len(replaced))
        return len(new["records"])


def check_version(path: Path, version: int) -> None:
    """Raise UserError if a file or an export has another schema than this version reads."""
    if version < schema.SCHEMA:
        raise UserError(
            f"{path} has schema {version}: sdp-bench {schema.LAST_READER} reads it, this version does not; "
            "start a new file, or install that version"
        )
    if version > schema.SCHEMA:
        raise UserError(
            f"{path} has schema {version}, newer than {schema.SCHEMA} of this version; update sdp-bench"
        )


def _address(path: Path, *, writing: bool) -> str:
    """Address for SQLite; a reader does not write, even where it could."""
    address = path.as_uri()
    if writing:
        return address
    # In a folder without write access SQLite opens a WAL file only as immutable, which it is without a log.
    log = path.with_name(path.name + "-wal")
    writable = os.access(path.parent, os.W_OK) and os.access(path, os.W_OK)
    return address + ("?mode=ro" if writable or log.exists() else "?mode=ro&immutable=1")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _lock(path: Path, place: Path) -> filelock.BaseFileLock:
    """Take the lock next to a file; the system releases it however the process ends."""
    # The suffix is one that no other program uses: some versions of filelock truncate the file that they
    # open.
    lock = filelock.FileLock(place.with_name(place.name + LOCK))
    with files.writing(path):
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout as error:
            raise RunFailedError(
                f"another run is writing to {path}; wait for it or give another --database"
            ) from error
    return lock
