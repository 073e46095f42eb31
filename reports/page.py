"""The report: one self-contained HTML page, its data as CSV, and the measurements behind its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sdp_bench.bench.files import write, writing
from sdp_bench.bench.results.store import Store
from sdp_bench.reports.drilldown import page as drilldown
from sdp_bench.reports.numbers import sheets
from sdp_bench.reports.numbers.number import FOLDER, Number
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Section, tabulated
from sdp_bench.reports.section import sections as every_section
from sdp_bench.reports.writing import environment

PAGE = "index.html"
DATA = "results.csv"
COMMITTED = "committed"
"""Folder of the page of the committed results, in that of the report."""


def build(results: Results, folder: Path, sections: Sequence[Section] | None = None) -> Path:
    """Write the report of a run, and that of the committed results where these are given.

    Parameters
    ----------
    results : Results
    folder : Path
        Where ``index.html``, ``results.csv`` and the folder of lists go; made if need be. Each file is
        replaced as a whole or not at all.
    sections : sequence of Section, optional
        What pages are made of; by default every section that there is.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    RunFailedError
        If the folder cannot be written.
    """
    sections = every_section() if sections is None else sections
    with writing(folder):
        if results.committed is not None:
            _build_one(results.committed, folder / COMMITTED, sections)
        return _build_one(results, folder, sections)


def _build_one(results: Results, folder: Path, sections: Sequence[Section]) -> Path:
    text, numbers = page(results, sections)
    _write_numbers(results, numbers, folder)
    write(folder / DATA, results.frame.to_csv(index=False, lineterminator="\n"))
    return write(folder / PAGE, text)


def page(results: Results, sections: Sequence[Section] | None = None) -> tuple[str, list[Number]]:
    """HTML text of the report, and its numbers, whose lists :func:`build` writes.

    Parameters
    ----------
    results : Results
    sections : sequence of Section, optional
        By default every section that there is.

    Returns
    -------
    text : str
    numbers : list of Number
        Of those that rest on the same measurements only the first.
    """
    sections = every_section() if sections is None else sections
    results = tabulated(results, sections)
    shown = [(section, context) for section in sections if (context := section.build(results)) is not None]
    numbers: dict[tuple[int, ...], Number] = {}
    for section, context in shown:
        for number in section.numbers(results, context):
            numbers.setdefault(tuple(sorted(number.rows)), number)
    templates = environment(results.traits, {rows: number.address for rows, number in numbers.items()})
    text = templates.get_template("page.html").render(
        meta={"preset": "", "finished": ""} | dict(results.meta),
        title=results.title,
        measured=len(results.frame) > 0,
        navigation=[entry for section, context in shown for entry in section.navigation(context)],
        sections=[
            templates.get_template(str(section.template)).render(context) for section, context in shown
        ],
        link=f"{COMMITTED}/{PAGE}" if results.committed is not None else "",
        data=DATA,
    )
    return text, list(numbers.values())


def drill_downs(
    store: Store,
    keys: Sequence[str],
    folder: Path,
    progress: drilldown.Progress,
    *,
    trusted: bool = False,
) -> list[Path]:
    """Make drill-down pages for the report in a folder; :func:`build` then links to them.

    Parameters
    ----------
    store, keys, progress, trusted
        As :func:`sdp_bench.reports.drilldown.page.make` has them.
    folder : Path
        The report's.

    Returns
    -------
    list of Path
        Pages that were written.

    Raises
    ------
    UserError
        If a key is not that of one measurement, or of one that is never drilled into.
    RunFailedError
        If the folder cannot be written.
    """
    return drilldown.make(store, keys, folder / drilldown.FOLDER, progress, trusted=trusted)


def _write_numbers(results: Results, numbers: Sequence[Number], folder: Path) -> None:
    """Write the lists of measurements, and take away those of an older report but no other file."""
    frame = results.frame
    drilled = drilldown.hrefs(drilldown.current_pages(folder / drilldown.FOLDER, frame), up="../")
    command = drilldown.command("KEY", results.database, folder) if results.database else ""
    lists = folder / FOLDER
    template, written = environment(results.traits).get_template(str(sheets.TEMPLATE)), set()
    for sheet in sheets.sheets(numbers, frame, drilled, results.traits):
        text = template.render(sheet=sheet, data=DATA, command=command)
        written.add(write(lists / sheet.page.file, text))
    for old in set(lists.glob("*.html")) - written:
        if "numbers" in drilldown.tags(old):
            old.unlink(missing_ok=True)
