"""Results between machines: files merged, exported to plain tables, imported again."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import lzma
import operator
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pandas as pd

from sdp_bench.bench import files
from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.results import migration, schema
from sdp_bench.bench.results.checksums import Row
from sdp_bench.bench.results.store import Store

if TYPE_CHECKING:
    from _csv import Reader, Writer

_ROUNDED = ("stderr", "seconds")
_KEPT = {"value": 10, "floor": 10, "floor95": 10}
"""Digits of what is compared, more than :func:`~sdp_bench.bench.results.record.same_number` looks at."""
MANIFEST = "manifest.json"

_Write = Callable[[Path, Sequence[str], Iterator[Row]], int]
_Read = Callable[[Path, Mapping[str, schema.Column]], Iterator[Row]]
_BATCH = 50_000
"""Rows of a parquet file, or of columns, that are written or read together."""


def merge(sources: Sequence[Path], target: Path) -> int:
    """Put the results of several files into a new one.

    Parameters
    ----------
    sources : sequence of Path
    target : Path
        Of the new file.

    Returns
    -------
    int
        Number of measurements in it.

    Raises
    ------
    UserError
        If `target` exists, or two files differ in a measurement.
    RunFailedError
        If one is damaged.
    """
    if target.exists():
        raise UserError(f"{target} exists; merge writes a new file")
    temporary = target.with_name(f".{target.name}.merging")
    temporary.unlink(missing_ok=True)
    try:
        count = 0
        with Store(temporary, writing=True) as merged:
            for source in sources:
                with Store(source) as store:
                    try:
                        count += merged.add(store.contents())
                    except RunFailedError:  # which names its file
                        raise
                    except UserError as error:
                        raise UserError(f"{source}: {error}") from error
        if temporary.exists():
            temporary.replace(target)
        return count
    finally:
        for leftover in target.parent.glob(f".{target.name}.merging*"):
            leftover.unlink()


def export(
    store: Store, folder: Path, fmt: str = "csv", *, weights: bool = True, digits: int | None = None
) -> list[Path]:
    """Write a results file as plain tables with a manifest of what they are.

    Runs that were cut off before they measured anything are left out, and what only these asked about.

    Parameters
    ----------
    store : Store
    folder : Path
        Made if it is not there. An export that is there is replaced when the new one is whole.
    fmt : {"csv", "csv.xz", "columns.xz", "parquet"}
        All but the last need no library to read. "columns.xz" is the smallest, three fifths of "csv.xz",
        because what is alike stands together. A line of it is a column, its name first, of 50 000 rows or of
        what is left; the columns follow each other, and begin again for the next rows.
    weights : bool
        Keep the nets' weights, as hexadecimal text; without them a measurement cannot be replayed.
    digits : int, optional
        Significant digits of standard errors and seconds, which take most of the room and are known to few;
        by default all. Values and floors then keep ten, which is nearer than numbers have to agree.

    Returns
    -------
    list of Path
        Files that were written, the manifest last.

    Raises
    ------
    UserError
        If the format is unknown.
    RunFailedError
        If the folder cannot be written, or the results file is damaged.
    """
    if fmt not in FORMATS:
        raise UserError(f"unknown format '{fmt}'; choose from {', '.join(FORMATS)}")
    write, _ = FORMATS[fmt]
    with files.replacing_all(folder, _OURS, MANIFEST) as new:
        names = {name: f"{name}.{fmt}" for name in schema.TABLES}
        idle = store.idle()
        contents = {name: _without(rows, idle.get(name, ())) for name, rows in store.contents().items()}
        contents["nets"] = _plain(contents["nets"], weights)
        if digits is not None:
            contents["records"] = _rounded(contents["records"], digits)
        rows = {
            name: write(new / file, list(schema.columns()[name]), contents[name])
            for name, file in names.items()
        }
        manifest = {
            "schema": schema.EXPORTED,
            "sha256": {file: _sha256(new / file) for file in names.values()},
            "rows": rows,
            "runs": [asdict(store.run(number)) for number in store.runs() if number not in idle["runs"]],
        }
        (new / MANIFEST).write_bytes(json.dumps(manifest, indent=1).encode())
    return [folder / file for file in (*names.values(), MANIFEST)]


def import_(folder: Path, store: Store) -> int:
    """Put what :func:`export` wrote into a results file.

    Parameters
    ----------
    folder : Path
    store : Store
        Open for writing.

    Returns
    -------
    int
        Number of measurements that were new.

    Raises
    ------
    UserError
        If the folder is no export, is damaged, is of a schema that is not read, or differs from what is here.
    """
    manifest = _Manifest.of(folder)
    rows = {name: manifest.rows_of(name) for name in migration.expected(manifest.version)[0]}
    old = manifest.version == migration.SCHEMA
    with migration.migrated(rows) if old else nullcontext(rows) as todays:
        return store.add(todays)


def digest(folder: Path) -> str:
    """Hash of what :func:`export` wrote, whose files have the checksums that its manifest names.

    Parameters
    ----------
    folder : Path

    Returns
    -------
    str
        Of 64 hexadecimal digits.

    Raises
    ------
    UserError
        If they have not, or it is no such folder.
    """
    _Manifest.of(folder)
    return _sha256(folder / MANIFEST)


@contextmanager
def opened(folder: Path) -> Iterator[Store]:
    """A results file of what :func:`export` wrote, for as long as the block runs.

    Yields
    ------
    Store

    Raises
    ------
    UserError
        As :func:`import_`.
    """
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "results.sqlite"
        with Store(path, writing=True) as store:
            import_(folder, store)
            yield store


@dataclass(frozen=True)
class _Manifest:
    """What an export says of itself: its schema, and format and number of rows of each table."""

    folder: Path
    version: int
    formats: Mapping[str, str]
    rows: Mapping[str, int]

    @classmethod
    def of(cls, folder: Path) -> _Manifest:
        """That of a folder whose files have the checksums that it names."""
        try:
            manifest = files.read_json(folder / MANIFEST)
            version = operator.index(manifest["schema"])
            sums, rows = dict(manifest["sha256"]), dict(manifest["rows"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{folder} is not a folder of exported results (no {MANIFEST})") from error
        if version < migration.SCHEMA:
            raise UserError(f"{folder} has schema {version}, which this version cannot read")
        if version > schema.EXPORTED:
            raise UserError(
                f"{folder} has schema {version}, newer than this version's {schema.EXPORTED}; "
                "update sdp-bench"
            )
        expected = set(migration.expected(version)[0])
        formats = {name: fmt for name, _, fmt in (file.partition(".") for file in sums)}
        if missing := expected - set(formats):
            raise UserError(f"{folder} lacks the tables {', '.join(sorted(missing))}")
        if len(formats) < len(sums) or set(formats) != expected or not set(formats.values()) <= set(FORMATS):
            raise UserError(f"{folder / MANIFEST} names files that are none of an export")
        for file, checksum in sums.items():
            if _sha256(folder / file) != checksum:
                raise UserError(f"{folder / file} is damaged: its checksum is not the manifest's")
        return cls(folder, version, formats, rows)

    def rows_of(self, name: str) -> Iterator[Row]:
        """Rows of a table, in the order of the columns of its schema."""
        fmt = self.formats[name]
        path = self.folder / f"{name}.{fmt}"
        columns = schema.columns(migration.expected(self.version)[1])[name]
        added = migration.added(self.version).get(name)
        _, read = FORMATS[fmt]
        count = 0
        try:
            for row in read(path, {key: each for key, each in columns.items() if key != added}):
                count += 1
                yield (*row, None) if added else row  # the last column
        except _unreadable() as error:
            raise UserError(f"{path} is damaged: {' '.join(str(error).split())}") from error
        if count != self.rows.get(name):
            raise UserError(f"{path} has {count} rows, and {self.rows.get(name)} by {MANIFEST}")


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def _without(rows: Iterator[Row], keys: Collection[str | int]) -> Iterator[Row]:
    """Rows of a table but for those that begin with one of some keys."""
    return (row for row in rows if row[0] not in keys) if keys else rows


def _rounded(rows: Iterator[Row], digits: int) -> Iterator[Row]:
    """Measurements with fewer digits where these are noise."""
    names = list(schema.columns()["records"])
    kept = _KEPT | dict.fromkeys(_ROUNDED, digits)
    places = [(names.index(name), count) for name, count in kept.items()]
    for row in rows:
        known = list(row)
        for place, count in places:
            if known[place] is not None:
                known[place] = float(f"{known[place]:.{count}g}")
        yield tuple(known)


def _plain(rows: Iterator[Row], weights: bool) -> Iterator[Row]:
    """Nets without what is no text or number: weights as hexadecimal text, or none."""
    for *row, content in rows:
        yield (*row, content.hex() if weights and content is not None else None)


def _write_csv(path: Path, columns: Sequence[str], rows: Iterator[Row]) -> int:
    count = 0
    with _text(path, "wt") as file:
        writer = _writer(file)  # floats as their shortest exact text
        writer.writerow(columns)
        for count, row in enumerate(rows, 1):  # noqa: B007  the last one is the number of rows
            writer.writerow(row)
    return count


def _read_csv(path: Path, columns: Mapping[str, schema.Column]) -> Iterator[Row]:
    with _text(path, "rt") as file:
        reader = _reader(file)
        header = next(reader, [])
        _check_names(header, columns)
        order = operator.itemgetter(*(header.index(name) for name in columns))
        # An empty text is a value only where there must be one.
        converters = [
            (place, _FROM_TEXT[column.kind], column.required)
            for place, column in enumerate(columns.values())
            if column.kind != "TEXT" or not column.required
        ]
        for texts in reader:
            if len(texts) != len(header):
                raise ValueError(f"line {reader.line_num} has {len(texts)} values in place of {len(header)}")
            row: list[Any] = list(order(texts))
            for place, convert, required in converters:
                text = row[place]
                row[place] = convert(text) if text or required else None
            yield tuple(row)


def _write_columns(path: Path, columns: Sequence[str], rows: Iterator[Row]) -> int:
    count = 0
    with _text(path, "wt") as file:
        writer = _writer(file)
        for batch in _batches(rows):
            for name, values in zip(columns, zip(*batch, strict=True), strict=True):
                writer.writerow((name, *values))
            count += len(batch)
    return count


def _read_columns(path: Path, columns: Mapping[str, schema.Column]) -> Iterator[Row]:
    with _text(path, "rt") as file:
        lines = _reader(file)
        while block := list(itertools.islice(lines, len(columns))):
            texts = {line[0]: line[1:] for line in block if line}
            _check_names(texts, columns)
            yield from zip(*(_values(texts[name], column) for name, column in columns.items()), strict=True)


def _values(texts: Sequence[str], column: schema.Column) -> list[Any]:
    convert = _FROM_TEXT[column.kind]
    if column.required:
        return list(map(convert, texts))
    return [convert(text) if text else None for text in texts]


def _check_names(found: Collection[str], columns: Collection[str]) -> None:
    if sorted(found) != sorted(columns):
        raise ValueError(f"its columns are {', '.join(found)}")


def _writer(file: TextIO) -> Writer:
    """One whose lines end as RFC 4180 has it; Python puts a text in quotes for what ends a line only."""
    return csv.writer(file, lineterminator="\r\n")


def _reader(file: TextIO) -> Reader:
    csv.field_size_limit(sys.maxsize)  # of weights
    return csv.reader(_without_nul(file), strict=True)


def _text(path: Path, mode: str) -> TextIO:
    if path.suffix == ".xz":
        preset = 9 | lzma.PRESET_EXTREME if mode == "wt" else None
        return lzma.open(path, mode, preset=preset, encoding="utf-8", newline="")  # type: ignore[return-value]
    return path.open(mode, encoding="utf-8", newline="")  # type: ignore[return-value]


def _without_nul(lines: TextIO) -> Iterator[str]:
    for line in lines:
        if "\0" in line:
            raise ValueError("it has a character NUL")
        yield line


_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "TEXT": str,
    "INTEGER": int,
    "REAL": float,
    "BLOB": bytes.fromhex,
}


def _write_parquet(path: Path, columns: Sequence[str], rows: Iterator[Row]) -> int:
    pq = _parquet()
    import pyarrow as pa

    table = schema.columns()[path.name.partition(".")[0]]
    types = {name: _PANDAS[table[name].kind] for name in columns}
    empty = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in types.items()})
    fields = pa.Schema.from_pandas(empty, preserve_index=False)
    count = 0
    with pq.ParquetWriter(path, fields, compression="zstd") as writer:
        for batch in _batches(rows):
            arrays = [
                pa.array(values, field.type)
                for values, field in zip(zip(*batch, strict=True), fields, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=fields))
            count += len(batch)
    return count


_PANDAS = {"TEXT": "string", "INTEGER": "Int64", "REAL": "float64", "BLOB": "string"}


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _read_parquet(path: Path, columns: Mapping[str, schema.Column]) -> Iterator[Row]:
    with _parquet().ParquetFile(path) as file:
        _check_names(file.schema_arrow.names, columns)
        for batch in file.iter_batches(_BATCH):
            values = [batch.column(name).to_pylist() for name in columns]
            for row in zip(*values, strict=True):
                yield (*row[:-1], bytes.fromhex(row[-1])) if "weights" in columns and row[-1] else row


def _unreadable() -> tuple[type[Exception], ...]:
    """What the libraries raise that read a damaged table."""
    known = (ValueError, OSError, EOFError, csv.Error, lzma.LZMAError)
    loaded = sys.modules.get("pyarrow")
    return (*known, loaded.ArrowException) if loaded else known


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UserError("parquet needs the package pyarrow (extra 'parquet')") from error
    return pyarrow.parquet


FORMATS: dict[str, tuple[_Write, _Read]] = {
    "csv": (_write_csv, _read_csv),
    "csv.xz": (_write_csv, _read_csv),
    "columns.xz": (_write_columns, _read_columns),
    "parquet": (_write_parquet, _read_parquet),
}
_OURS = (*(f"{name}.{fmt}" for name in schema.TABLES for fmt in FORMATS), MANIFEST)
