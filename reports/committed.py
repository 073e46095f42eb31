"""The rendered page of the committed results, which come with the package, and its cache."""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.metadata
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

import sdp_ref
from sdp_bench import bench, oracles, reports
from sdp_bench.bench import experiments, files, metrics
from sdp_bench.reports import section
from sdp_bench.reports.folder import inside, kept_pages, write
from sdp_bench.reports.numbers import FOLDER
from sdp_bench.reports.page import KIND, Data, cover, lists, pages, parts, places, single, write_beside
from sdp_bench.reports.results import BASELINES, COMMITTED_TITLE, Results, committed_results
from sdp_bench.reports.section import Part, Section
from sdp_bench.reports.section import sections as every_section
from sdp_bench.reports.site import PAGE, SitePage, write_pages
from sdp_bench.reports.tables.frame import csv_lines

COMMITTED_DATA, _CONTENT = "results.csv.gz", "page.json"
MOST = 3
"""Number of cached pages: those of the newest versions of code and results."""

_SOURCES = {".py", ".html", ".css", ".js", ".csv", ".json", ".toml"}
_LIBRARIES = ("jinja2", "numpy", "pandas", "scipy", "torch")
_PLUG_INS = (section.GROUP, experiments.ENTRY_POINTS, metrics.ENTRY_POINTS)


@dataclass(frozen=True)
class Committed:
    """The parts of the page, the lists behind its numbers by file name, and all measurements.

    `finished` is the time of the newest measurement (ISO 8601), `beside` are files next to the page, and
    `table` holds the measurements as compressed CSV for readers. `load` returns them as a frame.
    """

    finished: str
    parts: Sequence[Part]
    beside: Mapping[str, str]
    lists: Mapping[str, str]
    table: bytes
    load: Callable[[], pd.DataFrame]

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        return self.load()

    def packed(self) -> bytes:
        """Return all but the frame as a zip file, which has a checksum of each part."""
        content = {name: getattr(self, name) for name in ("finished", "beside", "lists")}
        content["parts"] = [asdict(part) for part in self.parts]
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            # a fixed time, so that the same page gives the same bytes
            file.writestr(zipfile.ZipInfo(_CONTENT), json.dumps(content), zipfile.ZIP_DEFLATED)
            file.writestr(zipfile.ZipInfo(COMMITTED_DATA), self.table)
        return archive.getvalue()

    @classmethod
    def unpacked(cls, path: Path, load: Callable[[], pd.DataFrame]) -> Committed | None:
        """Read what :meth:`packed` returned; None if the file does not exist or is damaged."""
        try:
            with zipfile.ZipFile(path) as file:
                content, table = json.loads(file.read(_CONTENT)), file.read(COMMITTED_DATA)
            parts = [Part(**{**part, "page": SitePage(**part["page"])}) for part in content.pop("parts")]
            return cls(parts=parts, table=table, load=load, **content)
        except Exception:  # noqa: BLE001  any damage: the page is made again
            return None

    def show(self, folder: Path, more: Sequence[Part] = (), links: Sequence[tuple[str, str]] = ()) -> Path:
        """Write the page with lists and measurements, and return its path.

        `more` are parts that the run on this machine adds; `links` are addresses and titles of other pages.
        """
        write_pages(inside(folder, FOLDER), self.lists, FOLDER)
        write(folder / COMMITTED_DATA, self.table)
        write_beside(folder, self.beside)
        around = cover(COMMITTED_TITLE, {"finished": self.finished}, Data(COMMITTED_DATA), links)
        write_pages(folder, pages([*self.parts, *more], around), KIND)
        return folder / PAGE

    def show_single(self, folder: Path) -> Path:
        around = cover(COMMITTED_TITLE, {"finished": self.finished}, Data(""))
        return write(folder / PAGE, single(self.parts, around))


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
