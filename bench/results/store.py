"""A results file: one SQLite file, written a group at a time, whole or not at all."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import filelock
import pandas as pd
from pandas.errors import DatabaseError

from sdp_bench.bench import files
from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.results import checksums, migration, schema, tables
from sdp_bench.bench.results.checksums import Row
from sdp_bench.bench.results.queries import Queries, unreadable
from sdp_bench.bench.results.record import Failure, Record, RunDescription, StoredNet, Unit
from sdp_ref.rules import Traits

LOCK = ".sdp-bench-lock"
"""End of the name of the file beside a results file by which one writer holds it."""

_NEWEST_TRAITS = """ON CONFLICT (spec) DO UPDATE SET label = excluded.label, colour = excluded.colour,
    sampling = excluded.sampling, marginal = excluded.marginal, reference = excluded.reference,
    rank = excluded.rank"""


class Store(Queries):
    """A results file.

    One of an older schema is read by a copy in today's, and is brought to today's when it is opened for
    writing. A reader sees the file as it was when it opened it.

    All but the records is compared with its checksums at once, the records before the first of them is read.

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
        If it is damaged, cannot be opened or written, or another run is writing to it.
    """

    def __init__(self, path: Path, *, writing: bool = False) -> None:
        self._lock: filelock.BaseFileLock | None = None
        self._held: dict[Path, tuple[int, int] | None] = {}
        # Once: SQLite names its log, and a run its lock, by what a link points at.
        self._place = path.resolve()
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
            self._lock = _lock(path, self._place)
        try:
            super().__init__(path, self._connect(path, create=new))
        except BaseException:
            self._release()
            raise
        if writing:
            self._hold()

    def _connect(self, path: Path, *, create: bool) -> sqlite3.Connection:
        writing = self._lock is not None
        try:
            address = _address(self._place, writing=writing)
            db = sqlite3.connect(address, timeout=30, isolation_level=None, uri=True)
            # A run killed while it made the file leaves one without any table.
            empty = not db.execute("SELECT 1 FROM sqlite_master").fetchone()
            new = empty and (create or writing) and not _header(db)[0]
            if not new:
                _check_identity(path, db)
            if writing:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute(f"PRAGMA cache_size = -{_CACHE}")
            if new:
                db.execute("BEGIN IMMEDIATE")
                schema.create(db)
                checksums.seal(db, dict.fromkeys(schema.TABLES))
                db.execute("COMMIT")
            elif _header(db)[1] < schema.SCHEMA:
                db = db if writing else _copied(db)
                migration.migrate(db, _header(db)[1])
            db.execute("PRAGMA foreign_keys = ON")
            if writing:
                db.execute("SELECT 1 FROM runs").fetchone()  # which opens the log
            else:
                db.execute("BEGIN")
            _check(db)
        except sqlite3.Error as error:
            raise unreadable(path, error) from error
        return db

    def close(self) -> None:
        """Close the file and let other writers in; a new file in which no run was begun is removed."""
        unused = self._created and not self._changed() and not self._has_runs()
        self._connection.close()
        if unused:
            self._place.unlink(missing_ok=True)
        self._release()

    def _has_runs(self) -> bool:
        return self._connection.execute("SELECT 1 FROM runs").fetchone() is not None

    def _files(self) -> Iterator[Path]:
        """The file, and the log and its index that SQLite keeps beside it while it is open."""
        return (self._place.with_name(self._place.name + end) for end in ("", "-wal", "-shm"))

    def _hold(self) -> None:
        """Remember what was opened for writing, or raise if what has its name by now is something else."""
        opened = _opened()
        found = {path: _identity(path) for path in self._files()}
        self._held = {
            path: each if opened is None or each in opened else None for path, each in found.items()
        }
        try:
            self._require_unchanged()
        except BaseException:
            self.close()
            raise

    def _changed(self) -> Path | None:
        """The first of the files that is no longer the one which was opened for writing."""
        return next(
            (path for path, held in self._held.items() if held is None or _identity(path) != held), None
        )

    def _require_unchanged(self) -> None:
        """Raise a RunFailedError if what is written would go to a file that has no name any more."""
        if changed := self._changed():
            raise RunFailedError(
                f"{changed} was deleted, renamed or replaced while results were written to it; stopped, "
                "since nothing more would be kept"
            )

    def _release(self) -> None:
        if self._lock:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._require_unchanged()
        finally:
            self.close()
        if isinstance(error, sqlite3.Error | DatabaseError):
            raise unreadable(self.path, error) from error

    @contextmanager
    def _transaction(self, touched: checksums.Touched) -> Iterator[sqlite3.Connection]:
        """Write into some parts of tables, which are as they were written before, and get new checksums."""
        db = self._connection
        try:
            db.execute("BEGIN IMMEDIATE")
            checksums.check(db, touched)
            yield db
            checksums.seal(db, touched)
            self._require_unchanged()
            db.execute("COMMIT")
        except BaseException as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            if isinstance(error, checksums.DamageError):
                raise unreadable(self.path, error) from error
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
        nets = tuple(nets)
        touched = {
            **dict.fromkeys(("runs", "units", "rules", "members")),
            "nets": {net.digest for net in nets},
        }
        with self._transaction(touched) as db:
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

        Raises
        ------
        RunFailedError
            If it cannot be written, or a record has a number that cannot be.
        """
        wanted, failures = set(wanted), tuple(failures)
        names = schema.columns()["records"]

        def recorded(record: Record) -> tuple[Any, ...]:
            values = {**vars(record), "run": run}
            return tuple(values[name] for name in names)

        try:
            rows = list(tables.checked("records", map(recorded, records)))
        except ValueError as error:
            raise RunFailedError(f"not written to {self.path}: {error}") from error
        units = {row[0] for row in rows} | {each.unit for each in failures} | {unit for unit, _, _ in wanted}
        with self._transaction({"records": units, "failures": units}) as db:
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
            db.executemany(schema.insertion("records"), rows)
            db.executemany(
                "DELETE FROM failures WHERE unit = ? AND rule IS ? AND metric IS ?",
                [(failure.unit, failure.rule, failure.metric) for failure in failures],
            )
            db.executemany(schema.insertion("failures"), [(*astuple(failure), run) for failure in failures])

    def finish_run(self, run: int, seconds: float) -> None:
        """Mark a run as gone through to its end, after `seconds`."""
        with self._transaction({"runs": None}) as db:
            db.execute("UPDATE runs SET finished = ?, seconds = ? WHERE id = ?", (_now(), seconds, run))

    def tables(self) -> dict[str, pd.DataFrame]:
        """Everything in the file, a frame a table."""
        return {
            name: pd.DataFrame(list(rows), columns=list(columns)).astype(
                {column: _TYPES[each.kind] for column, each in columns.items() if each.kind in _TYPES}
            )
            for name, rows in self.contents().items()
            for columns in (schema.columns()[name],)
        }

    def add(self, others: Mapping[str, Iterable[Row]]) -> int:
        """Put the tables of another file beside what is here, whole or not at all.

        See :func:`sdp_bench.bench.results.tables.add`.

        Returns
        -------
        int
            Measurements that were new.

        Raises
        ------
        UserError
            If they cannot be, or differ from what is here.
        """
        units: set[str] = set()
        with self._transaction({**dict.fromkeys(schema.TABLES), "records": units}) as db:
            try:
                return tables.add(db, others, units)
            except ValueError as error:
                raise UserError(str(error)) from error


