"""The commands that measure, ``run`` and ``runtime``, and ``list``, which says what there is to run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sdp_bench.commands.options import FAILED, Shard, database, runtime_table, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from sdp_bench.bench.runtime.table import Row
    from sdp_bench.bench.settings import Settings


@click.command("list")
@click.option("--preset", default="paper", show_default=True, type=click.Choice(["smoke", "quick", "paper"]))
def list_(preset: str) -> None:
    """List the suites, presets and rules."""
    import sdp_ref
    from sdp_bench.bench.experiments.suites import SUITES
    from sdp_bench.bench.metrics.references import references
    from sdp_bench.bench.plugins.rules import RULES
    from sdp_bench.bench.runs.plan import TASKS
    from sdp_bench.bench.settings import PRESETS
    from sdp_ref.registry import installed

    settings = PRESETS[preset]
    click.echo(f"Suites (nets x inputs as in the preset {preset})")
    for suite in SUITES.values():
        nets, inputs = suite.counts(settings)
        click.echo(f"  {suite.name}\n      {suite.description}")
        click.echo(
            f"      {_listed(suite)}; {nets} x {inputs}; {suite.noise.parameter} {_numbers(suite.sigmas)}"
        )
    for task in TASKS.values():
        click.echo(f"  {task.name}\n      {task.description}")
        click.echo(f"      {', '.join(task.rules)}; {task.count(settings)} seeds")
    click.echo("\nPresets")
    for name, s in PRESETS.items():
        click.echo(
            f"  {name:<8}{s.net_source} nets, {s.samples} samples, W1 on {s.w1_points} points, "
            f"certified on {s.certified_points}"
        )
    click.echo(f"\nRules\n  {', '.join(sdp_ref.rules())}\n  with parameters: monte_carlo:samples=100")
    click.echo(f"  in the place of a rule: {', '.join(references())}")
    click.echo(
        "  of yours: path/to/rule.py:MyRule, package.module:MyRule"
        + "".join(f", {n}" for n in installed(RULES.group))
    )


def _listed(suite: Any) -> str:
    depths: dict[str, list[int]] = {}
    for architecture in suite.architectures:
        depths.setdefault(architecture.activation, []).append(architecture.depth)
    plain = [f"{kind} {'/'.join(map(str, each))}" for kind, each in depths.items()]
    return ", ".join([*plain, *(architecture.label for architecture in suite.classifiers)])


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


@click.command()
@click.argument("suites", nargs=-1, metavar="SUITE...")
@click.option("--all", "every", is_flag=True, help="Run all suites.")
@click.option("--preset", default="quick", show_default=True, help="smoke, quick or paper.")
@settings
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes (default: one a core).")
@click.option("--executor", "where", default="local", show_default=True, help="local (processes) or dask.")
@click.option("--scheduler", help="Address of a Dask scheduler; without it, a cluster is started here.")
@click.option("--shard", type=Shard(), help="Part i of n of the groups, written i/n.")
@click.option("--group-limit", type=click.FloatRange(min=0, min_open=True), help="Seconds a group may take.")
@click.option(
    "--memory-limit", type=click.FloatRange(min=0, min_open=True), help="GiB a worker may take (resident)."
)
@database
def run(
    suites: tuple[str, ...],
    every: bool,
    preset: str,
    jobs: int | None,
    where: str,
    scheduler: str | None,
    shard: tuple[int, int] | None,
    group_limit: float | None,
    memory_limit: float | None,
    database: Path,
    **overrides: Any,
) -> None:
    """Run SUITES (or --all) and keep the results; what is there already is not run again."""
    from sdp_bench.bench import settings as settings_module
    from sdp_bench.bench.environment import check_device
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.experiments.suites import check
    from sdp_bench.bench.results.store import Store
    from sdp_bench.bench.runs.driver import Request
    from sdp_bench.bench.runs.driver import run as run_all
    from sdp_bench.bench.runs.plan import chosen, names
    from sdp_bench.commands.progress import Screen, command_line

    if every == bool(suites):
        raise UserError(f"name suites to run, or --all; suites: {', '.join(names())}")
    settings = settings_module.preset(preset, {k: v for k, v in overrides.items() if v is not None})
    wanted, tasks = chosen([n for n in names() if n not in settings.without] if every else suites)
    _check_tasks(wanted, tasks, settings)
    check(wanted, settings)
    check_device(settings.device)
    make_executor = _executor(where, scheduler, group_limit, memory_limit)
    jobs = jobs or (1 if settings.device.startswith("cuda") else None)
    request = Request(wanted, settings, tasks, None, command_line(), preset, shard or (1, 1))
    with Store(database, writing=True) as store:
        failures = run_all(store, request, jobs, make_executor, Screen())
    if failures:
        raise SystemExit(FAILED)


def _executor(
    where: str, scheduler: str | None, group_limit: float | None, memory_limit: float | None
) -> Callable[[int, int], Executor]:
    """What makes an executor of so many workers with so many threads each."""
    from sdp_bench.bench.errors import UserError

    if where not in ("local", "dask"):
        raise UserError(f"unknown executor '{where}'; choose from local, dask")
    if scheduler and where != "dask":
        raise UserError("--scheduler goes with --executor dask")
    if where == "local":
        from sdp_bench.bench.runs.executors.local import LocalProcesses

        return lambda jobs, threads: LocalProcesses(jobs, threads, group_limit, memory_limit)
    if group_limit or memory_limit:
        raise UserError("--group-limit and --memory-limit are for local workers; a Dask cluster has its own")
    from sdp_bench.bench.runs.executors.dask import DaskWorkers

    return lambda jobs, threads: DaskWorkers(scheduler, jobs, threads)


def _check_tasks(suites: Sequence[Any], tasks: Sequence[Any], settings: Settings) -> None:
    """Raise a UserError for options that nothing that was asked for takes."""
    from sdp_bench.bench.errors import UserError

    ignored = sorted(set(settings.training) - {"epochs"})
    if tasks and not suites and ignored:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in ignored)
        raise UserError(f"{names} cannot be chosen for {', '.join(t.name for t in tasks)}")
    if settings.datasets and "uci" not in [task.name for task in tasks]:
        raise UserError("--datasets goes with the suite uci")


@click.command()
@click.option("--preset", default="quick", show_default=True, help="smoke, quick or paper (batches of 128).")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1 ...")
@click.option(
    "--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Of torch, on a CPU."
)
@runtime_table
def runtime(preset: str, device: str, threads: int, runtime_table: Path) -> None:
    """Time the rules on image nets, as multiples of the net's own pass (paper: Table 6)."""
    import torch

    from sdp_bench.bench.environment import check_device
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.runtime import table

    check_device(device)
    torch.set_num_threads(threads)

    def told(row: Row) -> None:
        name = f"{row.architecture} {row.phase} {row.method}"
        click.echo(f"{name:<50} {row.ratio:8.2f} times, {row.seconds * 1e3:.1f} ms", err=True)

    try:
        rows = table.measure(preset, device, on_skip=lambda line: click.echo(line, err=True), on_row=told)
    except ValueError as error:
        raise UserError(str(error)) from error
    table.save(rows, runtime_table)
    click.echo(f"{len(rows)} timings in {runtime_table}; `sdp-bench report` shows them")
