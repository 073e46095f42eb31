"""The report: a folder of HTML pages, its data as CSV, and lists of the measurements behind its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from ..bench.files import writing
from . import drilldown, site
from .folder import clear, inside, remove, write, write_files
from .numbers import FOLDER, Number, sheets
from .results import COMMITTED_TITLE, Results
from .section import Part, Section, tabulated
from .section import sections as every_section
from .site import PAGE, SitePage, address, pages_of, write_pages
from .statistics.ranking import Labels
from .style.labels import plural
from .style.names import RuleTraits
from .tables.frame import MOST_MEASUREMENTS, as_csv
from .writing import environment, rendered

TABLES = "results.csv", "results.parquet"
"""File of all measurements, up to `MOST_MEASUREMENTS` of them and above."""
COMMITTED = "committed"
"""Folder of the page of the committed results inside the report's."""
SHARED = ("report.css", "report.js")
"""Style sheet and script shared by all pages; inlined they would be most of many pages."""
PAPERS_OWN = "paper"
"""Preset with the sizes of the paper."""


def cover(results: Results, table: str, links: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    """Variables of ``page.html`` that are the same on every page.

    `table` is the file with all measurements, empty if there is none, and `links` are addresses and titles of
    other reports.
    """
    # Committed results are of several runs, each with its own preset.
    preset = "" if results.published else results.meta.get("preset") or ""
    meta = {"preset": preset, "finished": results.meta.get("finished") or ""}
    return {"title": results.title, "meta": meta, "table": table, "links": links}


def places(parts: Sequence[Part]) -> dict[str, str]:
    return {anchor: part.page.file for part in parts for anchor in site.ANCHOR.findall(part.html)}


def pages(parts: Sequence[Part], around: Mapping[str, Any]) -> dict[str, str]:
    """HTML texts by file; `around` is from :func:`cover`."""
    where = places(parts)
    by_page: dict[SitePage, list[Part]] = {site.OVERVIEW: []}
    for part in sorted(parts, key=lambda part: part.order):
        by_page.setdefault(part.page, []).append(part)
    template = environment(RuleTraits()).get_template("page.html")
    made = {}
    for page, own in by_page.items():
        made[page.file] = template.render(
            **around,
            shared="",
            page=page,
            menu=site.menu(by_page),
            navigation=[entry for part in own for entry in part.navigation],
            sections=[site.resolved(part.html, where, page.file) for part in own],
            titled=sum(part.html.count("<h2") for part in own) == 1,
        )
    return made


def single(parts: Sequence[Part], around: Mapping[str, Any]) -> str:
    """HTML text of a single page that contains all parts and links to no other file."""
    ordered = sorted(parts, key=lambda part: (part.page, part.order))
    navigation = [entry for part in ordered for entry in part.navigation]
    sections = [site.alone(part.html) for part in ordered]
    own = {"page": site.OVERVIEW, "menu": (), "navigation": navigation, "sections": sections}
    return rendered("page.html", RuleTraits(), own | dict(around))


def build(
    results: Results,
    folder: Path,
    sections: Sequence[Section] | None = None,
    say: Callable[[str], object] = lambda _: None,
    *,
    alone: bool = False,
) -> Path:
    """Write the report of a run and return its first page.

    `folder` is created if it does not exist. Each file is replaced atomically. All measurements are written
    to one of :data:`TABLES`. `sections` are those of the report (default: all), and `say` receives the lines
    that sections print on the terminal. If `alone`, the report is a single page without other files and
    without links to lists of measurements; other files in `folder` stay. Raises RunFailedError if the folder
    is not writable.
    """
    with writing(folder):
        made, numbers, files = parts(results, every_section() if sections is None else sections)
        if alone:
            write(folder / PAGE, single(made, cover(results, "")))
        else:
            _write_folder(results, folder, made, numbers, files)
    for line in (line for part in made for line in part.said):
        say(line)
    if alone and (old := pages_of(folder) - {PAGE}):
        count = plural(len(old), "page")
        say(f"{folder} still has {count} of an older report, to which this page does not lead")
    return folder / PAGE


def _write_folder(
    results: Results, folder: Path, made: Sequence[Part], numbers: Sequence[Number], files: Mapping[str, str]
) -> None:
    write_files(folder, {name: rendered(name, RuleTraits(), {}) for name in SHARED} | dict(files))
    links = [(f"{COMMITTED}/{PAGE}", COMMITTED_TITLE)] if results.committed else []
    if not links and (folder / COMMITTED).is_dir():  # left over from an older report, without links to it
        clear(inside(folder, COMMITTED))
    drilled = drilldown.current_pages(inside(folder, drilldown.FOLDER), results.frame)
    drilled = {key: escape(f"../{drilldown.FOLDER}/{name}") for key, name in drilled.items()}
    command = drilldown.command("KEY", results.database, folder) if results.database else ""
    table = write_table(results.frame, folder)
    pages_of_lists = lists(results, numbers, places(made), table, drilled, command)
    write_pages(inside(folder, FOLDER), pages_of_lists)
    write_pages(folder, pages(made, cover(results, table, links)))


def parts(results: Results, sections: Sequence[Section]) -> tuple[list[Part], list[Number], dict[str, str]]:
    """Return the parts of a report, its numbers with lists, and the files next to its pages.

    Numbers that rest on the same measurements share the list of the first one.
    """
    from .replication.claims import SUITES, numbers_of_claims

    results = tabulated(results, sections)
    claims = results.frame["experiment"].isin(SUITES.keys()).any()
    paper = results.published or results.meta.get("preset") == PAPERS_OWN
    rulings = None
    if paper or claims:
        from .replication.page import Rulings  # imports torch

        rulings = Rulings.of(results)
    shown = [(section, context) for section in sections if (context := section.build(results)) is not None]
    numbers: dict[Labels, Number] = {}
    listed = chain.from_iterable(section.numbers(results, context) for section, context in shown)
    for number in chain(listed, numbers_of_claims(results.frame, results.traits) if rulings else ()):
        numbers.setdefault(number.rows, number)
    templates = environment(results.traits, {rows: number.address for rows, number in numbers.items()})
    templates.globals["rulings"] = rulings
    made = []
    for section, context in shown:
        template = templates.get_template(str(section.template))
        said = tuple(section.said(context))
        for page, own in section.spread(context):
            navigation = tuple(section.navigation(own))
            made.append(Part(page, section.order, navigation, template.render(own), said))
            said = ()
    files: dict[str, str] = {}
    if rulings:
        from .replication.page import shown as shown_rulings

        ruled, files = shown_rulings(rulings, places(made))
        made.append(ruled)
    return made, list(numbers.values()), files


def write_table(frame: pd.DataFrame, folder: Path) -> str:
    """Write all measurements: as CSV, or as Parquet if CSV would take most of the time; return the name."""
    name = table_of(frame)
    (old,) = {*TABLES} - {name}
    write(
        folder / name,
        as_csv(frame) if name == TABLES[0] else frame.to_parquet(compression="zstd", index=False),
    )
    remove(folder / old)  # of an older report
    return name


def table_of(frame: pd.DataFrame) -> str:
    """Return the name of the file with all measurements, one of :data:`TABLES`."""
    return TABLES[len(frame) > MOST_MEASUREMENTS]


def lists(
    results: Results,
    numbers: Sequence[Number],
    where: Mapping[str, str],
    table: str,
    drilled: Mapping[str, str] = MappingProxyType({}),
    command: str = "",
) -> dict[str, str]:
    """Pages of lists by file; each links back to the page with its numbers."""
    template = environment(results.traits).get_template("numbers.html")
    made = {}
    for sheet in sheets(numbers, results.frame, drilled, results.traits):
        page = sheet["page"]
        around = {"table": table, "command": command, "back": address(page.section, where), "shared": "../"}
        made[page.file] = template.render(sheet=sheet, **around)
    return made
