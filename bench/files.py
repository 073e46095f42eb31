"""Files: written completely or not at all, and read with errors in one line."""

from __future__ import annotations

import csv
import errno
import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from .errors import RunFailedError, UserError
from .text import is_number, printable

if TYPE_CHECKING:
    import numpy as np


def write(path: Path, content: bytes | str) -> Path:
    """Write a file atomically, through a temporary file in its folder, which is created if needed.

    A pipe or terminal, ``/dev/stdout`` for example, is written to directly. Text is encoded as UTF-8. If
    writing fails, a RunFailedError is raised and an existing file is unchanged.
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return path


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for atomic writing in pieces; it has its new content when the block ends.

    An existing file is unchanged if the block raises or if writing fails, which raises a RunFailedError.
    """
    with writing(path):
        if _is_stream(path):
            with path.open("wb") as file:
                yield file
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())  # otherwise the name may reach the disk before the content
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def read_json(path: Path) -> Any:
    """Read a JSON file.

    A ValueError is raised if it is not JSON in UTF-8, has a duplicate key, or is nested more deeply than any
    file of this project.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def as_text(value: Any, *, indent: str = "") -> str:
    """Return JSON text with floats that are restored to the last bit.

    Nested mappings, and those of the first two levels, have one line per entry; others are on one line.
    `indent` applies to all lines but the first.
    """
    deeper = f"{indent} "
    if isinstance(value, dict) and value and (len(indent) < 2 or _holds_mapping(value.values())):
        entries = [
            f"{deeper}{json.dumps(name)}: {as_text(item, indent=deeper)}" for name, item in value.items()
        ]
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and _holds_mapping(value):
        entries = [deeper + as_text(item, indent=deeper) for item in value]
        return "[\n" + ",\n".join(entries) + f"\n{indent}]"
    return json.dumps(value, separators=(",", ":") if isinstance(value, list) else None)


def _holds_mapping(values: Any) -> bool:
    return any(isinstance(value, dict) for value in values)


MOST_BYTES = 2**30
"""Largest size of the arrays in a compressed file, which may be much smaller."""


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file written by ``numpy.save`` or ``numpy.savez``, or a table in a CSV file.

    The keys are those of ``numpy.savez``; a single array has the key ``arr_0`` and is memory-mapped. A
    UserError is raised if the file does not exist or holds anything else; pickles are not read.
    """
    import zipfile
    import zlib

    import numpy as np

    if is_csv(path):
        return {"arr_0": read_csv(path)}
    try:
        with reading(path):
            arrays = np.load(path, mmap_mode="r", allow_pickle=False)
            if isinstance(arrays, np.ndarray):
                return {"arr_0": arrays}
            with arrays:
                size = sum(member.file_size for member in arrays.zip.infolist())
                if size > MOST_BYTES:
                    raise UserError(
                        f"{path} holds {size:,} bytes of numbers, more than {MOST_BYTES:,}; save fewer inputs"
                    )
                return {name: np.asarray(arrays[name]) for name in arrays.files}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, MemoryError) as error:
        raise UserError(
            f"{path} is not a .npy array; convert it with numpy.save, or to CSV (pickles are not read)"
        ) from error


def read_array(path: Path) -> np.ndarray:
    """Read the only array of a file; see `read_arrays`."""
    arrays = read_arrays(path)
    if len(arrays) != 1:
        raise UserError(f"{path} holds several arrays; save one with numpy.save")
    return next(iter(arrays.values()))


def is_csv(path: Path | str) -> bool:
    return str(path).lower().endswith(".csv")


def column_names(path: Path) -> tuple[str, ...]:
    """Return the names in the first line of a CSV table; nothing for a table or file without names."""
    if not is_csv(path):
        return ()
    with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        first = next((line for line in csv.reader(file) if any(map(str.strip, line))), [])
    names = [name.strip() for name in first]
    return () if any(map(is_number, names)) else tuple(names)


def read_csv(path: Path) -> np.ndarray:
    """Read numbers separated by commas, shape (lines, columns); a first line without any number is a header.

    A UserError names the line that has other columns than the first one, or a cell that is not a number.
    """
    import numpy as np

    with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        lines = [
            (number, line) for number, line in enumerate(csv.reader(file), 1) if any(map(str.strip, line))
        ]
    if lines and not any(is_number(cell.strip()) for cell in lines[0][1]):
        del lines[0]
    if not lines:
        raise UserError(f"{path} has no line of numbers")
    for number, line in lines:
        if len(line) != len(lines[0][1]):
            raise UserError(
                f"{path}, line {number}: {len(line)} columns, but line {lines[0][0]} has {len(lines[0][1])}"
            )
        if wrong := [cell for cell in line if not is_number(cell.strip())]:
            raise UserError(f"{path}, line {number}: {printable(wrong[0])[:40]!r} is not a number")
    return np.array([[float(cell) for cell in line] for _, line in lines])


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of reading a file of numbers or of bytes into one line."""
    try:
        if path.exists() and not path.is_file():  # a pipe could block forever
            raise UserError(f"cannot read {path}: not a regular file")
        yield
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a CSV file of numbers ({error})") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in members if names.count(name) > 1)
        raise ValueError(f"{json.dumps(twice)[:60]} is there twice")
    return members


def cache_folder(kind: str) -> Path:
    """Return the folder that caches one kind of data ("nets", "pages", "frames"); it may not exist yet.

    It is in ``SDP_BENCH_CACHE``, or in the user's cache folder.
    """
    import platformdirs

    return Path(os.environ.get("SDP_BENCH_CACHE") or platformdirs.user_cache_dir("sdp-bench")) / kind


def check_writable(path: Path) -> None:
    """Raise a RunFailedError if `write` could not write a file, before its content is computed."""
    with writing(path):
        if _is_stream(path):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=path.parent):
            pass


def remove_old(path: Path) -> None:
    """Remove an old output file, so that it is not mistaken for the result of a failed run.

    Raises a RunFailedError like `check_writable`.
    """
    check_writable(path)
    with writing(path):
        if path.is_file():
            path.unlink()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a one-line RunFailedError."""
    try:
        yield
    except OSError as error:
        raise RunFailedError(f"cannot write {path}: {error.strerror or error}") from error


def _is_stream(path: Path) -> bool:
    return path.exists() and not (path.is_file() or path.is_dir())
