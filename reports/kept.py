"""Cache of the page of the committed results."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import sdp_ref
from sdp_bench import bench, oracles, reports
from sdp_bench.bench import experiments, files, metrics
from sdp_bench.reports import section
from sdp_bench.reports.committed import Committed
from sdp_bench.reports.folder import clear, clear_old
from sdp_bench.reports.page import keep
from sdp_bench.reports.results import BASELINES, committed_results

MOST = 3
"""Number of cached pages: those of the newest versions of code and results."""

_CHECKSUMS = "checksums.json"

_SOURCES = ("*.py", "*.html", "*.css", "*.js", "*.csv", "*.json", "*.toml")
_DRAWN_BY = ("jinja2", "numpy", "pandas", "scipy", "torch")
_PLUGGED_IN = (section.GROUP, experiments.ENTRY_POINTS, metrics.ENTRY_POINTS)


def committed(say: Callable[[str], None]) -> Committed:
    """Return the committed results with their page, which is made if this code has not cached it.

    `say` is called before the page is made, which takes about a minute. Raises RunFailedError if the
    committed results are missing or damaged, or the cache is not writable.
    """
    pages = files.cache_folder("pages")
    folder = pages / digest()
    if not _is_whole(folder):
        from sdp_bench.bench.nets import storage

        storage.check_writable(pages / _CHECKSUMS)
        say("making the page of the committed results, once for this version: about a minute")
        with files.writing(pages):
            _make(folder)
    return Committed(folder)


def digest() -> str:
    """Hash of results, code and libraries that determine the page; 16 hexadecimal digits."""
    sha = hashlib.sha256()
    for path in _sources():
        content = path.read_bytes()
        sha.update(f"{path.name} {len(content)}\n".encode() + content)
    for name in _DRAWN_BY:
        sha.update(f"{name} {importlib.metadata.version(name)}\n".encode())
    for group in _PLUGGED_IN:
        for point in sorted(importlib.metadata.entry_points(group=group)):
            sha.update(f"{group} {point.value} {point.dist and point.dist.version}\n".encode())
    return sha.hexdigest()[:16]


def _sources() -> Iterator[Path]:
    """Files of this package that determine the page, in the same order on every machine."""
    rooms = (
        Path(each.__file__).resolve().parent for each in (sdp_ref, bench, oracles, reports) if each.__file__
    )
    written = Path(reports.__file__ or "").resolve().parent / "html"  # reports of runs, in a checkout
    for room in rooms:
        found = {path for pattern in _SOURCES for path in room.rglob(pattern)}
        yield from sorted(path for path in found if not path.is_relative_to(written))
    yield from sorted(path for path in BASELINES.glob("*") if path.is_file())


def _checksums(folder: Path) -> dict[str, str]:
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _CHECKSUMS)
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found
    }


def _is_whole(folder: Path) -> bool:
    """Whether a cached page is complete; whatever cleans caches may have removed parts."""
    try:
        return bool(json.loads((folder / _CHECKSUMS).read_bytes()) == _checksums(folder))
    except (OSError, ValueError):
        return False


def _make(folder: Path) -> None:
    """Make the page in a temporary folder, rename it, and remove old pages."""
    place = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    place.mkdir()
    try:
        keep(committed_results(), place)
        files.write(place / _CHECKSUMS, json.dumps(_checksums(place)))
        if not _is_whole(folder):  # otherwise another process has made it meanwhile
            clear(folder)
        try:
            place.rename(folder)
        except OSError:
            if not _is_whole(folder):
                raise
    finally:
        shutil.rmtree(place, ignore_errors=True)
    clear_old("pages", MOST)
