"""The report: a folder of HTML pages, its data as CSV, and lists of the measurements behind its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from ..bench.files import writing
from . import drilldown, site
from .folder import clear, inside, remove, write, write_files, write_only
from .numbers import FOLDER, Number, sheets
from .results import COMMITTED_TITLE, Results
from .section import Context, RenderedSection, Section, tabulated
from .section import sections as every_section
from .site import PAGE, SitePage, address, pages_of, write_pages
from .statistics.ranking import Labels
from .style.labels import plural
from .style.names import RuleTraits
from .tables import files as table_files
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


def files_by_anchor(parts: Sequence[RenderedSection]) -> dict[str, str]:
    """Return the file of the page that has each anchor."""
    return {anchor: part.page.file for part in parts for anchor in site.ANCHOR.findall(part.html)}


def pages(parts: Sequence[RenderedSection], around: Mapping[str, Any]) -> dict[str, str]:
    """HTML texts by file; `around` is from :func:`cover`."""
    files = files_by_anchor(parts)
    by_page: dict[SitePage, list[RenderedSection]] = {site.OVERVIEW: []}
    for part in sorted(parts, key=lambda part: part.order):
        by_page.setdefault(part.page, []).append(part)
    template = environment(RuleTraits()).get_template("page.html")
    texts = {}
    for page, page_parts in by_page.items():
        texts[page.file] = template.render(
            **around,
            shared="",
            page=page,
            menu=site.menu(by_page),
            contents=[(part.navigation, site.titled(part.html)) for part in page_parts],
            sections=[site.resolved(part.html, files, page.file) for part in page_parts],
            titled=sum(part.html.count("<h2") for part in page_parts) == 1,
        )
    return texts


def single(parts: Sequence[RenderedSection], around: Mapping[str, Any]) -> str:
    """HTML text of a single page that contains all parts and links to no other file."""
    ordered = sorted(parts, key=lambda part: (part.page, part.order))
    contents = [(part.navigation, ()) for part in ordered]
    sections = [site.alone(part.html) for part in ordered]
    variables = {"page": site.OVERVIEW, "menu": (), "contents": contents, "sections": sections}
    return rendered("page.html", RuleTraits(), variables | dict(around))


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
    for part in made:
        for line in part.notes:
            say(line)
    if alone and (old := pages_of(folder) - {PAGE}):
        count = plural(len(old), "page")
        say(f"{folder} still has {count} of an older report, to which this page does not lead")
    return folder / PAGE


def _write_folder(
    results: Results,
    folder: Path,
    made: Sequence[RenderedSection],
    numbers: Sequence[Number],
    files: Mapping[str, str],
) -> None:
    of_tables = {Path(name).name: text for name, text in files.items() if Path(name).parent.name}
    others = {name: text for name, text in files.items() if not Path(name).parent.name}
    write_files(folder, {name: rendered(name, RuleTraits(), {}) for name in SHARED})
    write_only(inside(folder, table_files.FOLDER), of_tables)
    links = [(f"{COMMITTED}/{PAGE}", COMMITTED_TITLE)] if results.committed else []
    if not links and (folder / COMMITTED).is_dir():  # left over from an older report, without links to it
        clear(inside(folder, COMMITTED))
    drilled = drilldown.current_pages(inside(folder, drilldown.FOLDER), results.frame)
    addresses = {key: escape(f"../{drilldown.FOLDER}/{name}") for key, name in drilled.items()}
    command = drilldown.command("KEY", results.database, folder) if results.database else ""
    table = write_table(results.frame, folder)
    pages_of_lists = lists(results, numbers, files_by_anchor(made), table, addresses, command)
    write_pages(inside(folder, FOLDER), pages_of_lists)
    write_pages(folder, pages(made, cover(results, table, links)) | others)


def parts(
    results: Results, sections: Sequence[Section]
) -> tuple[list[RenderedSection], list[Number], dict[str, str]]:
    """Return the parts of a report, its numbers with lists, and the files next to its pages.

    Numbers that rest on the same measurements share the list of the first one.
    """
    from .replication.claims import SUITES, numbers_of_claims

    results = tabulated(results, sections)
    has_claims = results.frame["experiment"].isin(SUITES.keys()).any()
    has_papers_settings = results.published or results.meta.get("preset") == PAPERS_OWN
    rulings = None
    if has_papers_settings or has_claims:
        from .replication.page import Rulings  # imports torch

        rulings = Rulings.of(results)
    contexts: list[tuple[Section, Context]] = []
    numbers: dict[Labels, Number] = {}
    for section in sections:
        context = section.build(results)
        if context is not None:
            contexts.append((section, context))
            for number in section.numbers(results, context):
                numbers.setdefault(number.rows, number)
    if rulings:
        for number in numbers_of_claims(results.frame, results.traits):
            numbers.setdefault(number.rows, number)
    templates = environment(results.traits, {rows: number.address for rows, number in numbers.items()})
    templates.globals["rulings"] = rulings
    made: list[RenderedSection] = []
    for section, context in contexts:
        template = templates.get_template(str(section.template))
        notes = tuple(section.notes(context))
        for page, variables in section.spread(context):
            navigation = tuple(section.navigation(variables))
            made.append(RenderedSection(page, section.order, navigation, template.render(variables), notes))
            notes = ()  # printed once, although the section may have several pages
    files: dict[str, str] = {}
    if rulings:
        from .replication.page import shown as part_of_rulings

        part, files = part_of_rulings(rulings, files_by_anchor(made))
        made.append(part)
    for section, context in contexts:
        files.update(section.files(results, context))
    return made, list(numbers.values()), files


def write_table(frame: pd.DataFrame, folder: Path) -> str:
    """Write all measurements: as CSV, or as Parquet if CSV would take most of the time; return the name."""
    csv, parquet = TABLES
    name = table_of(frame)
    if name == csv:
        write(folder / csv, as_csv(frame))
        remove(folder / parquet)  # of an older report
    else:
        write(folder / parquet, frame.to_parquet(compression="zstd", index=False))
        remove(folder / csv)
    return name


def table_of(frame: pd.DataFrame) -> str:
    """Return the name of the file with all measurements, one of :data:`TABLES`."""
    csv, parquet = TABLES
    return parquet if len(frame) > MOST_MEASUREMENTS else csv


def lists(
    results: Results,
    numbers: Sequence[Number],
    files: Mapping[str, str],
    table: str,
    drilled: Mapping[str, str] = MappingProxyType({}),
    command: str = "",
) -> dict[str, str]:
    """Pages of lists by file; each links back to the page with its numbers.

    `files` are those of the report's pages by anchor, and `drilled` has the addresses of drill-down pages by
    the key of their measurement.
    """
    template = environment(results.traits).get_template("numbers.html")
    texts = {}
    for sheet in sheets(numbers, results.frame, drilled, results.traits):
        page = sheet["page"]
        texts[page.file] = template.render(
            sheet=sheet, table=table, command=command, back=address(page.section, files), shared="../"
        )
    return texts
