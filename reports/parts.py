"""A report as parts, what sections made, put together as pages."""

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
"""File of a report's first page, in its folder."""
KIND = "report"
"""What pages of a report say that they are."""
SHARED = ("report.css", "report.js")
"""Files that its pages share: style and script, which would be the longest part of many."""


@dataclass(frozen=True)
class Part:
    """What a section made for one page.

    Attributes
    ----------
    page : SitePage
    order : int
        Place on the page: parts stand in ascending order.
    navigation : tuple of (str, str)
        Anchors and titles.
    html : str
    beside : bool
        As :class:`sdp_bench.reports.section.Section` has it.
    said : tuple of str
        Lines that the command says of it.
    """

    page: SitePage
    order: int
    navigation: tuple[tuple[str, str], ...]
    html: str
    beside: bool = False
    said: tuple[str, ...] = ()

    @classmethod
    def of_dict(cls, kept: Mapping[str, Any]) -> Part:
        """The part that was kept as a mapping."""
        navigation = tuple((anchor, title) for anchor, title in kept["navigation"])
        page = SitePage(**kept["page"])
        return cls(page, kept["order"], navigation, kept["html"], kept["beside"], tuple(kept["said"]))


@dataclass(frozen=True)
class Beside:
    """A file that stands beside the pages: its name and its text."""

    name: str
    text: str


@dataclass(frozen=True)
class Data:
    """Where all measurements of a report are, with their keys.

    Attributes
    ----------
    file : str
        Name of the table beside the pages; empty where they are too many for one.
    count : int
        How many are too many.
    command : str
        What then writes them as tables.
    """

    file: str
    count: int = 0
    command: str = ""

    @property
    def place(self) -> str:
        """Where they are, in words."""
        return self.file or "the results file"


@dataclass(frozen=True)
class Cover:
    """What stands around the parts of a page.

    Attributes
    ----------
    title : str
        Of the report, where it is not that of a run.
    meta : mapping
        `preset` and `finished`, where they are known.
    data : Data
    links : tuple of (str, str)
        Addresses and titles of other reports.
    """

    title: str
    meta: Mapping[str, Any]
    data: Data
    links: tuple[tuple[str, str], ...] = ()


def places(parts: Sequence[Part]) -> dict[str, str]:
    """Files by the anchors that are on their pages."""
    return {anchor: part.page.file for part in parts for anchor in site.anchors(part.html)}


def pages(parts: Sequence[Part], cover: Cover) -> dict[str, str]:
    """HTML texts, by file, of the pages that some parts make."""
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
    """HTML text of the one page that some parts make; nothing in them leads to another file."""
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
    """Style and script that the pages of a report share, as files."""
    templates = environment(RuleTraits())
    return [Beside(name, templates.get_template(name).render()) for name in SHARED]


def write_beside(folder: Path, files: Sequence[Beside]) -> None:
    """Write files beside the pages."""
    for one in files:
        write(folder / one.name, one.text)
