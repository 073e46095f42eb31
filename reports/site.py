"""Pages of a report, and links between them, which lead to the page of their anchor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .folder import remove, write_files, written

# Patterns begin with letters, which makes `re` search ten times faster: pages have megabytes.
ANCHOR = re.compile(r'id="(?<![\w-]id=")([^"]+)"')
_TITLED = re.compile(r'<(?:figure id="([^"]+)" class="charts">\s*<h3|h3 id="([^"]+)")>(.*?)</h3>', re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_INSIDE = re.compile(r'href="#(?<![\w-]href="#)([^"]+)"')
_DOWNLOAD = re.compile(r"<a download\b[^>]*>.*?</a>\s*", re.DOTALL)
_OUTSIDE = re.compile(r'<a\b[^>]*\bhref="(?!#|\w+:)[^"]*"[^>]*>(.*?)</a>', re.DOTALL)


@dataclass(frozen=True, order=True)
class SitePage:
    """A page of a report, in the same folder as all others.

    `rank` is the position in the navigation (of the group, for pages of a group). `group` is the heading that
    related pages share, empty for a page on its own.
    """

    rank: int
    group: str
    file: str
    title: str


OVERVIEW = SitePage(0, "", "index.html", "Overview")
PAGE = OVERVIEW.file
"""File name of a report's first page."""
CHOICE = SitePage(1, "", "choice.html", "Which rule")
PAPER = SitePage(2, "", "paper.html", "The paper")
CHARTS = SitePage(4, "", "charts.html", "Charts")
SPEED = SitePage(3, "", "speed.html", "Speed")
NETS = SitePage(7, "", "nets.html", "Nets")
MEASURED = SitePage(8, "", "measured.html", "How it was measured")


def suite(name: str, title: str) -> SitePage:
    """Return the page of an experiment."""
    return SitePage(5, "Suites", f"suite-{name}.html", title)


def rule(name: str, label: str) -> SitePage:
    """Return the page of a rule."""
    return SitePage(6, "Rules", f"rule-{name}.html", label)


def titled(html: str) -> list[tuple[str, str]]:
    """Anchors and titles, as HTML, of the figures and of the headings within sections that have an anchor."""
    return [(figure or heading, _TAG.sub("", title)) for figure, heading, title in _TITLED.findall(html)]


def resolved(html: str, files: Mapping[str, str], file: str) -> str:
    """Make links on the page `file` lead to the files of their anchors; `files` are by anchor."""
    return _INSIDE.sub(lambda link: f'href="{address(link[1], files, file)}"', unbroken(html))


def address(anchor: str, files: Mapping[str, str], file: str = "") -> str:
    """Address of an anchor, as seen from the page `file`; an unknown anchor counts as on this page."""
    target = files.get(anchor, file)
    return f"#{anchor}" if target == file else f"{target}#{anchor}"


def alone(html: str) -> str:
    """Replace links to other files by their texts, and remove those that download a file."""
    return _OUTSIDE.sub(r"\1", _DOWNLOAD.sub("", unbroken(html)))


def unbroken(html: str) -> str:
    """Keep numbers with their per cent signs, and ``1 − TV``, on one line."""
    return html.replace(" %", "\u00a0%").replace("1 − TV", "1\u00a0−\u00a0TV")


def write_pages(folder: Path, texts: Mapping[str, str]) -> None:
    """Write pages by file name, and remove our other pages.

    Raises UserError if a foreign file is in the way.
    """
    write_files(folder, texts)
    for name in pages_of(folder) - texts.keys():
        remove(folder / name)


def pages_of(folder: Path) -> set[str]:
    return {name for name in written(folder) if name.endswith(".html")}


def menu(pages: Iterable[SitePage]) -> Sequence[tuple[str, Sequence[SitePage]]]:
    """Return headings with their pages, in the order of the navigation."""
    groups: dict[tuple[int, str], list[SitePage]] = {}
    for page in dict.fromkeys(pages):
        groups.setdefault((page.rank, page.group), []).append(page)
    return [(group, groups[rank, group]) for rank, group in sorted(groups)]
