"""The command that writes the HTML report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sdp_bench import values
from sdp_bench.commands import echo, options
from sdp_bench.commands.options import option

if TYPE_CHECKING:
    from sdp_bench.bench.results.folder import Stored
    from sdp_bench.reports.results import Results

HTML = Path("reports/html")


@options.command(example="sdp-bench report results more-results --output reports/html")
@options.argument("folders", values.RESULTS, nargs=-1, metavar="[FOLDER...]")
@option(
    "--leaderboard",
    "Write the leaderboard of FOLDER... instead: results of `sdp-bench run sdp-bench-1` "
    f"(default output: {HTML / 'leaderboard'}).",
    values.FLAG,
)
@options.database
@options.runs
@option("--committed/--no-committed", "Include or omit the report of the results that come with the package.")
@option(
    "--single-file",
    "Write one self-contained page, index.html, without the lists of measurements and without the "
    "committed results.",
    values.FLAG,
)
@option("--output", "Folder of the pages and of the table of measurements.", values.FOLDER, default=HTML)
@option(
    "--drill-down",
    "Measurements to show layer by layer, up to half a minute per measurement. Existing pages of other "
    "measurements are kept.",
    default="none",
    metavar="worst:N|KEY,...|none",
)
@options.users_code
@options.runtime_table
@options.config(either=[("run_ids", "all_runs"), ("folders", "database")])
def report(
    folders: tuple[Path, ...],
    leaderboard: bool,
    database: Path,
    run_ids: tuple[str, ...] | None,
    all_runs: bool,
    committed: bool,
    single_file: bool,
    output: Path,
    drill_down: str,
    rules: tuple[str, ...],
    nets: tuple[str, ...],
    runtime_table: Path,
) -> None:
    """Write the HTML report of runs and of the results that come with the package.

    The report shows the newest run in each FOLDER of results, or in that of --database; --run and --all-runs
    select others. If there are no results yet, the report shows the committed results only.

    Exit code: 2 if a key of --drill-down does not identify one measurement of a rule against an oracle; 3 if
    a drill-down fails or the committed results are damaged (the reason is printed; the report is written).
    """
    from dataclasses import replace

    from sdp_bench.bench.errors import RunFailedError
    from sdp_bench.bench.files import check_writable
    from sdp_bench.bench.results.folder import read
    from sdp_bench.reports import drilldown
    from sdp_bench.reports.committed import write_committed
    from sdp_bench.reports.folder import inside
    from sdp_bench.reports.page import COMMITTED, build
    from sdp_bench.reports.results import committed_results, results_of
    from sdp_bench.reports.site import PAGE

    if leaderboard:
        _write_leaderboard(folders, output)
        return
    if folders and options.given("database"):
        raise click.UsageError("FOLDER... and --database exclude each other")
    runtime_rows = options.timed_rows(runtime_table)
    _check_output(output, committed=committed, single_file=single_file)
    if (rules or nets) and drill_down == "none":
        raise click.UsageError("--rule and --net go with --drill-down")
    if run_ids and all_runs:
        raise click.UsageError("--run and --all-runs exclude each other")
    selects_results = folders or options.given("database", "run_ids", "all_runs", "drill_down")
    if committed and not selects_results and not database.exists():
        _write_committed_only(output, single_file=single_file)
        return

    stored = read(*(folders or [database]))
    options.say_notes(stored)
    results = results_of(stored, tuple(stored.runs) if all_runs else run_ids or (), runtime_rows)
    failures = 0
    if keys := drilldown.selected_keys(drill_down, results.frame):
        failures += _write_drilldowns(keys, stored, results, output, rules, nets)
    check_writable(output / PAGE)  # before the minute that the report of the committed results takes
    if committed:
        try:
            if not single_file:
                write_committed(inside(output, COMMITTED), _say)
            results = replace(results, committed=committed_results())
        except RunFailedError as error:  # the report of the run is still written
            _say(f"Error: {error}")
            failures += 1
    notes: list[str] = []
    echo(f"report: {build(results, output, say=notes.append, alone=single_file)}")
    if results.committed is not None and not single_file:
        echo(f"committed results: {output / COMMITTED / PAGE}")
    for note in notes:
        echo(note)
    if failures:
        raise SystemExit(options.FAILED)


def _say(line: str) -> None:
    echo(line, err=True)


def _write_leaderboard(folders: tuple[Path, ...], output: Path) -> None:
    from sdp_bench.reports.leaderboard import build

    if not folders:
        raise click.UsageError("--leaderboard needs the folders of results to rank: FOLDER...")
    given = options.given()
    unused = [flag for name, flag in given.items() if name not in ("folders", "leaderboard", "output")]
    if unused:
        raise click.UsageError(f"--leaderboard goes with --output alone, not with {', '.join(unused)}")
    folder = output if "output" in given else HTML / "leaderboard"
    echo(f"leaderboard: {build(folders, folder)}")


def _check_output(output: Path, *, committed: bool, single_file: bool) -> None:
    """Raise UserError before anything is computed if foreign files block those of the report."""
    from sdp_bench.reports.folder import check
    from sdp_bench.reports.page import COMMITTED, SHARED, TABLES
    from sdp_bench.reports.site import PAGE

    if single_file:
        check(output, [PAGE])
        return
    check(output, [PAGE, *TABLES, *SHARED])
    if committed:
        check(output / COMMITTED, [PAGE])


def _write_committed_only(output: Path, *, single_file: bool) -> None:
    """Write the report of the committed results, for a user who has not run anything yet."""
    from sdp_bench.bench.files import check_writable
    from sdp_bench.reports.committed import write_committed
    from sdp_bench.reports.folder import inside
    from sdp_bench.reports.page import COMMITTED, build
    from sdp_bench.reports.results import committed_results
    from sdp_bench.reports.site import PAGE

    folder = output if single_file else inside(output, COMMITTED)
    check_writable(folder / PAGE)
    page = build(committed_results(), folder, alone=True) if single_file else write_committed(folder, _say)
    _say("no results yet; `sdp-bench run --all --preset quick` makes some within minutes")
    echo(f"committed results: {page}")


def _write_drilldowns(
    keys: list[str],
    stored: Stored,
    results: Results,
    output: Path,
    rules: tuple[str, ...],
    nets: tuple[str, ...],
) -> int:
    """Write the pages of the measurements with these keys, and return how many of them failed."""
    from functools import partial

    from sdp_bench.bench.replay.replay import stored_measurement
    from sdp_bench.bench.rules import resolve
    from sdp_bench.progress import Screen
    from sdp_bench.reports import drilldown

    _, plugins = resolve(rules)
    measurement_of = partial(stored_measurement, stored, plugins=plugins, nets=nets)
    with Screen().meter("drill-downs") as progress:
        pages = drilldown.make(measurement_of, keys, output, progress, results.traits)
    echo(f"drill-downs: {len(pages)} of {len(keys)} made in {output / drilldown.FOLDER}")
    return len(keys) - len(pages)
