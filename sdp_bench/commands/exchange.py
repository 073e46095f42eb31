"""Commands on results: export (for a paper), diff, check and replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sdp_bench import values
from sdp_bench.bench.text import printable
from sdp_bench.commands import echo, options
from sdp_bench.commands.options import option
from sdp_bench.commands.validate import RESULTS as VALIDATED

if TYPE_CHECKING:
    from collections.abc import Mapping


@options.command("export", example="sdp-bench export --paper paper")
@option("--paper", "Folder for the tables, figures and text of a paper.", values.FOLDER, required=True)
@option("--committed", "Use the results that come with the package.", values.FLAG)
@options.database
@options.runs
def export_(
    paper: Path, committed: bool, database: Path, run_ids: tuple[str, ...] | None, all_runs: bool
) -> None:
    """Export results as the parts of a paper.

    The newest run (or --run, --all-runs) is exported: one LaTeX file per table (booktabs), the figures as PDF
    and SVG, paper.bib, a paragraph on reproducibility with versions, seeds, processor and commands, and
    main.tex, which includes all of them. If there are no results of that name, those that sdp-bench validate
    writes are used. Results are Parquet files, which need no export: see docs/results-format.md.
    """
    from sdp_bench.bench.results.folder import read
    from sdp_bench.progress import command_line
    from sdp_bench.reports.manuscript import write_manuscript
    from sdp_bench.reports.results import committed_results, results_of

    if committed and options.given("database", "run_ids", "all_runs"):
        raise click.UsageError("--committed takes no --database, --run or --all-runs")
    if run_ids and all_runs:
        raise click.UsageError("--run and --all-runs exclude each other")
    if not options.given("database") and not database.exists() and VALIDATED.exists():
        database = VALIDATED
    if committed:
        results = committed_results()
    else:
        stored = read(database)
        options.say_notes(stored)
        results = results_of(stored, tuple(stored.runs) if all_runs else run_ids or ())
    files = write_manuscript(results, paper, command_line())
    echo(f"{len(files)} files in {paper}; {files[-1]} has them all")


@options.command(example="sdp-bench diff before after")
@options.argument("a", values.RESULTS)
@options.argument("b", values.RESULTS)
def diff(a: Path, b: Path) -> None:
    """Compare the results in two folders measurement by measurement, in every field.

    Measurements that differ only in versions or in the time of the rule are counted separately.
    """
    from sdp_bench.bench.results.compare import compare
    from sdp_bench.bench.results.folder import read

    first, second = read(a), read(b)
    options.say_notes(first)
    options.say_notes(second)
    comparison = compare(first, second)
    echo(
        f"{comparison.equal} equal, {comparison.different} different, {comparison.only_a} only in {a}, "
        f"{comparison.only_b} only in {b}"
    )
    if comparison.other_code:
        echo(f"  of other code: {comparison.other_code}")
    if comparison.other_time:
        echo(f"  of other time: {comparison.other_time}")
    if comparison.different:
        counts = [f"{field}: {count}" for field, count in comparison.fields.most_common()]
        echo("  different in " + ", ".join(counts))
        echo(comparison.largest.to_string(index=False))


@click.group(cls=options.CommandGroup)
def results() -> None:
    """Verify results."""


@results.command(example="sdp-bench results check results")
@options.argument("folder", values.RESULTS)
def check(folder: Path) -> None:
    """Read every file in FOLDER, and compare its content with the digest in its name.

    Finished runs with missing measurements, and measurements of the same versions that contradict
    each other, are listed, too. The exit code is 3 if a file is damaged or a measurement is missing.
    """
    from sdp_bench.bench.results.checked import missing
    from sdp_bench.bench.results.folder import read

    stored = read(folder)
    lines = [*stored.notes, *missing(stored)]
    for line in lines:
        echo(line)
    counts = f"{len(stored.measurements)} measurements of {len(stored.runs)} runs"
    if lines:
        echo(f"{folder}: {counts}, with the faults above")
        raise SystemExit(options.FAILED)
    echo(f"{folder} is as it was written: {counts}")


@options.command(example="sdp-bench replay entries/sdp-bench --share 2%")
@options.argument("key", values.WORD, metavar="KEY|ENTRY")
@option("--share", "Share of the results in the folder ENTRY to measure again: 2%.", values.SHARE)
@option("--seed", "Random seed that chooses the share.", values.SEED, default=0)
@options.users_code
@options.limits
@options.database
def replay(
    key: str,
    share: float | None,
    seed: int,
    rules: tuple[str, ...],
    nets: tuple[str, ...],
    database: Path,
    **limits: Any,
) -> None:
    """Measure stored results again and compare: one measurement, or a share of all.

    KEY is unit/rule/metric as in results.csv; its numbers must be identical to the last bit. With --share,
    ENTRY is a folder of results, and numbers may differ by the rounding of another processor. The limits
    apply to each group of a share. Files of rules that lie in the folder ENTRY are found without --rule.

    If a measurement differs, the exit code is 1 with --share and 3 with a KEY.
    """
    if share is not None:
        if options.given("database"):
            raise click.UsageError("--share takes a folder of results as ENTRY, without --database")
        _replay_share(Path(key), share, seed, rules, nets, **limits)
        return
    if options.given("seed", "time_limit", "memory_limit"):
        raise click.UsageError("--seed, --time-limit and --memory-limit go with --share")
    import torch

    from sdp_bench.bench.replay.replay import identical, threads_of
    from sdp_bench.bench.replay.replay import replay as replay_measurement
    from sdp_bench.bench.results.folder import read
    from sdp_bench.bench.rules import resolve

    _, plugins = resolve(rules)
    stored = read(database)
    options.say_notes(stored)
    torch.set_num_threads(threads_of(stored, key))
    pairs = replay_measurement(stored, key, echo, plugins, nets)
    for before, again in pairs:
        name = f"{again['metric_spec']} {again['component'] or ''}".strip()
        echo(f"{name}\n  stored {_estimate(before)}\n  again  {_estimate(again)}")
    equal = all(identical(before, again) for before, again in pairs)
    echo("identical to the last bit" if equal else "DIFFERENT from what was stored")
    if not equal:
        raise SystemExit(options.FAILED)


def _replay_share(
    entry: Path,
    share: float,
    seed: int,
    rules: tuple[str, ...],
    nets: tuple[str, ...],
    *,
    time_limit: float,
    memory_limit: float | None,
) -> None:
    """Measure a share of an entry again and print the differences; exit with 1 if there are any."""
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.executors.local import Limits, begin_server
    from sdp_bench.bench.replay.replay import replay_share
    from sdp_bench.bench.results.folder import read
    from sdp_bench.progress import Screen

    begin_server()
    stored = read(entry)
    if stored.faults:
        raise UserError(stored.faults[0])
    options.say_notes(stored)
    with Screen().meter("groups") as bar:
        outcome = replay_share(
            stored,
            share,
            seed,
            rules=rules,
            nets=nets,
            folder=entry,
            limits=Limits(time_limit, memory_limit),
            on_group=bar.done,
        )
    for line in outcome.differences:
        echo(printable(line))
    verdict = f"{len(outcome.differences)} differences" if outcome.differences else "no difference"
    echo(
        f"{entry}: {outcome.drawn} of {outcome.measurements} measurements made again, seed {seed}: {verdict}"
    )
    if outcome.differences:
        raise SystemExit(options.BAD_VERDICT)


def _estimate(row: Mapping[str, Any]) -> str:
    import math

    from sdp_bench.bench.metrics import recorded_metric

    error = math.nan if recorded_metric(row["metric_spec"]).cells_vary else row["stderr"]

    def shown(number: float) -> str:
        return "unknown" if math.isnan(number) else f"{number:.4g}"

    floors = f"floor {shown(row['floor'])}, 95 % {shown(row['floor95'])}"
    return f"{row['value']:.10g} +- {shown(error)}, {floors} [{row['unit_of_measure']}]"
