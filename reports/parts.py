"""A page as parts, what sections made, put together; and the lists of measurements behind its numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdp_bench.reports.folder import tags, write
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.writing import environment

PAGE = "index.html"
"""File of a page, in its folder."""


@dataclass(frozen=True)
class Part:
    """What a section made.

    Attributes
    ----------
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

    order: int
    navigation: tuple[tuple[str, str], ...]
    html: str
    beside: bool = False
    said: tuple[str, ...] = ()

    @property
    def anchors(self) -> frozenset[str]:
        """What links can lead to in it."""
        return frozenset(re.findall(r'\bid="([^"]+)"', self.html))


@dataclass(frozen=True)
class Beside:
    """A file that stands beside a page: its name, its text, and its title where the page leads to it."""

    name: str
    text: str
    title: str = ""


@dataclass(frozen=True)
class Data:
    """Where all measurements of a page are, with their keys.

    Attributes
    ----------
    file : str
        Name of the table beside the page; empty where they are too many for one.
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
        Of the page, where it is not that of a run.
    meta : mapping
        `preset` and `finished`, where they are known.
    data : Data
    links : tuple of (str, str)
        Addresses and titles of other pages.
    """

    title: str
    meta: Mapping[str, Any]
    data: Data
    links: tuple[tuple[str, str], ...] = ()


def assembled(parts: Sequence[Part], cover: Cover) -> str:
    """HTML text of the page that some parts make."""
    ordered = sorted(parts, key=lambda part: part.order)
    return (
        environment(RuleTraits())
        .get_template("page.html")
        .render(
            title=cover.title,
            meta={"preset": "", "finished": ""} | dict(cover.meta),
            data=cover.data,
            links=cover.links,
            navigation=[entry for part in ordered for entry in part.navigation],
            sections=[part.html for part in ordered],
        )
    )


def write_lists(folder: Path, texts: Mapping[str, str]) -> None:
    """Write pages of lists, by file name, and take away those of an older report but no other file."""
    written = {write(folder / name, text) for name, text in texts.items()}
    for old in set(folder.glob("*.html")) - written:
        if "numbers" in tags(old):
            old.unlink(missing_ok=True)


def write_beside(folder: Path, files: Sequence[Beside]) -> tuple[tuple[str, str], ...]:
    """Write files beside a page; names and titles of those that it leads to."""
    for one in files:
        write(folder / one.name, one.text)
    return tuple((one.name, one.title) for one in files if one.title)
