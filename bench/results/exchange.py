"""Results between machines: merging, exports as tables in Parquet or CSV, and comparison of two files."""

from __future__ import annotations

import hashlib
import json
import math
import operator
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .. import files
from ..errors import RunFailedError, UserError
from ..files import writing
from . import schema, tables
from .queries import Queries
from .store import Store, check_version
from .tables import called, differing, matched

if TYPE_CHECKING:
    import pyarrow as pa


MANIFEST = "manifest.json"

_FEW = ("stderr", "seconds")
"""Columns of records that `--digits` rounds."""
_TEN = ("value", "floor", "floor95")
"""Columns that keep ten digits then, more than results must agree in (`record.same_number`)."""


def merge(sources: Sequence[Path], target: Path, on_replaced: Callable[[int], object] = bool) -> int:
    """Put the results of several files into a new one, and return its number of measurements.

    If files have different versions of a measurement, the newest counts, and `on_replaced` is called with the
    number of replaced ones. Raises UserError if `target` exists or two files differ in a measurement of the
    same versions, and RunFailedError if a file is damaged.
    """
    prefix = f".{target.name}.merging-"
    with writing(target):
        if target.exists():
            raise UserError(f"{target} exists; merge writes a new file")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as folder:
            temporary = Path(folder) / "merged.sqlite"
            with Store(temporary, writing=True) as merged:
                for source in sources:
                    with Store(source) as store:
                        others = store.tables()
                    try:
                        merged.add(others, on_replaced)
                    except RunFailedError:
                        raise
                    except UserError as error:
                        raise UserError(f"{source}: {error}") from error
                count = len(merged.table("records"))
            temporary.replace(target)
            return count


def export(
    results: Queries, folder: Path, fmt: str = "csv", *, weights: bool = True, digits: int | None = None
) -> list[Path]:
    """Write results as tables in a folder, with a manifest, and return the paths of the files.

    The format is "csv" or "parquet". Runs that were cut off before they measured anything are left out.
    Without `weights` of the nets, measurements cannot be replayed. `digits` is the number of significant
    digits of standard errors and seconds, which take most of the space; values and floors then have ten, and
    Parquet stores them as decimal text, which is exact and much smaller than binary numbers.

    An existing export in the folder is replaced when the new one is complete. Raises RunFailedError if the
    folder cannot be written, or the results are damaged.
    """
    if fmt not in FORMATS:
        raise UserError(f"unknown format '{fmt}'; choose from {', '.join(FORMATS)}")
    write, _ = FORMATS[fmt]
    contents = dict(results.without_idle_runs())
    if not weights:
        contents["nets"] = contents["nets"].assign(weights=None)
    if digits is not None:
        contents["records"] = _rounded(contents["records"], digits)
    with files.replacing_all(folder, _OURS, MANIFEST) as new:
        names = {name: f"{name}.{fmt}" for name in schema.TABLES}
        for name, file in names.items():
            write(new / file, name, contents[name], digits is not None)
        manifest = {
            "schema": schema.SCHEMA,
            "sha256": {file: _sha256(new / file) for file in names.values()},
            "rows": {name: len(contents[name]) for name in names},
        }
        (new / MANIFEST).write_bytes(json.dumps(manifest, indent=1).encode())
    return [folder / file for file in (*names.values(), MANIFEST)]


