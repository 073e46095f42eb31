"""Files written whole, or not at all and with one line that says why."""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sdp_bench.bench.errors import RunFailedError


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
    data = content.encode() if isinstance(content, str) else content
    with writing(path):
        if _is_stream(path):
            path.write_bytes(data)
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    return path


def cache_folder(kind: str) -> Path:
    """Folder of what one kind of work keeps: in ``SDP_BENCH_CACHE``, or this user's cache folder.

    Parameters
    ----------
    kind : str
        "nets" or "pages".

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
