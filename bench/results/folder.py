"""Results as a folder that every data tool reads, and into which several processes may write at once.

    runs/<start>-<4 hex digits>/run.json        command, settings, environment, start, end
    runs/<start>-<4 hex digits>/plan.parquet    what the run requests
    measured/<group or run>-<sha256, 16 digits>.parquet    the measurements of a group, or of many of a run
    nets/<digest>-<sha256, 16 digits>.safetensors   weights of nets

Each file appears complete, by renaming a temporary one, and is never changed afterwards, except that a run
adds its end to its ``run.json``. Names carry digests of contents, so that damage is noticed: page checksums
of Parquet let some flipped bits pass. Nothing is locked; joining results is copying files.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import secrets
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sdp_ref.errors import on_one_line

from .. import files
from ..errors import RunFailedError, UserError
from ..lazy import pd
from ..text import public
from .columns import (
    CELL,
    FAILED,
    MEASUREMENT,
    NUMBERS,
    PLAN,
    STATUSES,
    arrow_schema,
    impossible,
    same_number,
)

if TYPE_CHECKING:
    import pyarrow as pa

RUNS, MEASURED, NETS = "runs", "measured", "nets"
DESCRIPTION, PLANNED = "run.json", "plan.parquet"
LAST_DATABASE = "0.32"
"""Newest version of sdp-bench that reads results files in SQLite and exported tables."""

_NAME = re.compile(r"[\w.-]+-([0-9a-f]{16})\.(parquet|safetensors)")
_MANY = 100
"""Files of groups that are joined during a run: a small file takes milliseconds to read."""


@dataclass(frozen=True)
class LeftOut:
    """What a run did not try, and why.

    `rule` is a spec, None for a whole experiment. `where` names the nets, noise or experiment.
    """

    rule: str | None
    where: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", public(on_one_line(self.reason)))


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run.

    `id` begins with the start. `started` and `finished` are ISO 8601 in UTC; an interrupted run is not
    finished. `command` and `preset` are as the user gave them. `environment` holds processor, versions and
    commit, and `code` is the hash of the code that measures. `folder` holds the run.
    """

    id: str
    started: str
    finished: str | None
    seconds: float | None
    command: str
    preset: str
    settings: Mapping[str, Any]
    experiments: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    environment: Mapping[str, Any]
    code: str
    plan_sha256: str
    folder: Path


def new_run(folder: Path, plan: pd.DataFrame, nets: Mapping[str, bytes], **described: Any) -> Run:
    """Record what a run is about to do.

    `plan` has the columns of :data:`PLAN`, `nets` are files by digest, and `described` are the other fields
    of a :class:`Run`. Raises RunFailedError if the folder cannot be written.
    """
    refuse_other_results(folder)
    now = datetime.now(UTC)
    start = now.strftime("%Y%m%dT%H%M%S") + f"{now.microsecond // 1000:03d}"
    number = f"{start}-{secrets.token_hex(2)}"
    run = Run(
        id=number,
        started=now.isoformat(timespec="seconds"),
        finished=None,
        seconds=None,
        plan_sha256="",
        folder=folder,
        **described,
    )
    for digest, content in nets.items():
        write_net(folder, digest, content)
    return write_run(run, plan)


def write_run(run: Run, plan: pd.DataFrame) -> Run:
    """Write a run with its plan, and return it with the digest of the plan."""
    content = _parquet(_table(plan, PLAN))
    files.write(run.folder / RUNS / run.id / PLANNED, content)
    run = replace(run, plan_sha256=_sha256(content))
    _write_description(run)
    return run


def write_net(folder: Path, digest: str, content: bytes) -> None:
    """Write a net's file unless it exists with this content."""
    path = folder / NETS / f"{digest}-{_sha256(content)[:16]}.safetensors"
    if not (path.is_file() and path.read_bytes() == content):
        files.write(path, content)


def _write_description(run: Run) -> None:
    values = {**asdict(run), "folder": None}
    del values["folder"]
    values["sha256"] = _sha256(json.dumps(values, sort_keys=True).encode())
    files.write(run.folder / RUNS / run.id / DESCRIPTION, json.dumps(values, indent=1))


