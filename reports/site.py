"""Pages of a report, which its sections stand on; links inside a report lead to the page of their anchor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path

from sdp_bench.reports.folder import check, tags, write

# Each begins with letters, by which Python finds it a dozen times as fast: pages are megabytes.
_ANCHOR = re.compile(r'id="(?<![\w-]id=")([^"]+)"')
_INSIDE = re.compile(r'href="#(?<![\w-]href="#)([^"]+)"')
_HEADING = re.compile(r"<h2\b[^>]*>(?P<title>[^<]*)(?P<small><small>.*?</small>)?.*?</h2>", re.DOTALL)
_SECTION = re.compile(r'<section id="(?P<anchor>[^"]+)">\s*')
_OUTSIDE = re.compile(r'<a\b[^>]*\bhref="(?!#|\w+:)[^"]*"[^>]*>(.*?)</a>', re.DOTALL)


@dataclass(frozen=True, order=True)
class SitePage:
    """A page of a report.

    Attributes
    ----------
    rank : int
        Place in the navigation, of pages in a group that of the group.
    group : str
        Under which it stands with others of its kind; empty where it stands alone.
    file : str
        Its name, in the report's folder: all pages stand in one, so that links need not know from where.
    title : str
    """

    rank: int
    group: str
    file: str
    title: str


OVERVIEW = SitePage(0, "", "index.html", "Overview")
CHOICE = SitePage(1, "", "choice.html", "Which rule")
PAPER = SitePage(2, "", "paper.html", "The paper")
CLAIMS = SitePage(3, "", "claims.html", "The paper’s numbers")
CHARTS = SitePage(4, "", "charts.html", "Charts")
NETS = SitePage(7, "", "nets.html", "Nets")
MEASURED = SitePage(8, "", "measured.html", "How it was measured")


def suite(name: str, title: str) -> SitePage:
    """Page of one experiment, or of a part of it."""
    return SitePage(5, "Suites", f"suite-{name}.html", title)


def rule(name: str, label: str) -> SitePage:
    """Page of one propagation rule."""
    return SitePage(6, "Rules", f"rule-{name}.html", label)


def anchors(html: str) -> list[str]:
    """What links can lead to in some HTML."""
    return _ANCHOR.findall(html)


def before(tag: re.Pattern[str], html: str, end: int) -> re.Match[str] | None:
    """The tag, with what follows it, that ends at a place in some HTML; None where another one does."""
    return tag.fullmatch(html, max(html.rfind("<", 0, end), 0), end)


def resolved(html: str, places: Mapping[str, str], file: str) -> str:
    """HTML on the page of a file, whose links inside the report lead to the pages that their anchors are on.

    Parameters
    ----------
    html : str
    places : mapping of str to str
        Files by anchor. Links to others are left as they are.
    file : str

    Returns
    -------
    str
    """
    return _INSIDE.sub(lambda found: f'href="{address(found[1], places, file)}"', html)


def address(anchor: str, places: Mapping[str, str], file: str = "") -> str:
    """Where an anchor is, seen from the page of a file."""
    place = places.get(anchor, file)
    return f"#{anchor}" if place == file else f"{place}#{anchor}"


def untitled(sections: Sequence[str], title: str) -> tuple[list[str], str, str]:
    """Sections of a page without a lone heading that says the page's title again, which readers only hear.

    Parameters
    ----------
    sections : sequence of str
        HTML.
    title : str

    Returns
    -------
    sections : list of str
    anchor, beside : str
        Of what had the heading, and what stood beside the title there, as HTML; empty if none has.
    """
    headings = [
        (found, before(_SECTION, html, found.start()))
        for html in sections
        for found in _HEADING.finditer(html)
    ]
    lone = [(found, own) for found, own in headings if unescape(found["title"]).strip() == title and own]
    if len(headings) != 1 or not lone:
        return list(sections), "", ""
    ((heading, section),) = lone
    quiet = heading[0].replace("<h2>", '<h2 class="unseen">')
    return [html.replace(heading[0], quiet) for html in sections], section["anchor"], heading["small"] or ""


def alone(html: str) -> str:
    """HTML that leads to no other file: what was a link to one is its text."""
    return _OUTSIDE.sub(r"\1", html)


def write_pages(folder: Path, texts: Mapping[str, str], kind: str) -> None:
    """Write pages of one kind, by file name, and take away those of an older report but no other file.

    Parameters
    ----------
    folder : Path
    texts : mapping of str to str
    kind : str
        By which they say in a tag what they are.

    Raises
    ------
    UserError
        If a file of others has the name of one.
    """
    check(folder, texts)  # before any is written
    written = {write(folder / name, text) for name, text in texts.items()}
    for old in pages_of(folder, kind) - written:
        old.unlink(missing_ok=True)


def pages_of(folder: Path, kind: str) -> set[Path]:
    """Pages in a folder that say that they are of a kind."""
    return {path for path in folder.glob("*.html") if kind in tags(path)}


def menu(pages: Iterable[SitePage]) -> Sequence[tuple[str, Sequence[SitePage]]]:
    """Pages in the order of the navigation, those of a group together."""
    groups: dict[tuple[int, str], list[SitePage]] = {}
    for page in dict.fromkeys(pages):
        groups.setdefault((page.rank, page.group), []).append(page)
    return [(group, own) for (_, group), own in sorted(groups.items(), key=lambda item: item[0])]