_CACHE = 64 * 1024
"""Of SQLite's pages of a file that is written to (KiB)."""
_MAGIC = b"SQLite format 3\0"
_TYPES = {"INTEGER": "Int64", "REAL": "float64"}


def _header(db: sqlite3.Connection) -> tuple[int, int]:
    """Whose file it is, and of which schema."""
    return tuple(db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))


def _check_identity(path: Path, db: sqlite3.Connection) -> None:
    application, version = _header(db)
    ours = (application, version) == (schema.APPLICATION, schema.SCHEMA)
    if not ours and schema.statements_of(db) == schema.statements():
        raise checksums.DamageError("its header says that it is something else")
    if application != schema.APPLICATION:
        raise UserError(f"{path} is a SQLite file of something else; nothing was changed")
    if version < migration.SCHEMA:
        raise UserError(f"{path} has schema {version}, which this version cannot read; start a new file")
    if version > schema.SCHEMA:
        raise UserError(
            f"{path} has schema {version}, newer than this version's {schema.SCHEMA}; update sdp-bench"
        )


def _check(db: sqlite3.Connection) -> None:
    """Raise if the structure of a file or its small tables are not as they were written."""
    if schema.statements_of(db) != schema.statements():
        raise checksums.DamageError("its tables are not those of a results file")
    checksums.check_structure(db)
    small = [name for name in schema.TABLES if name != "records"]
    checksums.check_structure(db, *small)
    checksums.check(db, dict.fromkeys(small))


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
            header = file.read(100)
    except OSError as error:
        raise RunFailedError(f"cannot read {path}: {error.strerror}") from error
    if not header.startswith(_MAGIC):
        ours = header[68:72] == schema.APPLICATION.to_bytes(4, "big")
        if ours or _MAGIC.startswith(header.rstrip(b"\0")):
            raise RunFailedError(f"{path} is damaged: its header is not that of a SQLite file")
        raise UserError(f"{path} is not a results file of sdp-bench; nothing was changed")


def _lock(path: Path, place: Path) -> filelock.BaseFileLock:
    """Hold the lock beside a file, at `place`; the system lets go of it however the process ends."""
    # Its name is one that nobody else gives to a file: some versions of filelock empty what they open.
    lock = filelock.FileLock(place.with_name(place.name + LOCK))
    with files.writing(path):
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and place.stat().st_nlink > 1:
            raise RunFailedError(
                f"{path} has another name, a hard link, under which SQLite would not find its log; make a "
                "copy of it and give that as --database"
            )
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout as error:
            raise RunFailedError(
                f"another run is writing to {path}; wait for it or give another --database"
            ) from error
    return lock


def _identity(path: Path) -> tuple[int, int] | None:
    """What a file is known by whatever its name; None where there is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _opened() -> set[tuple[int, int]] | None:
    """Identities of what this process has open; None where the system does not tell."""
    # SQLite tells only the name of what it opened, which may be that of another file a moment later.
    # Some systems list the three standard descriptors, whatever is open.
    known = os.open(os.devnull, os.O_RDONLY)
    try:
        numbers = [int(path.name) for path in Path("/dev/fd").iterdir()]
    except OSError:
        return None
    finally:
        os.close(known)
    if known not in numbers:
        return None
    opened = set()
    for number in numbers:
        with suppress(OSError):  # that of the listing itself is closed by now
            found = os.fstat(number)
            opened.add((found.st_dev, found.st_ino))
    return opened