class Writer:
    """Writes the measurements of a run: a file for each group, which are joined into few during the run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._joined: list[Path] = []
        self._groups: dict[Path, pa.Table] = {}

    def write(self, group: str, measurements: pd.DataFrame) -> None:
        """Write the measurements of a group; raises RunFailedError if the folder cannot be written."""
        table = _table(measurements.assign(run=self.run.id), MEASUREMENT)
        self._groups[_write_table(self.run.folder, group, table)] = table
        if len(self._groups) == _MANY:
            self._joined.append(self._join(self._groups))
            self._groups = {}

    def finish(self, seconds: float) -> None:
        """Make the files of the run one file, and add its end to its description."""
        tables = {}
        for path in self._joined:
            # A file that was damaged meanwhile stays as it is, and readers report it.
            with suppress(OSError, ValueError):
                tables[path] = _checked_table(path)
        tables |= self._groups
        if len(tables) > 1:
            self._join(tables)
        end = datetime.now(UTC).isoformat(timespec="seconds")
        self.run = replace(self.run, finished=end, seconds=seconds)
        _write_description(self.run)

    def _join(self, tables: Mapping[Path, pa.Table]) -> Path:
        """Write tables to one file, and remove theirs."""
        import pyarrow as pa

        table = pa.concat_tables(tables.values()).unify_dictionaries().combine_chunks()
        path = _write_table(self.run.folder, self.run.id, table)
        with files.writing(path):
            for old in tables:
                if old != path:
                    old.unlink(missing_ok=True)
        return path


def write_measurements(folder: Path, name: str, measurements: pd.DataFrame) -> Path:
    """Write measurements, with the columns of :data:`MEASUREMENT`, to a new file and return its path."""
    return _write_table(folder, name, _table(measurements, MEASUREMENT))


def _write_table(folder: Path, name: str, table: pa.Table) -> Path:
    content = _parquet(table)
    return files.write(folder / MEASURED / f"{name}-{_sha256(content)[:16]}.parquet", content)


def _table(frame: pd.DataFrame, columns: Mapping[str, str]) -> pa.Table:
    import pyarrow as pa

    table = pa.Table.from_pandas(frame[[*columns]], arrow_schema(columns), preserve_index=False)
    return table.replace_schema_metadata()


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    # Dictionaries pay for repeated values; these are mostly distinct.
    coded = [name for name in table.column_names if name not in ("value", "floor", "floor95")]
    file = io.BytesIO()
    pq.write_table(
        table, file, compression="zstd", compression_level=12, use_dictionary=coded, store_schema=False
    )
    return file.getvalue()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# Reading ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stored:
    """Results in one folder or several.

    `runs` are by number, the oldest first. `measurements` have the columns of
    :data:`sdp_bench.bench.results.columns.MEASUREMENT`, text as categories in alphabetical order; of several
    measurements of a cell they have the newest. `contradictions` is the number of cells where older ones of
    the same versions differ. `faults` are lines about files that were not read.
    """

    folders: tuple[Path, ...]
    runs: Mapping[str, Run]
    measurements: pd.DataFrame
    faults: tuple[str, ...]
    contradictions: int

    def run(self, number: str | None = None) -> Run:
        """Return a run, by default the newest; `number` may be a part of it that no other run has."""
        where = ", ".join(map(str, self.folders))
        if not self.runs:
            raise UserError(f"no run in {where}")
        if number is None:
            return self.runs[max(self.runs)]
        matches = [number] if number in self.runs else [known for known in self.runs if number in known]
        if len(matches) != 1:
            problem = f"'{number}' is part of {len(matches)} runs in" if matches else f"no run {number} in"
            raise UserError(f"{problem} {where}, which has {', '.join([*self.runs][-5:])}")
        return self.runs[matches[0]]

    def newest(self, folder: Path) -> str:
        """Return the id of the newest run in one of the folders."""
        present = [number for number in self.runs if (folder / RUNS / number).is_dir()]
        if not present:
            raise UserError(f"no run in {folder}")
        return max(present)

    @property
    def notes(self) -> list[str]:
        """Return lines about damage and contradictions, for the user."""
        lines = [*self.faults]
        if self.contradictions:
            lines.append(
                f"{self.contradictions} measurements differ between runs of the same versions; "
                "the newer ones count"
            )
        return lines


def read(*folders: Path, columns: Collection[str] = tuple(MEASUREMENT)) -> Stored:
    """Read results; `columns` are those of measurements.

    A damaged file is described in `Stored.faults` and left out. Raises UserError if a folder does not exist
    or is not one of results.
    """
    faults: list[str] = []
    runs: dict[str, Run] = {}
    tables: dict[Path, pa.Table] = {}
    needed = [name for name in MEASUREMENT if name in columns or name in _CHECKED]
    for folder in folders:
        if not folder.exists():
            raise UserError(f"no results at {folder}; `sdp-bench run` makes them (or give --database)")
        refuse_other_results(folder)
        if not _may_hold_results(folder):
            raise UserError(f"{folder} is not a folder of results: it has neither {RUNS} nor {MEASURED}")
        for run in _runs(folder, faults):
            if run.id not in runs or run.finished:
                runs[run.id] = run
        tables |= _tables(folder, needed, faults)
    measurements = _possible(_frame([*tables.values()], needed), tables, faults)
    contradictions = 0
    if len(tables) > 1:  # a run measures a cell once
        measurements, contradictions = _newest(measurements)
    if len(columns) < len(needed):
        measurements = measurements[[*columns]]
    return Stored(folders, dict(sorted(runs.items())), measurements, tuple(faults), contradictions)


def _may_hold_results(folder: Path) -> bool:
    """Whether a folder has parts of results, or is empty, as at the start of a first run."""
    if not folder.is_dir():
        return False
    if any((folder / part).is_dir() for part in (RUNS, MEASURED, NETS)):
        return True
    return all(path.name.startswith(".") for path in folder.iterdir())  # .gitkeep, .DS_Store


def refuse_other_results(path: Path) -> None:
    """Raise UserError for a results file or an export of an older version, or another file."""
    if path.is_file():
        with files.reading(path), path.open("rb") as file:
            is_database = file.read(15) == b"SQLite format 3"
        if not is_database:
            raise UserError(f"{path} is a file; results are a folder")
    elif not (path / "records.parquet").exists() and not (path / "records.csv").exists():
        return
    raise UserError(
        f"{path} has results of sdp-bench {LAST_DATABASE} or older, and that version reads them "
        f"(pip install sdp-bench=={LAST_DATABASE}); this one keeps results in a folder, give a new one"
    )


def read_plan(run: Run, columns: Sequence[str] = tuple(PLAN)) -> pd.DataFrame:
    """Read the plan of a run; raises RunFailedError if it is damaged."""
    return _frame([_plan_table(run, columns)], columns)


def read_plans(runs: Sequence[Run], columns: Sequence[str]) -> pd.DataFrame:
    """Read some columns of the plans of several runs, with the position of the run from 1 as `age`."""
    tables = [_plan_table(run, columns) for run in runs]
    age = np.repeat(np.arange(1, len(tables) + 1), [len(table) for table in tables])
    return _frame(tables, columns).assign(age=age)


def _plan_table(run: Run, columns: Sequence[str]) -> pa.Table:
    try:
        return _read_table(_plan_content(run), PLAN, columns)
    except (OSError, ValueError) as error:
        path = run.folder / RUNS / run.id / PLANNED
        raise RunFailedError(f"{path} is damaged: {error}; measure again") from error


def net_of(folders: Iterable[Path], digest: str) -> bytes | None:
    """Return the file of a net, or None if no file has the digest of its name."""
    for folder in folders:
        for path in sorted((folder / NETS).glob(f"{digest}-*.safetensors")):
            if path.is_file():
                content = path.read_bytes()
                if _sha256(content)[:16] == path.stem.rpartition("-")[2]:
                    return content
    return None


def damaged_nets(folder: Path) -> list[str]:
    """Return a line for each file of a net with another content than its name says."""
    lines = []
    for path in sorted((folder / NETS).glob("[!.]*")):
        try:
            _content(path, "safetensors")
        except (OSError, ValueError) as error:
            lines.append(f"{path} is left out: {_reason(error)}; delete it")
    return lines


def _runs(folder: Path, faults: list[str]) -> Iterator[Run]:
    for path in sorted((folder / RUNS).glob(f"*/{DESCRIPTION}")):
        try:
            yield _run(path, folder)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            faults.append(f"{path} is damaged, the run is left out: {_reason(error)}")


_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "started": str,
    "finished": (str, type(None)),
    "seconds": (int, float, type(None)),
    "command": str,
    "preset": str,
    "settings": dict,
    "environment": dict,
    "code": str,
    "plan_sha256": str,
}
"""Types of the fields of a description."""


def _run(path: Path, folder: Path) -> Run:
    """Read a run; raises an error if its description or its plan is not what was written."""
    _check_regular(path)
    values = files.read_json(path)
    digest = values.pop("sha256")
    if _sha256(json.dumps(values, sort_keys=True).encode()) != digest:
        raise ValueError("its content is not what was written")
    if values["id"] != path.parent.name:
        raise ValueError(f"it describes the run {values['id']}")
    for name, kind in _KINDS.items():
        if not isinstance(values[name], kind):
            raise ValueError(f"{name} is {values[name]!r}")
    for name in ("started", "finished"):
        datetime.fromisoformat(values[name] or values["started"])
    values["left_out"] = tuple(LeftOut(**line) for line in values["left_out"])
    values["experiments"] = tuple(map(str, values["experiments"]))
    run = Run(**values, folder=folder)
    _plan_content(run)
    return run


def _plan_content(run: Run) -> bytes:
    path = run.folder / RUNS / run.id / PLANNED
    _check_regular(path)
    content = path.read_bytes()
    if _sha256(content) != run.plan_sha256:
        raise ValueError(f"{PLANNED} is not what was written")
    return content


def _tables(folder: Path, columns: Sequence[str], faults: list[str]) -> dict[Path, pa.Table]:
    """Read all files of measurements.

    Another process may join small files into one meanwhile. The listing is repeated until it has no new name:
    one that was made during that may have neither.
    """
    tables: dict[Path, pa.Table] = {}
    seen: set[Path] = set()
    while new := sorted(set((folder / MEASURED).glob("[!.]*")) - seen):
        seen.update(new)
        for path in new:
            try:
                tables[path] = _checked_table(path, columns)
            except FileNotFoundError as error:
                if path.is_symlink():
                    faults.append(f"{path} is left out: {_reason(error)}; delete it")
            except (OSError, ValueError) as error:
                faults.append(f"{path} is left out: {_reason(error)}; delete it")
    return tables


def _reason(error: BaseException) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return on_one_line(reason if not isinstance(error, KeyError) else f"it has no {reason}")


def _check_regular(path: Path) -> None:
    """Raise an OSError or ValueError for what is not a file; reading a pipe could block forever."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")


