"""Files written whole, or not at all and with one line that says why."""

from __future__ import annotations

import errno
import json
import os
import secrets
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sdp_bench.bench.errors import RunFailedError, UserError

if TYPE_CHECKING:
    import numpy as np


def write(path: Path, content: bytes | str) -> Path:
    """Write a file whole, and its folder if need be: to a name of its own beside it, then renamed.

    Parameters
    ----------
    path : Path
        A pipe or a terminal, ``/dev/stdout`` say, is written to as it is.
    content : bytes or str
        Text is written as UTF-8.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    RunFailedError
        If it cannot be written; a file that was there is as it was.
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return path


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file piece by piece that :func:`write` would write at once.

    Parameters
    ----------
    path : Path
        As there; it has its new content when the block is done.

    Raises
    ------
    RunFailedError
        If it cannot be written; a file that was there is as it was, as it is where the block raises.
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
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def replacing_all(folder: Path, names: Collection[str], last: str) -> Iterator[Path]:
    """Write files of a folder together: all of them in the place of the old ones, or none.

    Parameters
    ----------
    folder : Path
        Made if it is not there. What else is in it stays.
    names : collection of str
        Of the files that are replaced, also of those that are not written again.
    last : str
        The one that says that the others are whole: it goes first and comes last.

    Yields
    ------
    Path
        An empty folder to write the files to.

    Raises
    ------
    RunFailedError
        If they cannot be written; what was there is as it was.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            check_writable(folder / name)
        order = sorted(names, key=lambda name: (name == last, name))
        with tempfile.TemporaryDirectory(prefix=".writing-", dir=folder) as place:
            new, old = Path(place, "new"), Path(place, "old")
            new.mkdir()
            old.mkdir()
            yield new
            moves = [(folder / name, old / name) for name in reversed(order)]
            moves += [(new / name, folder / name) for name in order]
            _move([move for move in moves if move[0].exists()])


def _move(moves: Sequence[tuple[Path, Path]]) -> None:
    """Move files one after the other, or back if one does not go."""
    done: list[tuple[Path, Path]] = []
    try:
        for source, target in moves:
            source.rename(target)
            done.append((source, target))
    except BaseException:
        for source, target in reversed(done):
            target.rename(source)
        raise


def read_json(path: Path) -> Any:
    """Plain values of a JSON file.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is no JSON in UTF-8, a mapping has a key twice, or it is nested more deeply than any of ours.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file that ``numpy.save`` or ``numpy.savez`` wrote.

    Returns
    -------
    dict of str to ndarray
        By the names of ``numpy.savez``, ``arr_0`` for what has none. Nothing of a file of ``numpy.save``
        is in memory yet.

    Raises
    ------
    UserError
        If there is no such file or it holds something else; pickles are not read.
    """
    import numpy as np

    with _loaded(path) as found:
        if isinstance(found, np.ndarray):
            return {"arr_0": found}
        with found:
            return {name: np.asarray(found[name]) for name in found.files}


def read_array(path: Path) -> np.ndarray:
    """Read the array of a file that ``numpy.save`` wrote, of which nothing is in memory yet.

    Raises
    ------
    UserError
        If there is no such file or it holds something else; pickles are not read.
    """
    import numpy as np

    with _loaded(path) as found:
        if not isinstance(found, np.ndarray):
            found.close()
            raise UserError(f"{path} holds several arrays; save one with numpy.save")
        return found


@contextmanager
def _loaded(path: Path) -> Iterator[Any]:
    """What ``numpy.load`` makes of a file, whose errors become a line each."""
    import zipfile
    import zlib

    import numpy as np

    try:
        if path.exists() and not path.is_file():  # a pipe would never end, or begin
            raise UserError(f"cannot read {path}: it is no file")
        yield np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        raise UserError(
            f"{path} is no plain array of numbers as numpy.save writes it (pickles are not read)"
        ) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"{json.dumps(twice)[:60]} is there twice")
    return found


def cache_folder(kind: str) -> Path:
    """Folder of what one kind of work keeps: in ``SDP_BENCH_CACHE``, or this user's cache folder.

    Parameters
    ----------
    kind : str
        "nets", "pages" or "frames".

    Returns
    -------
    Path
        It need not be there.
    """
    import platformdirs

    return Path(os.environ.get("SDP_BENCH_CACHE") or platformdirs.user_cache_dir("sdp-bench")) / kind


def check_writable(path: Path) -> None:
    """Find out whether :func:`write` can write a file, before the work that gives its content.

    Raises
    ------
    RunFailedError
        If it cannot.
    """  # noqa: DOC501  what is raised inside, `writing` turns into that
    with writing(path):
        if _is_stream(path):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=path.parent):
            pass


def remove_old(path: Path) -> None:
    """Remove a file that is to be written when work is done: what is there must not be taken for its result.

    Raises
    ------
    RunFailedError
        If it cannot be removed.
    """
    with writing(path):
        if path.is_file():
            path.unlink()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Tell in one line that a file or folder cannot be written, where the block fails in that.

    Raises
    ------
    RunFailedError
        In the place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise RunFailedError(f"cannot write {path}: {error.strerror or error}") from error


def _is_stream(path: Path) -> bool:
    return path.exists() and not (path.is_file() or path.is_dir())
