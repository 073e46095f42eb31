"""Commands on results files: merge, export, import, diff, check and replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sdp_bench import values
from sdp_bench.bench.text import printable
from sdp_bench.commands import echo, options
from sdp_bench.commands.options import option
from sdp_bench.commands.validate import DATABASE as VALIDATED

if TYPE_CHECKING:
    from sdp_bench.bench.results.record import Record


@options.command(example="sdp-bench merge part1.sqlite part2.sqlite --output all.sqlite")
@options.argument("sources", values.FILE, nargs=-1, required=True, metavar="FILE...")
@option("-o", "Results file to create.", values.FILE, "--output", required=True)
def merge(sources: tuple[Path, ...], output: Path) -> None:
    """Merge the results of FILE... into a new file.

    Of different versions of a measurement the newest counts. Files that differ in a measurement of the same
    versions are not merged.
    """
    from sdp_bench.bench.results.exchange import merge as merge_files

    echo(f"{merge_files(sources, output, _tell_replaced)} measurements in {output}")


def _tell_replaced(count: int) -> None:
    echo(f"{count} measurements of older versions replaced", err=True)


@options.command("export", example="sdp-bench export --output tables --format parquet")
@options.database
@option("-o", "Folder for the tables.", values.FOLDER, "--output")
@option("--format", "Format of the tables: csv or parquet.", values.WORD, "fmt", default="csv")
@option("--weights/--no-weights", "Include or omit the weights of the nets.")
@option(
    "--digits",
    "Significant digits of standard errors and seconds, for example 4; values and floors then have ten "
    "(default: all digits).",
    values.Whole(3, 17),
)
@option("--paper", "Folder for the tables, figures and text of a paper.", values.FOLDER)
@option("--committed", "Use the results that come with the package (with --paper).", values.FLAG)
@options.runs
def export_(
    database: Path,
    output: Path | None,
    fmt: str,
    weights: bool,
    digits: int | None,
    paper: Path | None,
    committed: bool,
    numbers: tuple[int, ...] | None,
    all_runs: bool,
) -> None:
    """Export a results file as tables with a manifest, or as the parts of a paper.

    --paper exports the newest run (or --run, --all-runs): one LaTeX file per table (booktabs), the figures as
    PDF and SVG, paper.bib, a paragraph on reproducibility with versions, seeds, processor and commands, and
    main.tex, which includes all of them. If there is no results file of that name, it uses the one that
    sdp-bench validate writes.
    """
    from sdp_bench.bench.results.exchange import export
    from sdp_bench.bench.results.store import Store

    if (output is None) == (paper is None):
        raise click.UsageError("give a folder, as --output or as --paper")
    if output is None and options.given("fmt", "weights", "digits"):
        raise click.UsageError("--format, --weights and --digits go with --output")
    if paper is None and options.given("committed", "numbers", "all_runs"):
        raise click.UsageError("--committed, --run and --all-runs go with --paper")
    if committed and options.given("database", "numbers", "all_runs"):
        raise click.UsageError("--committed takes no --database, --run or --all-runs")
    if numbers and all_runs:
        raise click.UsageError("--run and --all-runs exclude each other")
    if output is not None:
        with Store(database) as store:
            files = export(store, output, fmt, weights=weights, digits=digits)
        echo(f"{len(files)} files in {output}, {sum(f.stat().st_size for f in files) / 1e6:.1f} MB")
    elif paper is not None:
        from sdp_bench.progress import command_line
        from sdp_bench.reports.manuscript import write_manuscript
        from sdp_bench.reports.results import committed_results, results_of

        if not options.given("database") and not database.exists() and VALIDATED.exists():
            database = VALIDATED
        if committed:
            results = committed_results()
        else:
            with Store(database) as store:
                results = results_of(store, store.runs() if all_runs else numbers or ())
        files = write_manuscript(results, paper, command_line())
        echo(f"{len(files)} files in {paper}; {files[-1]} has them all")


@options.command("import", example="sdp-bench import tables --database all.sqlite")
@options.argument("folder", values.FOLDER)
@option("--keep", "Keep a stored measurement unless FOLDER has one of newer versions.", values.FLAG)
@options.database
def import_(folder: Path, keep: bool, database: Path) -> None:
    """Add the exported tables in FOLDER to a results file; newer versions replace older ones.

    Without --keep, an import is refused if FOLDER has another value for a measurement of the same versions.
    Two kinds of processor can give different values.
    """
    from sdp_bench.bench.results.exchange import Export
    from sdp_bench.bench.results.store import Store

    exported = Export(folder).tables()
    with Store(database, writing=True) as store:
        echo(f"{store.add(exported, _tell_replaced, keep=keep)} new measurements in {database}")


@options.command(example="sdp-bench diff before.sqlite after.sqlite")
@options.argument("a", values.FILE)
@options.argument("b", values.FILE)
def diff(a: Path, b: Path) -> None:
    """Compare two results files measurement by measurement, in every field.

    Measurements that differ only in versions or in the time of the rule are counted separately.
    """
    from sdp_bench.bench.results.exchange import compare
    from sdp_bench.bench.results.store import Store

    with Store(a) as first, Store(b) as second:
        found = compare(first, second)
    echo(
        f"{found.equal} equal, {found.different} different, {found.only_a} only in {a}, "
        f"{found.only_b} only in {b}"
    )
    for what, count in {"code": found.other_code, "time": found.other_time}.items():
        if count:
            echo(f"  of other {what}: {count}")
    if found.different:
        echo("  different in " + ", ".join(f"{name}: {n}" for name, n in found.fields.most_common()))
        echo(found.largest.to_string(index=False))


@click.group(cls=options.Group)
def results() -> None:
    """Verify results files."""


@results.command(example="sdp-bench results check sdp-bench.sqlite")
@options.argument("file", values.FILE)
def check(file: Path) -> None:
    """Verify the checksums of FILE, every row and every index.

    The exit code is 3 if FILE is damaged.
    """
    from sdp_bench.bench.results.store import Store

    with Store(file) as store:
        rows = store.verify()
    echo(f"{file} is as it was written: {', '.join(f'{count} {name}' for name, count in rows.items())}")


@options.command(example="sdp-bench replay entries/sdp-bench-1 --share 2%")
@options.argument("key", values.WORD, metavar="KEY|ENTRY")
@option("--share", "Share of the results file or export ENTRY to measure again: 2%.", values.SHARE)
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
    """Measure stored results again and compare: one measurement, or a share of a results file.

    KEY is unit/rule/metric as in results.csv; its numbers must be identical to the last bit. With --share,
    ENTRY is a results file or a folder of exported tables, and numbers may differ by the rounding of another
    processor. The limits apply to each group of a share. Files of rules that lie in the folder ENTRY are
    found without --rule.

    If a measurement differs, the exit code is 1 with --share and 3 with a KEY.
    """
    if share is not None:
        if options.given("database"):
            raise click.UsageError("--share takes the path of a results file or export, without --database")
        _replay_share(Path(key), share, seed, rules, nets, **limits)
        return
    if options.given("seed", "time_limit", "memory_limit"):
        raise click.UsageError("--seed, --time-limit and --memory-limit go with --share")
    import torch

    from sdp_bench.bench.replay.replay import identical
    from sdp_bench.bench.replay.replay import replay as replay_measurement
    from sdp_bench.bench.results.store import Store
    from sdp_bench.bench.rules import resolve

    _, plugins = resolve(rules)
    with Store(database) as store:
        torch.set_num_threads(store.threads_of(key))
        pairs = replay_measurement(store, key, echo, plugins, nets)
    for stored, again in pairs:
        name = f"{again.metric} {again.component or ''}".strip()
        echo(f"{name}\n  stored {_estimate(stored)}\n  again  {_estimate(again)}")
    equal = all(identical(stored, again) for stored, again in pairs)
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
    from sdp_bench.bench.executors.local import Limits, begin_server
    from sdp_bench.bench.replay.replay import replay_share
    from sdp_bench.bench.results.exchange import opened
    from sdp_bench.progress import Screen

    begin_server()
    with opened(entry) as store, Screen().meter("groups") as bar:
        found = replay_share(
            store,
            share,
            seed,
            rules=rules,
            nets=nets,
            folder=entry if entry.is_dir() else None,
            limits=Limits(time_limit, memory_limit),
            on_group=bar.done,
        )
    for line in found.differences:
        echo(printable(line))
    verdict = f"{len(found.differences)} differences" if found.differences else "no difference"
    echo(f"{entry}: {found.drawn} of {found.measurements} measurements made again, seed {seed}: {verdict}")
    if found.differences:
        raise SystemExit(options.BAD_VERDICT)


def _estimate(record: Record) -> str:
    from sdp_bench.bench.metrics import recorded_metric

    error = None if recorded_metric(record.metric).cells_vary else record.stderr
    stderr, floor, floor95 = (
        "unknown" if number is None else f"{number:.4g}" for number in (error, record.floor, record.floor95)
    )
    return f"{record.value:.10g} +- {stderr}, floor {floor}, 95 % {floor95} [{record.unit_of_measure}]"