def _content(path: Path, kind: str) -> bytes:
    """Read a file; a ValueError is raised unless its content has the digest in its name."""
    name = _NAME.fullmatch(path.name)
    if name is None or name[2] != kind:
        raise ValueError("it is not a file of sdp-bench")
    _check_regular(path)
    content = path.read_bytes()
    if not _sha256(content).startswith(name[1]):
        raise ValueError("its content is damaged")
    return content


_CHECKED = (*CELL, "component", "fingerprint", "run", "status", *NUMBERS)
"""Columns that decide which measurements count."""
_REQUIRED = (*CELL, "rule_label", "marginal", "reference", "rank", "fingerprint", "run", "status")
"""Columns without missing values."""


def _checked_table(path: Path, columns: Sequence[str] = tuple(MEASUREMENT)) -> pa.Table:
    table = _read_table(_content(path, "parquet"), MEASUREMENT, columns)
    for name in _REQUIRED:
        if name in columns and table[name].null_count:
            raise ValueError(f"it has a row without {name}")
    for chunk in table["status"].chunks:
        if unknown := set(chunk.dictionary.to_pylist()) - set(STATUSES):
            raise ValueError(f"unknown status {unknown.pop()!r}")
    return table


def _possible(frame: pd.DataFrame, tables: Mapping[Path, pa.Table], faults: list[str]) -> pd.DataFrame:
    """Leave out files with impossible numbers; `frame` has the rows of all tables in their order."""
    wrong = impossible(frame[frame["status"] == "measured"])
    wrong = wrong[wrong != ""]
    if wrong.empty:
        return frame
    ends = np.cumsum([table.num_rows for table in tables.values()])
    file_of_row = np.searchsorted(ends, np.arange(len(frame)), side="right")
    reasons = wrong.groupby(file_of_row[wrong.index]).first()
    paths = [*tables]
    for number, reason in zip(reasons.index.to_numpy(), reasons, strict=True):
        faults.append(f"{paths[number]} is left out: {reason}; delete it")
    return frame[~np.isin(file_of_row, reasons.index)].reset_index(drop=True)


