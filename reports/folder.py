"""Folders that pages are written into: what others have put there stays as it is."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from sdp_bench.bench import files
from sdp_bench.bench.errors import UserError

_TAG = r'<meta name="sdp-bench-(\w+)" content="([^"]*)">'
_HEAD = 2000  # bytes, of the beginning or of a PDF the end, in which a file says what it is
FRAMES = "frames"
"""Kind of what is kept of tables that were loaded."""
ARRAYS = "sdp-bench"
"""Name of the first array of a file of arrays, which says whose it is."""

PRINTED = "% sdp-bench\n"
"""Last line of a PDF of ours, a comment there: before it there is no room for one."""

# What files of ours begin with, PDFs end with, by the ends of their names.
_OURS = {
    ".html": r'(?s).*<(title>sdp-bench |meta name="sdp-bench-)',
    # measurements, none of them, rulings on the paper, or the rates of the selfcheck
    ".csv": r'(""|topic,lines,quote,.*|(?=.*\bexperiment\b)(?=.*\brule\b).*\bvalue\b.*'
    r"|part,what,condition,.*,hits,trials)?\r?\n",
    ".tex": r"% sdp-bench",
    ".bib": r"% sdp-bench",
    ".md": r"<!-- sdp-bench -->",
    ".svg": r"(?s).*<title>sdp-bench",
    ".pdf": rf"(?s).*{PRINTED}\Z",
    ".css": r"/\* sdp-bench \*/",
    ".js": r"// sdp-bench",
    ".npz": rf"(?s)PK\x03\x04.{{0,60}}?{ARRAYS}\.npy",
    # submissions; leaderboards; conformance reports; the parts of a page that is kept; the hashes of these
    ".json": r'\{(\s*"schema": 1,\s*"created": |\s*"[^"]*": (\{\s*"rule": "|"[0-9a-f]{64}")|"finished": |\})',
}
_KEPT = re.compile(r"[0-9a-f]{16}|\.[0-9a-f]{16}\.[0-9a-f]{8}")


def tags(path: Path) -> dict[str, str]:
    """What a page says of itself in its ``sdp-bench-`` tags, as escaped there; nothing if it is not ours."""
    return dict(re.findall(_TAG, _head(path)))


def is_ours(path: Path) -> bool:
    """Whether a file says of itself that a page, or what stands beside one, was written to it."""
    pattern = _OURS.get(Path(path.name.removesuffix(".gz")).suffix)
    return pattern is not None and re.match(pattern, _head(path)) is not None


def _head(path: Path) -> str:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            if path.suffix == ".pdf":
                file.seek(max(0, file.seek(0, os.SEEK_END) - _HEAD))
            return file.read(_HEAD).decode(errors="replace")
    except (OSError, EOFError):
        return ""


def check(folder: Path, names: Iterable[str]) -> None:
    """Find out whether files of others are in the way in a folder, before the work for a page in it.

    Parameters
    ----------
    folder : Path
    names : iterable of str
        Of the files that will be written.

    Raises
    ------
    UserError
        If one is there that is not ours.
    """
    for name in names:
        _require_ours(folder / name)


def write(path: Path, content: bytes | str) -> Path:
    """Write a file beside or behind a page, in the place of an older one of ours.

    Parameters
    ----------
    path : Path
    content : bytes or str

    Returns
    -------
    Path
        The file.

    Raises
    ------
    UserError
        If one is there that is not ours.
    RunFailedError
        If it cannot be written.
    """
    _require_ours(path)
    return files.write(path, content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file piece by piece that :func:`write` would write at once.

    Parameters
    ----------
    path : Path

    Yields
    ------
    binary file

    Raises
    ------
    UserError
        If one is there that is not ours.
    RunFailedError
        If it cannot be written.
    """
    _require_ours(path)
    with files.replacing(path) as file:
        yield file


def remove(path: Path) -> None:
    """Take a file away if it is ours."""
    if is_ours(path):
        path.unlink(missing_ok=True)


def inside(folder: Path, name: str) -> Path:
    """A folder in that of a page.

    Returns
    -------
    Path

    Raises
    ------
    UserError
        If it is a link, which would lead to files of others.
    """
    if (folder / name).is_symlink():
        raise UserError(f"{folder / name} is a link, which is not followed; give another folder")
    return folder / name


def _require_ours(path: Path) -> None:
    if os.path.lexists(path) and path.exists() and not path.is_dir() and not is_ours(path):
        raise UserError(f"{path} was not written by sdp-bench, and is not overwritten; give another folder")


def kept_pages(kind: str = "pages") -> list[Path]:
    """Folders of the pages in the cache, or of another kind, also of those whose making was broken off."""
    found = files.cache_folder(kind).glob("*")
    return sorted(
        path for path in found if _KEPT.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    )


def clear_old(kind: str, most: int) -> None:
    """Take away what is kept of one kind, but for so many: those that were made last."""
    made = (path for path in kept_pages(kind) if not path.name.startswith("."))
    for old in sorted(made, key=lambda path: path.stat().st_mtime)[:-most]:
        clear(old)


def clear(folder: Path) -> None:
    """Take away a page of the cache, and its folder unless others have put something there."""
    for place, folders, names in os.walk(folder, topdown=False):
        for name in names:
            remove(Path(place, name))
        for name in folders:
            with suppress(OSError):
                Path(place, name).rmdir()
    with suppress(OSError):
        folder.rmdir()
