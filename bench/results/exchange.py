"""Results between machines: files merged, exported to plain tables, imported again."""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import operator
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from io import BytesIO
from pathlib import Path

import pandas as pd

from sdp_bench.bench import files
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.results import migration, schema
from sdp_bench.bench.results.store import Store

FORMATS = ("csv", "csv.xz", "parquet")
MANIFEST = "manifest.json"


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
                        count += merged.add(store.tables())
                    except UserError as error:
                        raise UserError(f"{source}: {error}") from error
        if temporary.exists():
            temporary.replace(target)
        return count
    finally:
        for leftover in target.parent.glob(f".{target.name}.merging*"):
            leftover.unlink()


def export(store: Store, folder: Path, fmt: str = "csv", *, weights: bool = True) -> list[Path]:
    """Write a results file as plain tables with a manifest of what they are.

    Parameters
    ----------
    store : Store
    folder : Path
        Made if it is not there.
    fmt : {"csv", "csv.xz", "parquet"}
        "csv.xz" is the smallest, and needs no library to read.
    weights : bool
        Keep the nets' weights, as hexadecimal text; without them a measurement cannot be replayed.

    Returns
    -------
    list of Path
        Files that were written, the manifest last.

    Raises
    ------
    UserError
        If the format is unknown.
    RunFailedError
        If the folder cannot be written.
    """
    if fmt not in FORMATS:
        raise UserError(f"unknown format '{fmt}'; choose from {', '.join(FORMATS)}")
    frames = store.tables()
    nets = frames["nets"]
    nets["weights"] = [w.hex() if weights and w is not None else None for w in nets["weights"]]
    contents = {f"{name}.{fmt}": _encode(frame, fmt) for name, frame in frames.items()}
    manifest = {
        "schema": schema.SCHEMA,
        "sha256": {file: hashlib.sha256(content).hexdigest() for file, content in contents.items()},
        "rows": {name: len(frame) for name, frame in frames.items()},
        "runs": [asdict(store.run(number)) for number in store.runs()],
    }
    contents[MANIFEST] = json.dumps(manifest, indent=1).encode()
    return [files.write(folder / file, content) for file, content in contents.items()]


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
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        version, sums = operator.index(manifest["schema"]), dict(manifest["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder} is not a folder of exported results (no {MANIFEST})") from error
    if version < migration.SCHEMA:
        raise UserError(f"{folder} has schema {version}, which this version cannot read")
    if version > schema.SCHEMA:
        raise UserError(
            f"{folder} has schema {version}, newer than this version's {schema.SCHEMA}; update sdp-bench"
        )
    expected, definitions = migration.expected(version)
    frames: dict[str, pd.DataFrame] = {}
    for file, checksum in sums.items():
        try:
            content = (folder / file).read_bytes()
        except OSError as error:
            raise UserError(f"{folder / file} is missing") from error
        if hashlib.sha256(content).hexdigest() != checksum:
            raise UserError(f"{folder / file} is damaged: its checksum is not the manifest's")
        name, _, fmt = file.partition(".")
        frames[name] = _decode(content, fmt, schema.columns(definitions).get(name, {}))
    if set(frames) != set(expected):
        raise UserError(f"{folder} lacks the tables {', '.join(sorted(set(expected) - set(frames)))}")
    nets = frames["nets"]
    nets["weights"] = [bytes.fromhex(w) if isinstance(w, str) and w else None for w in nets["weights"]]
    return store.add(migration.migrated(frames, version))


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


def _encode(frame: pd.DataFrame, fmt: str) -> bytes:
    buffer = BytesIO()
    if fmt.startswith("csv"):
        content = frame.to_csv(index=False).encode()  # floats as their shortest exact text
        return lzma.compress(content, preset=6) if fmt == "csv.xz" else content
    _parquet()
    frame.to_parquet(buffer, index=False, compression="zstd")
    return buffer.getvalue()


def _decode(content: bytes, fmt: str, columns: Mapping[str, schema.Column]) -> pd.DataFrame:
    if fmt == "parquet":
        _parquet()
        return pd.read_parquet(BytesIO(content))
    if fmt == "csv.xz":
        content = lzma.decompress(content)
    frame = pd.read_csv(BytesIO(content), dtype=str, keep_default_na=False)
    for name, column in columns.items():
        if name not in frame:
            continue
        if column.kind == "REAL":  # pandas' own parser is not exact to the last bit
            frame[name] = [float(text) if text else math.nan for text in frame[name]]
        elif column.kind == "INTEGER":
            frame[name] = pd.array([int(text) if text else pd.NA for text in frame[name]], dtype="Int64")
        elif not column.required:  # an empty text is a value only where there must be one
            frame[name] = [text or None for text in frame[name]]
    return frame


def _parquet() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise UserError("parquet needs the package pyarrow (extra 'parquet')") from error
