"""The report of the committed results, which come with the package, and its cache."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import sdp_ref

from .. import bench, oracles, reports
from ..bench import experiments, files, metrics
from ..bench.identity import digest_of_files
from . import section
from .folder import MARKER, check, inside, kept_pages, write_only
from .page import build
from .results import BASELINES, committed_results
from .site import PAGE

MOST = 3
"""Number of cached reports: those of the newest versions of code and results."""

_SOURCES = {".py", ".html", ".css", ".js", ".csv", ".json", ".toml"}
_LIBRARIES = ("jinja2", "numpy", "pandas", "scipy", "torch")
_PLUG_INS = (section.GROUP, experiments.ENTRY_POINTS, metrics.ENTRY_POINTS)


def write_committed(folder: Path, say: Callable[[str], None]) -> Path:
    """Write the report of the committed results to a folder, and return its first page.

    The report is made once for this version of code and results, and copied from the cache afterwards. `say`
    is called before it is made. Raises RunFailedError if the committed results are missing or damaged, or the
    cache is not writable.
    """
    from ..bench.nets import storage  # imports torch

    path = files.cache_folder("pages") / f"{digest()}.zip"
    content = _cached(path)
    if content is None:
        storage.check_writable(path)
        say("making the report of the committed results, once for this version: about a minute")
        content = _make(path)
    contents_of_folders: dict[Path, dict[str, bytes]] = {}
    for name, data in content.items():
        subfolder, _, file = name.rpartition("/")
        contents_of_folders.setdefault(inside(folder, subfolder), {})[file] = data
    for target, contents in contents_of_folders.items():
        check(target, contents)  # before any is written
    for target, contents in contents_of_folders.items():
        write_only(target, contents)
    return folder / PAGE


def _make(path: Path) -> dict[str, bytes]:
    """Make the report, store it in the cache as `path`, and return its files by name."""
    with files.writing(path), TemporaryDirectory() as temporary:
        build(committed_results(), Path(temporary))
        paths = sorted(file for file in Path(temporary).rglob("*") if file.is_file() and file.name != MARKER)
        content = {file.relative_to(temporary).as_posix(): file.read_bytes() for file in paths}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in content.items():
            packed.writestr(name, data)
    files.write(path, archive.getvalue())
    oldest_first = sorted(kept_pages(), key=lambda file: file.stat().st_mtime)
    for old in oldest_first[:-MOST]:
        old.unlink(missing_ok=True)
    return content


def _cached(path: Path) -> dict[str, bytes] | None:
    """Files of a cached report by name; None if it does not exist or is damaged."""
    try:
        with zipfile.ZipFile(path) as packed:
            content = {name: packed.read(name) for name in packed.namelist()}
    except Exception:  # noqa: BLE001  any damage: the report is made again
        return None
    return content if PAGE in content else None


def digest() -> str:
    """Hash of results, code and libraries that determine the page; 16 hexadecimal digits."""
    sha = hashlib.sha256()
    html = Path(reports.__file__ or "").resolve().parent / "html"  # reports of runs, in a checkout
    paths: list[Path] = []
    for package in (sdp_ref, bench, oracles, reports):
        folder = Path(package.__file__ or "").resolve().parent
        paths += [path for path in sorted(folder.rglob("*")) if path.suffix in _SOURCES]
    paths += sorted(BASELINES.rglob("*"))
    hashed = [path for path in paths if path.is_file() and not path.is_relative_to(html)]
    sha.update(digest_of_files((path.parent, path) for path in hashed).encode())
    for name in _LIBRARIES:
        sha.update(f"{name} {importlib.metadata.version(name)}\n".encode())
    for group in _PLUG_INS:
        for point in sorted(importlib.metadata.entry_points(group=group)):
            sha.update(f"{group} {point.value} {point.dist and point.dist.version}\n".encode())
    return sha.hexdigest()[:16]
