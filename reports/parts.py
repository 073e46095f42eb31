"""Pages of a report, assembled from the parts that sections made."""

from __future__ import annotations

import functools
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from sdp_bench.reports import site
from sdp_bench.reports.folder import inside, write
from sdp_bench.reports.numbers import FOLDER as NUMBERS
from sdp_bench.reports.site import SitePage, write_pages
from sdp_bench.reports.style.names import RuleTraits
from sdp_bench.reports.writing import environment

PAGE = site.OVERVIEW.file
"""File name of a report's first page."""
KIND = "report"
"""Kind in the tag that identifies pages of a report."""
COMMITTED, COMMITTED_TITLE = "committed", "Committed results"
"""Folder of the page of the committed results inside the report's, and its title."""
COMMITTED_DATA, _CONTENT = "results.csv.gz", "page.json"
SHARED = ("report.css", "report.js")
"""Style sheet and script shared by all pages; inlined they would be most of many pages."""


@dataclass(frozen=True)
class Part:
    """What a section made for one page.

    Parts of a page are in ascending `order`. `navigation` holds anchors and titles, and `said` the lines that
    the command prints. `beside` is that of :class:`sdp_bench.reports.section.Section`.
    """

    page: SitePage
    order: int
    navigation: tuple[tuple[str, str], ...]
    html: str
    beside: bool = False
    said: tuple[str, ...] = ()

    @classmethod
    def of_dict(cls, kept: Mapping[str, Any]) -> Part:
        navigation = tuple((anchor, title) for anchor, title in kept["navigation"])
        page = SitePage(**kept["page"])
        return cls(page, kept["order"], navigation, kept["html"], kept["beside"], tuple(kept["said"]))


@dataclass(frozen=True)
class Data:
    """Location of all measurements of a report.

    `file` is the table next to the pages, empty if there are too many measurements for one. `count` is then
    their number, and `command` exports them.
    """

    file: str
    count: int = 0
    command: str = ""

    @property
    def place(self) -> str:
        return self.file or "the results file"


@dataclass(frozen=True)
class Cover:
    """Everything on a page except its parts.

    `title` is that of the report, empty for a run. `meta` holds `preset` and `finished` if known. `links` are
    addresses and titles of other reports.
    """

    title: str
    meta: Mapping[str, Any]
    data: Data
    links: tuple[tuple[str, str], ...] = ()


def places(parts: Sequence[Part]) -> dict[str, str]:
    """Files by the anchors on their pages."""
    return {anchor: part.page.file for part in parts for anchor in site.anchors(part.html)}


def pages(parts: Sequence[Part], cover: Cover) -> dict[str, str]:
    where = places(parts)
    by_page: dict[SitePage, list[Part]] = {site.OVERVIEW: []}
    for part in sorted(parts, key=lambda part: part.order):
        by_page.setdefault(part.page, []).append(part)
    menu = site.menu(by_page)
    template = environment(RuleTraits()).get_template("page.html")
    made = {}
    for page, own in by_page.items():
        resolved = [site.resolved(part.html, where, page.file) for part in own]
        sections, anchor, beside = site.untitled(resolved, page.title)
        made[page.file] = template.render(
            **_around(cover),
            shared="",
            page=page,
            menu=menu,
            navigation=[entry for part in own for entry in part.navigation],
            sections=sections,
            anchor=anchor,
            beside=beside,
        )
    return made


def single(parts: Sequence[Part], cover: Cover) -> str:
    """HTML text of a single page that contains all parts and links to no other file."""
    ordered = sorted(parts, key=lambda part: (part.page, part.order))
    return (
        environment(RuleTraits())
        .get_template("page.html")
        .render(
            **_around(cover),
            page=site.OVERVIEW,
            menu=(),
            navigation=[entry for part in ordered for entry in part.navigation],
            sections=[site.alone(part.html) for part in ordered],
        )
    )


def _around(cover: Cover) -> dict[str, Any]:
    meta = {"preset": "", "finished": "", "rules_left_out": ""} | dict(cover.meta)
    return {"title": cover.title, "meta": meta, "data": cover.data, "links": cover.links, "kind": KIND}


def shared() -> dict[str, str]:
    templates = environment(RuleTraits())
    return {name: templates.get_template(name).render() for name in SHARED}


def write_beside(folder: Path, files: Mapping[str, str]) -> None:
    """Write the text files next to the pages, by name."""
    for name, text in files.items():
        write(folder / name, text)


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
        """All measurements, validated for a report."""
        return self.load()

    def packed(self) -> bytes:
        """Return all but the frame as a zip file, which has a checksum of each part."""
        content = {
            "finished": self.finished,
            "parts": [asdict(part) for part in self.parts],
            "beside": dict(self.beside),
            "lists": dict(self.lists),
        }
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
            parts = [Part.of_dict(part) for part in content["parts"]]
            return cls(content["finished"], parts, content["beside"], content["lists"], table, load)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            EOFError,
            RuntimeError,
            zipfile.BadZipFile,
            zlib.error,
        ):
            return None

    def show(self, folder: Path, more: Sequence[Part] = (), links: Sequence[tuple[str, str]] = ()) -> Path:
        """Write the page into the folder of a report, with lists and measurements, and return its path.

        `more` are parts that the run on this machine adds; `links` are addresses and titles of other pages.
        Raises RunFailedError if the folder is not writable.
        """
        write_pages(inside(folder, NUMBERS), self.lists, NUMBERS)
        write(folder / COMMITTED_DATA, self.table)
        write_beside(folder, {**shared(), **self.beside})
        cover = Cover(COMMITTED_TITLE, {"finished": self.finished}, Data(COMMITTED_DATA), tuple(links))
        write_pages(folder, pages([*self.parts, *more], cover), KIND)
        return folder / PAGE

    def show_single(self, folder: Path) -> Path:
        """Write the results as a single page without other files, and return its path."""
        return write(
            folder / PAGE, single(self.parts, Cover(COMMITTED_TITLE, {"finished": self.finished}, Data("")))
        )
