"""The report: one self-contained HTML page, its data as CSV, and the measurements behind its numbers."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from sdp_bench.bench.files import writing
from sdp_bench.bench.results.store import Store
from sdp_bench.reports import committed
from sdp_bench.reports.committed import Committed
from sdp_bench.reports.drilldown import page as drilldown
from sdp_bench.reports.folder import inside, remove, replacing, write
from sdp_bench.reports.numbers import sheets
from sdp_bench.reports.numbers.number import FOLDER, Number
from sdp_bench.reports.parts import (
    PAGE,
    Beside,
    Cover,
    Data,
    Part,
    assembled,
    write_beside,
    write_lists,
)
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Section, tabulated
from sdp_bench.reports.section import sections as every_section
from sdp_bench.reports.statistics.rows import Labels, labels_of
from sdp_bench.reports.tables import data
from sdp_bench.reports.writing import environment

DATA = "results.csv"
PAPERS_OWN = "paper"
"""Preset at the paper's own size."""


def build(
    results: Results,
    folder: Path,
    sections: Sequence[Section] | None = None,
    say: Callable[[str], None] | None = None,
) -> Path:
    """Write the report of a run, and beside it that of the committed results where these are given.

    Parameters
    ----------
    results : Results
    folder : Path
        Where ``index.html``, ``results.csv`` and the folder of lists go; made if need be. Each file is
        replaced as a whole or not at all. Of more than :data:`sdp_bench.reports.tables.data.MOST`
        measurements there is no ``results.csv``: the page has the command that exports them.
    sections : sequence of Section, optional
        What the page is made of; by default every section that there is.
    say : callable of str, optional
        Where the sections' lines for the command go when the page is written.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    RunFailedError
        If the folder cannot be written.
    """
    with writing(folder):
        made, numbers = parts(results, every_section() if sections is None else sections)
        links = write_beside(folder, _beside(results, made))
        if results.committed is not None:
            here = [one for one in made if one.beside]
            results.committed.show(inside(folder, committed.FOLDER), here, [(f"../{PAGE}", "This run")])
            links = (*links, (f"{committed.FOLDER}/{PAGE}", committed.TITLE))
        drilled = drilldown.hrefs(
            drilldown.current_pages(inside(folder, drilldown.FOLDER), results.frame), up="../"
        )
        command = drilldown.command("KEY", results.database, folder) if results.database else ""
        table = _write_table(results, folder)
        _write_numbers(results, numbers, inside(folder, FOLDER), table, drilled, command)
        page = write(folder / PAGE, assembled(made, Cover(results.title, results.meta, table, links)))
    for line in (line for one in made for line in one.said):
        if say:
            say(line)
    return page


def keep(results: Results, folder: Path, sections: Sequence[Section] | None = None) -> Committed:
    """Make the page of the committed results, for reports to show.

    Parameters
    ----------
    results : Results
    folder : Path
        Made if need be.
    sections : sequence of Section, optional
        As :func:`build` has them.

    Returns
    -------
    Committed
    """
    folder.mkdir(parents=True, exist_ok=True)
    made, numbers = parts(results, every_section() if sections is None else sections)
    _write_numbers(results, numbers, folder / FOLDER, Data(committed.DATA))
    finished = results.meta.get("finished") or ""
    return Committed.keep(folder, results.frame, made, finished, _beside(results, made))


def parts(results: Results, sections: Sequence[Section]) -> tuple[list[Part], list[Number]]:
    """Parts of a page, and its numbers, whose lists :func:`build` writes.

    Parameters
    ----------
    results : Results
    sections : sequence of Section

    Returns
    -------
    parts : list of Part
    numbers : list of Number
        Of those that rest on the same measurements only the first.
    """
    results = tabulated(results, sections)
    shown = [(section, context) for section in sections if (context := section.build(results)) is not None]
    numbers: dict[Labels, Number] = {}
    for section, context in shown:
        for number in section.numbers(results, context):
            numbers.setdefault(labels_of(number.rows), number)
    templates = environment(results.traits, {rows: number.address for rows, number in numbers.items()})
    made = [
        Part(
            section.order,
            tuple(section.navigation(context)),
            templates.get_template(str(section.template)).render(context),
            section.beside,
            tuple(section.said(context)),
        )
        for section, context in shown
    ]
    return made, list(numbers.values())


def _beside(results: Results, made: Sequence[Part]) -> list[Beside]:
    """Pages beside that made of some parts: what results say to the paper, where they are of its size."""
    if not (results.published or results.meta.get("preset") == PAPERS_OWN):
        return []
    from sdp_bench.reports.replication import page  # which runs rules

    return page.files(results, frozenset().union(*(part.anchors for part in made)))


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
    return drilldown.make(store, keys, inside(folder, drilldown.FOLDER), progress, trusted=trusted)


def _write_table(results: Results, folder: Path) -> Data:
    """Write all measurements beside the page, unless that would be the longest part of the work."""
    count = len(results.frame)
    if results.database is None or count <= data.MOST:
        with replacing(folder / DATA) as file:
            file.writelines(data.lines(results.frame))
        return Data(DATA)
    remove(folder / DATA)  # an older report's
    export = ["sdp-bench", "export", "--database", str(results.database), "--output", "tables"]
    return Data("", count, shlex.join(export))


def _write_numbers(
    results: Results,
    numbers: Sequence[Number],
    folder: Path,
    table: Data,
    drilled: Mapping[str, str] = MappingProxyType({}),
    command: str = "",
) -> None:
    template = environment(results.traits).get_template(str(sheets.TEMPLATE))
    made = sheets.sheets(numbers, results.frame, drilled, results.traits)
    texts = {one.page.file: template.render(sheet=one, data=table, command=command) for one in made}
    write_lists(folder, texts)
