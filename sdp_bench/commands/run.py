"""The commands ``run`` and ``runtime``, which measure, and ``list``, which lists what can be run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sdp_bench import values
from sdp_bench.commands import echo, options
from sdp_bench.commands.options import option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from sdp_bench.bench.experiments import Experiment
    from sdp_bench.bench.runtime.table import Row


@options.command("list", example="sdp-bench list --preset quick")
@option("--preset", "Preset of the sizes shown.", values.Choice(("smoke", "quick", "paper")), default="paper")
def list_(preset: str) -> None:
    """List the experiments, presets, metrics, data sets and rules."""
    echo("\n".join([*_listed(preset)]))  # everything, or only an error


def _listed(preset: str) -> Iterator[str]:
    import sdp_ref
    from sdp_bench.bench.datasets import names
    from sdp_bench.bench.datasets.base import Dataset
    from sdp_bench.bench.experiments import PRESETS, experiments
    from sdp_bench.bench.experiments import preset as preset_of
    from sdp_bench.bench.metrics import metric, metrics
    from sdp_bench.bench.metrics.references import references
    from sdp_bench.bench.noise import FORMS
    from sdp_bench.bench.plugins.plugin import ENTRY_POINTS
    from sdp_bench.bench.rules import GROUP, PEERS, built_in
    from sdp_ref.registry import installed

    settings = preset_of(preset)
    yield f"Experiments (nets x inputs, or seeds, as in the preset {preset})"
    for experiment in experiments().values():
        yield f"  {experiment.name}\n      {experiment.description}\n      {experiment.extent(settings)}"
    yield "\nPresets"
    for name, preset_settings in PRESETS.items():
        metric_options = preset_settings.metric_options
        points = metric("w1", metric_options).points
        certified_points = metric("w1_certified", metric_options).points
        yield (
            f"  {name:<8}{preset_settings.design.net_source} nets, {preset_settings.sampling.samples} "
            f"samples, W1 on {points} points, certified on {certified_points}"
        )
    yield f"\nNoise\n  {', '.join(FORMS)}"
    yield f"\nMetrics\n  {', '.join(metrics())}"
    yield f"\nData sets\n  {', '.join(names(Dataset))}"
    yield f"\nRules\n  {', '.join(sdp_ref.rules())}\n  with parameters: monte_carlo:samples=100"
    yield f"  references: {', '.join(references())}"
    yield f"  adapters of other packages: {', '.join(PEERS)}; {GROUP} for all installed ones"
    installed_rules = installed(ENTRY_POINTS, built_in())
    yield ", ".join(["  your own: path/to/rule.py:MyRule", "package.module:MyRule", *installed_rules])


@options.command(
    example="sdp-bench run iris-tv --rules sdp,dvia --sigma 0.1,1 --depth 4", sections=options.SECTIONS
)
@options.argument("experiments", values.WORD, nargs=-1, metavar="EXPERIMENT...")
@option("--all", "Run all experiments that the preset includes.", values.FLAG, "all_experiments")
@options.preset
@options.config(either=[("all_experiments", "experiments")])
@options.settings
@options.jobs
@option(
    "--executor", "Local processes, or a Dask cluster.", values.Choice(("local", "dask")), default="local"
)
@option("--scheduler", "Address of a Dask scheduler; by default --executor dask starts a local cluster.")
@option("--shard", "Part i of n of the groups, written i/n.", values.SHARD)
@option("--group-limit", "Time limit per group in seconds.", values.SECONDS)
@option("--memory-limit", "Memory limit per worker in GiB (resident).", values.GIBIBYTES)
@options.database
def run(
    experiments: tuple[str, ...],
    all_experiments: bool,
    preset: str,
    jobs: int | None,
    executor: str,
    scheduler: str | None,
    shard: tuple[int, int] | None,
    group_limit: float | None,
    memory_limit: float | None,
    database: Path,
    **overrides: Any,
) -> None:
    """Run EXPERIMENT... (or --all) and store the results; stored measurements are skipped.

    In a file of --config the experiments have the key `experiments`.
    """
    from sdp_bench.bench.environment import check_device
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.executors.local import Limits, limited
    from sdp_bench.bench.experiments import chosen
    from sdp_bench.bench.experiments import experiments as known_experiments
    from sdp_bench.bench.experiments import preset as preset_of
    from sdp_bench.bench.runs.driver import Request
    from sdp_bench.bench.runs.driver import run as run_all
    from sdp_bench.progress import Screen, command_line

    known = known_experiments()
    if all_experiments == bool(experiments):
        raise UserError(f"name experiments to run, or --all; experiments: {', '.join(known)}")
    click.get_current_context().with_resource(limited(Limits(group_limit, memory_limit)))
    given = {name: value for name, value in overrides.items() if value is not None}
    settings = preset_of(preset, given)
    requested = chosen(experiments)
    if all_experiments:
        requested = [experiment for experiment in known.values() if not experiment.size(settings).on_request]
    _check_options(requested, given)
    for experiment in requested:
        experiment.check(settings)
    device = settings.sampling.device
    check_device(device)
    make_executor = _executor(executor, scheduler, group_limit, memory_limit)
    if jobs is None and device.startswith("cuda"):
        jobs = 1
    if scheduler is None:  # a cluster has its own cores
        jobs = options.at_most_cores(jobs)
    request = Request(requested, settings, None, command_line(), preset, shard or (1, 1))
    _, failures = run_all(database, request, jobs, make_executor, Screen())
    if failures:
        raise SystemExit(options.FAILED)


def _executor(
    where: str, scheduler: str | None, group_limit: float | None, memory_limit: float | None
) -> Callable[[int, int], Executor]:
    """Factory of executors with given numbers of workers and threads per worker."""
    from sdp_bench.bench.errors import UserError

    if scheduler and where != "dask":
        raise UserError("--scheduler goes with --executor dask")
    if where == "local":
        from sdp_bench.bench.executors.local import LocalProcesses

        return lambda jobs, threads: LocalProcesses(jobs, threads, group_limit, memory_limit)
    if group_limit or memory_limit:
        raise UserError("--group-limit and --memory-limit are for local workers; a Dask cluster has its own")
    from sdp_bench.bench.executors.dask import DaskWorkers, check

    check(scheduler)
    return lambda jobs, threads: DaskWorkers(scheduler, jobs, threads)


def _check_options(experiments: Sequence[Experiment], given: Mapping[str, Any]) -> None:
    """Raise UserError for options that no requested experiment uses."""
    from sdp_bench.bench.errors import UserError

    unused = []
    for param in click.get_current_context().command.params:
        name = param.name
        if name in given and not any(experiment.takes(name) for experiment in experiments):
            spellings = param.secondary_opts if given[name] is False else param.opts
            unused.append(max(spellings, key=len))
    if unused:
        names = ", ".join(experiment.name for experiment in experiments)
        raise UserError(f"{', '.join(sorted(unused))} cannot be used with {names}")


@options.command(example="sdp-bench runtime --preset smoke")
@option(
    "--preset",
    "What to time: smoke, quick or paper (batches of 128); dimensions (inputs and outputs); dvia (the "
    "MNIST CNN).",
    default="quick",
)
@options.device
@option("--threads", "Number of CPU threads of torch.", values.WORKERS, default=1)
@options.runtime_table
def runtime(preset: str, device: str, threads: int, runtime_table: Path) -> None:
    """Time the rules on image nets, relative to a regular forward pass (paper: Table 6).

    New timings replace those of the same net and phase in the table as soon as they are measured; other rows
    are kept.
    """
    import torch

    from sdp_bench.bench import files
    from sdp_bench.bench.environment import check_device
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.runtime import table

    check_device(device)
    files.check_writable(runtime_table)
    before = options.timed_rows(runtime_table)
    torch.set_num_threads(threads)

    rows: list[Row] = []

    def keep(row: Row) -> None:
        """Store each row at once: on a large net a later method may take minutes, or be interrupted."""
        rows.append(row)
        timed = {(row.architecture, row.phase) for row in rows}
        others = [row for row in before if (row.architecture, row.phase) not in timed]
        table.save([*others, *rows], runtime_table)
        name = f"{row.architecture} {row.phase} {row.method}"
        echo(f"{name:<50} {row.ratio:8.2f} times, {row.seconds * 1e3:.1f} ms", err=True)

    try:
        table.measure(preset, device, on_skip=lambda line: echo(line, err=True), on_row=keep)
    except ValueError as error:
        raise UserError(str(error)) from error
    echo(f"{len(rows)} timings in {runtime_table}; `sdp-bench report` shows them")