class Export(Queries):
    """Results as :func:`export` wrote them to a folder.

    Raises UserError if the folder is not an export, is damaged, or has another schema.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        sums, rows = _manifest(folder)
        self._tables: dict[str, pd.DataFrame] = {}
        for file in sums:
            name, _, fmt = file.partition(".")
            path = folder / file
            if _sha256(path) != sums[file]:
                raise UserError(f"{path} is damaged: its checksum is not the one in {MANIFEST}")
            self._tables[name] = _read(path, name, fmt)
            if len(self._tables[name]) != rows.get(name):
                raise UserError(
                    f"{path} has {len(self._tables[name])} rows, and {rows.get(name)} according to {MANIFEST}"
                )
        try:
            tables.check_all(self._tables)
        except ValueError as error:
            raise UserError(f"{folder} is damaged: {error}") from error

    def table(self, name: str) -> pd.DataFrame:
        return self._tables[name]


@contextmanager
def opened(path: Path) -> Iterator[Queries]:
    """Open a results file or the folder of an export for reading."""
    if path.is_dir():
        yield Export(path)
    else:
        with Store(path) as store:
            yield store


def _manifest(folder: Path) -> tuple[Mapping[str, str], Mapping[str, int]]:
    """Checksums by file, and rows by table."""
    try:
        manifest = files.read_json(folder / MANIFEST)
        version = operator.index(manifest["schema"])
        sums, rows = dict(manifest["sha256"]), dict(manifest["rows"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder} is not a folder of exported results (no valid {MANIFEST})") from error
    check_version(folder, version)
    known = {f"{name}.{fmt}": name for name in schema.TABLES for fmt in FORMATS}
    if missing := set(schema.TABLES) - {known.get(file) for file in sums}:
        raise UserError(f"{folder} lacks the tables {', '.join(sorted(missing))}")
    if len(sums) != len(schema.TABLES):
        raise UserError(f"{folder / MANIFEST} names files that do not belong to an export")
    return sums, rows


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def _rounded(records: pd.DataFrame, digits: int) -> pd.DataFrame:
    """Round numbers to significant digits: `digits` where more are noise, ten for the others."""
    rounded = records.copy()
    for name, count in {**dict.fromkeys(_FEW, digits), **dict.fromkeys(_TEN, 10)}.items():
        rounded[name] = [float(f"{number:.{count}g}") for number in records[name]]
    return rounded


def _read(path: Path, name: str, fmt: str) -> pd.DataFrame:
    import pyarrow as pa

    expected = tables.arrow_schema(name)
    try:
        table = FORMATS[fmt][1](path, name)
        if sorted(table.column_names) == sorted(expected.names):
            columns = [_cast(table.column(field.name), field.type) for field in expected]
            return tables.from_arrow(pa.Table.from_arrays(columns, names=expected.names))
    except (ValueError, OSError, pa.ArrowException) as error:
        raise UserError(f"{path} is damaged: {' '.join(str(error).split())}") from error
    raise UserError(f"{path} is damaged: its columns are {', '.join(table.column_names)}")


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert text to a number; a dictionary of texts stays one."""
    import pyarrow as pa

    return column if pa.types.is_dictionary(column.type) and pa.types.is_string(kind) else column.cast(kind)


def _write_parquet(path: Path, name: str, frame: pd.DataFrame, compact: bool) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = tables.to_arrow(name, frame)
    coded = set(table.column_names)
    if name == "records":
        coded -= {"unit", "run", *_TEN}  # nearly sorted, or mostly distinct: smaller without a dictionary
        for column in _TEN if compact else ():
            place = table.column_names.index(column)
            table = table.set_column(place, column, table.column(column).cast(pa.string()))
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=19 if compact else 3,  # 19 takes a minute for 800 000 measurements
        use_dictionary=sorted(coded),
        row_group_size=max(1, len(table)),
    )


def _read_parquet(path: Path, name: str) -> pa.Table:
    import pyarrow.parquet as pq

    texts = [column for column, described in schema.columns()[name].items() if described.kind == "TEXT"]
    return pq.read_table(path, read_dictionary=texts, partitioning=None)


def _write_csv(path: Path, name: str, frame: pd.DataFrame, _: bool) -> None:
    if name == "nets":
        frame = frame.assign(weights=frame["weights"].map(bytes.hex, na_action="ignore"))
    frame.to_csv(path, index=False, lineterminator="\r\n")  # floats as their shortest exact text