def _read_table(content: bytes, schema: Mapping[str, str], columns: Sequence[str]) -> pa.Table:
    """Read columns of a table; a ValueError is raised unless it has those of the schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [name for name, kind in schema.items() if kind == "text"]
    try:
        metadata = pq.read_metadata(pa.BufferReader(content))
        names = metadata.schema.names
        if missing := [name for name in schema if names.count(name) != 1]:
            raise ValueError(f"it has no column {missing[0]}, or several")
        file = pq.ParquetFile(pa.BufferReader(content), metadata=metadata, read_dictionary=texts)
        table = file.read(columns=[*columns]).select([*columns])
        table = table.cast(arrow_schema({name: schema[name] for name in columns}))
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"it cannot be read: {error}") from error
    return table


def _frame(tables: Sequence[pa.Table], columns: Collection[str] = tuple(MEASUREMENT)) -> pd.DataFrame:
    """Convert tables to a frame with text as categories in alphabetical order."""
    import pyarrow as pa

    known = {**PLAN, **MEASUREMENT}
    if not tables:
        tables = [arrow_schema({name: known[name] for name in columns}).empty_table()]
    table = pa.concat_tables(tables).unify_dictionaries()
    frame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    for name in frame.select_dtypes("category"):
        column = frame[name].cat
        frame[name] = column.reorder_categories(pd.Index(sorted(column.categories), dtype=object))
    return frame


def cells(frame: pd.DataFrame) -> np.ndarray:
    """Return a number for each unit, rule and metric, given as categories."""
    number = np.zeros(len(frame), dtype=np.int64)
    for name in CELL:
        column = frame[name].cat
        number = number * (len(column.categories) + 1) + column.codes.to_numpy()
    return number


def _newest(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return the newest measurements of each cell, and how many cells have older ones that contradict them.

    A failure does not replace a measurement of the same versions.
    """
    if frame["run"].cat.categories.size < 2:
        return _distinct(frame), 0
    cell = cells(frame)
    versions = frame["fingerprint"].cat.codes.to_numpy()
    failed = (frame["status"] == FAILED).to_numpy()
    known = pd.MultiIndex.from_arrays([cell[~failed], versions[~failed]])
    outdone = np.zeros(len(frame), bool)
    outdone[failed] = pd.MultiIndex.from_arrays([cell[failed], versions[failed]]).isin(known)
    age = np.where(outdone, -1, frame["run"].cat.codes.to_numpy())
    _, number = np.unique(cell, return_inverse=True)  # cells numbered without gaps
    latest = np.full(number.max(initial=-1) + 1, -1)
    np.maximum.at(latest, number, age)
    kept = age == latest[number]
    is_measured = (frame["status"] == "measured").to_numpy()
    contradictions = _contradictions(frame[kept & is_measured], frame[~kept & is_measured])
    return _distinct(frame[kept]), contradictions


def _distinct(frame: pd.DataFrame) -> pd.DataFrame:
    """Drop rows that are in two files, since a run was killed while it joined them."""
    names = [*CELL, "component", "fingerprint", "run", "status"]
    codes = pd.DataFrame({name: frame[name].cat.codes for name in names})
    return frame[~codes.duplicated().to_numpy()].reset_index(drop=True)


def _contradictions(newer: pd.DataFrame, older: pd.DataFrame) -> int:
    """Return the number of cells with older values that differ from those that count."""
    names = [*CELL, "component", "fingerprint"]
    both = newer[[*names, *NUMBERS]].merge(older[[*names, *NUMBERS]], on=names, suffixes=("", "_older"))
    both = both[both["value"] != both["value_older"]]
    numbers = both[["value", "value_older", "stderr"]].to_numpy(float).tolist()
    differ = [not same_number(value, older, stderr) for value, older, stderr in numbers]
    return len(both[differ].drop_duplicates(CELL))
