"""Pages of a report, assembled from the parts that sections made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdp_bench.reports import site
from sdp_bench.reports.folder import write
from sdp_bench.reports.site import SitePage
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.writing import environment

PAGE = site.OVERVIEW.file
"""File name of a report's first page."""
KIND = "report"
"""Kind in the tag that identifies pages of a report."""
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
class Beside:
    """A file next to the pages."""

    name: str
    text: str


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
    meta = {"preset": "", "finished": ""} | dict(cover.meta)
    return {"title": cover.title, "meta": meta, "data": cover.data, "links": cover.links, "kind": KIND}


def shared() -> list[Beside]:
    templates = environment(RuleTraits())
    return [Beside(name, templates.get_template(name).render()) for name in SHARED]


def write_beside(folder: Path, files: Sequence[Beside]) -> None:
    for one in files:
        write(folder / one.name, one.text)
