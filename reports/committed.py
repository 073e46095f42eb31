"""The rendered page of the committed results, which come with the package, and its cache."""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import sdp_ref
from sdp_bench import bench, oracles, reports
from sdp_bench.bench import experiments, files, metrics
from sdp_bench.reports import section
from sdp_bench.reports.folder import kept_pages
from sdp_bench.reports.page import lists, parts
from sdp_bench.reports.parts import (
    COMMITTED_DATA,
    Committed,
    Data,
    places,
)
from sdp_bench.reports.results import BASELINES, Results, committed_results
from sdp_bench.reports.section import Section
from sdp_bench.reports.section import sections as every_section
from sdp_bench.reports.tables.frame import csv_lines

MOST = 3
"""Number of cached pages: those of the newest versions of code and results."""

_SOURCES = {".py", ".html", ".css", ".js", ".csv", ".json", ".toml"}
_LIBRARIES = ("jinja2", "numpy", "pandas", "scipy", "torch")
_PLUG_INS = (section.GROUP, experiments.ENTRY_POINTS, metrics.ENTRY_POINTS)


def keep(results: Results, sections: Sequence[Section] | None = None) -> Committed:
    """Make the report of the committed results, for other reports to include."""
    made, numbers, beside = parts(results, every_section() if sections is None else sections)
    pages_of_lists = lists(results, numbers, places(made), Data(COMMITTED_DATA))
    # without a timestamp, so that the same results give the same bytes
    table = io.BytesIO()
    with gzip.GzipFile(fileobj=table, mode="wb", compresslevel=6, mtime=0) as file:
        file.writelines(csv_lines(results.frame))
    finished = results.meta.get("finished") or ""
    return Committed(finished, made, beside, pages_of_lists, table.getvalue(), lambda: results.frame)


def committed(say: Callable[[str], None]) -> Committed:
    """Return the committed results with their page, which is made if it is not cached for this code.

    `say` is called before the page is made, which takes about a minute. Raises RunFailedError if the
    committed results are missing or damaged, or the cache is not writable.
    """
    from sdp_bench.bench.nets import storage  # imports torch

    path = files.cache_folder("pages") / f"{digest()}.zip"
    page = Committed.unpacked(path, lambda: committed_results().frame)
    if page is None:
        storage.check_writable(path)
        say("making the page of the committed results, once for this version: about a minute")
        page = keep(committed_results())
        files.write(path, page.packed())
        for old in sorted(kept_pages(), key=lambda path: path.stat().st_mtime)[:-MOST]:
            old.unlink(missing_ok=True)
    return page


def digest() -> str:
    """Hash of results, code and libraries that determine the page; 16 hexadecimal digits."""
    sha = hashlib.sha256()
    written = Path(reports.__file__ or "").resolve().parent / "html"  # reports of runs, in a checkout
    rooms = (Path(package.__file__ or "").resolve().parent for package in (sdp_ref, bench, oracles, reports))
    sources = [path for room in rooms for path in sorted(room.rglob("*")) if path.suffix in _SOURCES]
    for path in (*sources, *sorted(BASELINES.glob("*"))):
        if path.is_file() and not path.is_relative_to(written):
            content = path.read_bytes()
            sha.update(f"{path.name} {len(content)}\n".encode() + content)
    for name in _LIBRARIES:
        sha.update(f"{name} {importlib.metadata.version(name)}\n".encode())
    for group in _PLUG_INS:
        for point in sorted(importlib.metadata.entry_points(group=group)):
            sha.update(f"{group} {point.value} {point.dist and point.dist.version}\n".encode())
    return sha.hexdigest()[:16]
