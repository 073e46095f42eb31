"""Output folders of pages: only our own files are ever replaced or removed."""

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
_HEAD = 2000  # bytes at the start, or the end of a PDF, in which a file is identified

PRINTED = "% sdp-bench\n"
"""Last line of our PDFs, a comment that identifies them; there is no room for one at the start."""

# How our files begin (PDFs: end), by suffix.
_OURS = {
    ".html": r'(?s).*<(title>sdp-bench |meta name="sdp-bench-)',
    # measurements, or none; verdicts on the paper
    ".csv": r'(""|topic,lines,quote,.*|(?=.*\bexperiment\b)(?=.*\brule\b).*\bvalue\b.*)?\r?\n',
    ".tex": r"% sdp-bench",
    ".bib": r"% sdp-bench",
    ".md": r"<!-- sdp-bench -->",
    ".svg": r"(?s).*<title>sdp-bench",
    ".pdf": rf"(?s).*{PRINTED}\Z",
    ".css": r"/\* sdp-bench \*/",
    ".js": r"// sdp-bench",
    # leaderboards; conformance reports
    ".json": r'\{(\s*"[^"]*": \{\s*"rule": "|\})',
}
_KEPT = re.compile(r"[0-9a-f]{16}\.zip")


def tags(path: Path) -> dict[str, str]:
    """Return the ``sdp-bench-`` tags of a page, still escaped; empty if the page is not ours."""
    return dict(re.findall(_TAG, _head(path)))


def is_ours(path: Path) -> bool:
    """Whether the content of a file identifies it as ours."""
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
    """Raise UserError if foreign files block any of these names, before the page is computed."""
    for name in names:
        _require_ours(folder / name)


def write(path: Path, content: bytes | str) -> Path:
    """Write a file, replacing an older one of ours; raises UserError if a foreign file is in the way."""
    _require_ours(path)
    return files.write(path, content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Like :func:`write`, in pieces."""
    _require_ours(path)
    with files.replacing(path) as file:
        yield file


def remove(path: Path) -> None:
    if is_ours(path):
        path.unlink(missing_ok=True)


def inside(folder: Path, name: str) -> Path:
    """Return a subfolder of a page's folder; raises UserError if it is a link, which may lead elsewhere."""
    if (folder / name).is_symlink():
        raise UserError(f"{folder / name} is a link, which is not followed; give another folder")
    return folder / name


def _require_ours(path: Path) -> None:
    if os.path.lexists(path) and path.exists() and not path.is_dir() and not is_ours(path):
        raise UserError(f"{path} was not written by sdp-bench, and is not overwritten; give another folder")


def kept_pages() -> list[Path]:
    """Cached pages of the committed results."""
    found = files.cache_folder("pages").glob("*.zip")
    return sorted(
        path for path in found if _KEPT.fullmatch(path.name) and path.is_file() and not path.is_symlink()
    )


def clear(folder: Path) -> None:
    """Remove a page, and its folder unless it contains foreign files."""
    for place, folders, names in os.walk(folder, topdown=False):
        for name in names:
            remove(Path(place, name))
        for name in folders:
            with suppress(OSError):
                Path(place, name).rmdir()
    with suppress(OSError):
        folder.rmdir()