def _read_csv(path: Path, name: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv as pc

    # An empty text is missing where it may be; weights are longer than the default block.
    types = {
        field.name: pa.string() if field.type == pa.binary() else field.type
        for field in tables.arrow_schema(name)
    }
    optional = [column for column, described in schema.columns()[name].items() if not described.required]
    block = min(max(path.stat().st_size, 1 << 20), (1 << 31) - 1)
    convert = pc.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True)
    table = pc.read_csv(
        path, pc.ReadOptions(block_size=block), pc.ParseOptions(newlines_in_values=True), convert
    )
    for place, column in enumerate(table.column_names):
        if types.get(column) == pa.string() and column not in optional:
            table = table.set_column(place, column, table.column(column).fill_null(""))
        if column == "weights":
            content = [
                None if text is None else bytes.fromhex(text) for text in table.column(column).to_pylist()
            ]
            table = table.set_column(place, column, pa.array(content, pa.binary()))
    return table


_Write = Callable[[Path, str, pd.DataFrame, bool], None]
FORMATS: dict[str, tuple[_Write, Callable[[Path, str], pa.Table]]] = {
    "csv": (_write_csv, _read_csv),
    "parquet": (_write_parquet, _read_parquet),
}
_OURS = (*(f"{name}.{fmt}" for name in schema.TABLES for fmt in FORMATS), MANIFEST)


SHOWN = 20
"""Number of differences that are listed."""


@dataclass(frozen=True)
class Comparison:
    """Two results files compared.

    `equal` and `different` count the measurements in both, by `tables.differing`, and `fields` the
    differences by field. `largest` lists the largest ones: key, component, field, a, b, and the difference in
    units of the larger standard error (infinite if both are 0, or for text). `other_code` and `other_time`
    count measurements with other versions or another time of the rule, which is not a difference of the
    measurement. `only_a` and `only_b` are in one file only.
    """

    equal: int
    different: int
    fields: Counter[str]
    largest: pd.DataFrame
    other_code: int
    other_time: int
    only_a: int
    only_b: int


def compare(a: Queries, b: Queries) -> Comparison:
    """Compare two results files measurement by measurement."""
    left, right = a.table("records"), b.table("records")
    here, there = matched("records", left, right)
    old, new = left.iloc[here].reset_index(drop=True), right.iloc[there].reset_index(drop=True)
    fields = differing(old, new)
    different = int(fields.any(axis=1).sum())
    code = old["fingerprint"].astype(object) != new["fingerprint"].astype(object)
    time = (old["seconds"] != new["seconds"]) & (old["seconds"].notna() | new["seconds"].notna())
    counts = Counter({str(name): int(count) for name, count in fields.sum().items() if count})
    return Comparison(
        len(old) - different,
        different,
        counts,
        _largest(old, new, fields),
        int(code.sum()),
        int(time.sum()),
        len(left) - len(old),
        len(right) - len(new),
    )


def _largest(old: pd.DataFrame, new: pd.DataFrame, fields: pd.DataFrame) -> pd.DataFrame:
    """Return the largest differences, sorted by size and then by key."""
    error = np.fmax(old["stderr"], new["stderr"])
    found = []
    for name in fields:
        gap = pd.Series(math.inf, index=old.index)
        if old[name].dtype == float:
            gap = (abs(old[name] - new[name]) / error).fillna(math.inf)
        gap = gap[fields[name]].sort_values(ascending=False, kind="stable")[:SHOWN]
        a, b = (frame.loc[gap.index].astype(object) for frame in (old, new))
        row = {
            "key": called("records", a.assign(component=None)),
            "component": a["component"].fillna(""),
            "field": name,
            "a": a[name].where(a[name].notna(), None),
            "b": b[name].where(b[name].notna(), None),
            "standard errors": gap,
        }
        found.append(pd.DataFrame(row))
    table = pd.concat(found).infer_objects()
    return table.sort_values("standard errors", ascending=False, kind="stable", ignore_index=True)[:SHOWN]
