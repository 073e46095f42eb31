"""The command that writes the HTML report."""

from __future__ import annotations

from pathlib import Path

import click

from sdp_bench import values
from sdp_bench.commands import echo, options
from sdp_bench.commands.options import option

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
@options.config(either=[("numbers", "all_runs"), ("folders", "database")])
def report(
    folders: tuple[Path, ...],
    leaderboard: bool,
    database: Path,
    numbers: tuple[str, ...] | None,
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
    from functools import partial

    from sdp_bench.bench.errors import RunFailedError
    from sdp_bench.bench.files import check_writable
    from sdp_bench.bench.results.folder import read
    from sdp_bench.bench.rules import resolve
    from sdp_bench.progress import Screen
    from sdp_bench.reports import drilldown
    from sdp_bench.reports.committed import write_committed
    from sdp_bench.reports.folder import check, inside
    from sdp_bench.reports.page import COMMITTED, SHARED, TABLES, build
    from sdp_bench.reports.results import committed_results, results_of
    from sdp_bench.reports.site import PAGE

    if leaderboard:
        from sdp_bench.reports.leaderboard import build as build_leaderboard

        if not folders:
            raise click.UsageError("--leaderboard needs the folders of results to rank: FOLDER...")
        given = options.given()
        if others := [name for key, name in given.items() if key not in ("folders", "leaderboard", "output")]:
            raise click.UsageError(f"--leaderboard goes with --output alone, not with {', '.join(others)}")
        folder = output if "output" in given else HTML / "leaderboard"
        echo(f"leaderboard: {build_leaderboard(folders, folder)}")
        return
    if folders and options.given("database"):
        raise click.UsageError("FOLDER... and --database exclude each other")
    say = partial(echo, err=True)
    timed = options.timed_rows(runtime_table)
    check(output, (PAGE,) if single_file else (PAGE, *TABLES, *SHARED))
    if committed and not single_file:
        check(output / COMMITTED, (PAGE,))
    if (rules or nets) and drill_down == "none":
        raise click.UsageError("--rule and --net go with --drill-down")
    if numbers and all_runs:
        raise click.UsageError("--run and --all-runs exclude each other")
    asked = folders or options.given("database", "numbers", "all_runs", "drill_down")
    if committed and not asked and not database.exists():
        place = output if single_file else inside(output, COMMITTED)
        check_writable(place / PAGE)
        shown = build(committed_results(), place, alone=True) if single_file else write_committed(place, say)
        say("no results yet; `sdp-bench run --all --preset quick` makes some within minutes")
        echo(f"committed results: {shown}")
        return
    missing = 0
    stored = read(*(folders or [database]))
    options.say_notes(stored)
    results = results_of(stored, [*stored.runs] if all_runs else numbers or (), timed)
    keys = drilldown.selected_keys(drill_down, results.frame)
    if keys:
        from sdp_bench.bench.replay.replay import stored_measurement

        measurement_of = partial(stored_measurement, stored, plugins=resolve(rules)[1], nets=nets)
        with Screen().meter("drill-downs") as progress:
            made = drilldown.make(measurement_of, keys, output, progress, results.traits)
        missing = len(keys) - len(made)
        echo(f"drill-downs: {len(made)} of {len(keys)} made in {output / drilldown.FOLDER}")
    check_writable(output / PAGE)  # before the page of the committed results is made
    if committed:
        try:
            if not single_file:
                write_committed(inside(output, COMMITTED), say)
            results = replace(results, committed=committed_results())
        except RunFailedError as error:
            say(f"Error: {error}")
            missing += 1
    said: list[str] = []
    echo(f"report: {build(results, output, say=said.append, alone=single_file)}")
    if results.committed is not None and not single_file:
        echo(f"committed results: {output / COMMITTED / PAGE}")
    for line in said:
        echo(line)
    if missing:
        raise SystemExit(options.FAILED)
