"""A whole run: train missing nets, measure in workers what is not stored yet, and store it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, replace

from .. import environment
from ..errors import UserError, one_line
from ..executors import lost
from ..executors.local import LocalProcesses
from ..experiments import costs
from ..experiments.base import Experiment, Group
from ..nets.architectures import Architecture
from ..nets.fully_connected import committed, get_nets, missing
from ..nets.net import Net, best_classifier, stored
from ..nets.recipes import Recipe
from ..progress import Progress
from ..reasons import Reason, reasons
from ..results.record import Cell, Failure, Record, RunDescription, impossible
from ..results.store import Store
from ..settings import Settings
from .plan import plan_of

Current = frozenset[Cell]
"""Cells that need not be measured again: their records rest on today's versions."""


@dataclass(frozen=True)
class GroupResult:
    """Records and failures of a group."""

    records: list[Record]
    failures: list[Failure]


def run_group(group: Group, cells: Collection[Cell]) -> GroupResult:
    """Measure some cells of a group and return their records; an impossible value is a failure."""
    asked = frozenset(cells)
    outcomes = list(group.measure(asked))
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    records = [outcome for outcome in outcomes if isinstance(outcome, Record) and outcome.cell in asked]
    wrong = {record.cell: reason for record in records if (reason := impossible(record))}
    failures += [Failure(*cell, reason, 0.0) for cell, reason in wrong.items()]
    return GroupResult([record for record in records if record.cell not in wrong], failures)


def current(store: Store, groups: Sequence[Group]) -> Current:
    """Return the cells of some groups with stored records of the current versions."""
    wanted = {(*cell, group.versions_of(cell[1], cell[2])) for group in groups for cell in group.cells}
    return frozenset(row[:3] for row in wanted & store.measured(unit for unit, *_ in wanted))


def store_result(store: Store, run: int, group: Group, result: GroupResult, cells: Sequence[Cell]) -> None:
    """Store the result of a group with the current versions; older results of `cells` are replaced."""
    records = [
        replace(record, fingerprint=group.versions_of(record.rule, record.metric))
        for record in result.records
    ]
    store.write_group(run, records, result.failures, list(cells))


def execute(
    groups: Sequence[Group],
    done: Current,
    store: Store,
    run: int,
    executor: Executor,
) -> Iterator[tuple[Group, GroupResult]]:
    """Run groups, and yield each once it is finished and stored.

    Cells in `done` are skipped. If a worker dies or exceeds its time limit, its group has failed. Errors in a
    worker outside the measured code are bugs of the project and are raised here.
    """
    start = time.perf_counter()
    futures: dict[Future[GroupResult], tuple[Group, list[Cell]]] = {}
    for group in groups:
        cells = group.left(done)
        futures[executor.submit(run_group, group, cells)] = group, cells
    for future in as_completed(futures):
        group, cells = futures.pop(future)
        try:
            result = future.result()
        except lost() as error:
            line, took = one_line(error), time.perf_counter() - start
            units, rules = dict.fromkeys(unit for unit, _, _ in cells), {rule for _, rule, _ in cells}
            rule = rules.pop() if len(rules) == 1 else None
            result = GroupResult([], [Failure(unit, rule, None, line, took) for unit in units])
        store_result(store, run, group, result, cells)
        yield group, result


@dataclass(frozen=True)
class Request:
    """The request for a run."""

    experiments: Sequence[Experiment]
    settings: Settings
    # nets to measure; by default those of the experiments, cached or trained
    nets: Sequence[Net] | None = None
    # as the user wrote them, for the record
    command: str = ""
    preset: str = ""
    shard: tuple[int, int] = (1, 1)  # part i of n of the groups, counted from 1


def run(
    store: Store,
    request: Request,
    jobs: int | None,
    make_executor: Callable[[int, int], Executor],
    progress: Progress,
) -> int:
    """Do a run, and return the number of failed measurements; current measurements are not repeated.

    A metric that is not defined for a law does not count as a failure. `make_executor` returns an executor,
    given the numbers of workers (by default one per core) and of BLAS threads per worker. A UserError is
    raised if a setting is invalid or there is nothing to run.
    """
    start = time.monotonic()
    nets = request.nets
    if nets is None:
        nets = nets_of(request.experiments, request.settings, jobs or environment.cores(), progress)
    plan = plan_of(request.experiments, request.settings, nets).shard(*request.shard)
    for reason in dict.fromkeys(each.reason for each in plan.left_out):
        progress.say(f"left out: {reason}")
    for note in dict.fromkeys(group.note for group in plan.groups if group.note):
        progress.say(note)
    done = current(store, plan.groups)
    todo = [group for group in plan.groups if group.left(done)]
    jobs = max(1, min(jobs or environment.cores(), len(todo) or 1))
    threads = max(1, environment.cores() // jobs)
    device = request.settings.sampling.device
    description = RunDescription(
        command=request.command,
        preset=request.preset,
        settings=request.settings.as_dict(),
        experiments=plan.experiments,
        left_out=plan.left_out,
        environment=environment.describe(device, jobs, threads),
    )
    distinct = {net.digest: net for net in (*nets, *plan.nets)}
    number = store.begin_run(
        description,
        nets=map(stored, distinct.values()),
        units=plan.units,
        rules=plan.rules,
        members=plan.members,
    )
    if skipped := len(plan.groups) - len(todo):
        progress.say(f"{skipped} of {len(plan.groups)} groups are measured already")
    failed = 0
    if todo:
        work = sorted((group.seconds for group in todo), reverse=True)
        expected = costs.START + costs.elapsed(work, jobs)
        progress.say(
            f"{len(todo)} groups on {jobs} workers: about {_duration(expected)} (by costs measured on a "
            "2-core AVX-512 CPU)"
        )
        executor = make_executor(jobs, threads)
        try:
            failed = _measure(store, number, todo, done, executor, progress)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
    seconds = time.monotonic() - start
    store.finish_run(number, seconds)
    progress.say(f"run {number}: {len(todo)} groups in {seconds:.1f} s, results in {store.path}")
    if failed:
        progress.say(f"failures: {failed}; the next run tries again what failed")
    return failed


def _measure(
    store: Store,
    number: int,
    groups: Sequence[Group],
    done: Current,
    executor: Executor,
    progress: Progress,
) -> int:
    """Measure groups and return the number of failures."""
    expected = {id(group): group.seconds for group in groups}
    # Longest first, so that no worker is left alone with a long group.
    groups = sorted(groups, key=lambda group: -expected[id(group)])
    failed, spent = 0, 0.0
    told: set[Reason] = set()
    with progress.meter("groups") as meter:
        meter.done(0, len(groups), "")
        for count, (group, result) in enumerate(execute(groups, done, store, number, executor), 1):
            spent += expected[id(group)]
            broken = [failure for failure in result.failures if not failure.refused]
            failed += len(broken)
            for reason in _reasons(broken):
                meter.note(f"failed: {group.title}: {reason.rule or 'all rules'}: {reason.line}")
            for reason in _reasons(each for each in result.failures if each.refused):
                if reason not in told:
                    meter.note(f"not defined: {reason.rule}: {reason.line}")
                told.add(reason)
            meter.done(count, len(groups), group.title, spent / sum(expected.values()))
    return failed


def _reasons(failures: Iterable[Failure]) -> list[Reason]:
    return reasons((failure.rule or "", failure.metric or "", failure.error, "", 0.0) for failure in failures)


def nets_of(
    experiments: Sequence[Experiment], settings: Settings, jobs: int, progress: Progress
) -> list[Net]:
    """Return the nets of experiments, from the cache or trained by `jobs` workers.

    Classifiers are not trained, since that may take hours: missing ones are skipped, and a UserError is
    raised if no net remains.
    """
    kinds = kinds_of(experiments, settings)
    needs_none = any(not (each.kinds(settings) or each.classifiers) for each in experiments)
    classifiers: list[Net] = []
    absent: list[str] = []
    for architecture in dict.fromkeys(a for each in experiments for a in each.classifiers):
        if classifier := best_classifier(architecture, settings.design.net_source):
            classifiers.append(classifier)
        elif settings.design.net_source == "trained":
            hint = f"is in the cache; `sdp-bench train {architecture.name}` trains one"
            absent.append(f"no {architecture.label} {hint}")
        else:
            absent.append(f"no {architecture.label} is committed; use --net-source trained")
    if absent and not (kinds or needs_none or classifiers):
        raise UserError("; ".join(absent))
    for line in absent:
        progress.say(f"left out: {line}")
    if not kinds:
        return classifiers
    if settings.design.net_source == "committed":
        found = {kind: committed(*kind, seeds) for kind, seeds in kinds.items()}
        absent = [f"{a.activation} {a.label} ({r.label})" for (a, r), nets in found.items() if not nets]
        nets = [*(net for each in found.values() for net in each), *classifiers]
        if not nets:
            raise UserError(
                f"no net of these experiments is committed ({'; '.join(absent)}); --preset quick or "
                "--net-source trained trains them"
            )
        if absent:
            progress.say(f"left out, no net being committed: {'; '.join(absent)}")
        return nets
    _train(kinds, jobs, progress)
    plain = [n for (kind, recipe), seeds in kinds.items() for n in get_nets(kind, recipe, range(seeds))]
    return [*plain, *classifiers]


def kinds_of(experiments: Sequence[Experiment], settings: Settings) -> dict[tuple[Architecture, Recipe], int]:
    """Return how many nets of each kind the experiments use together (seeds 0, 1, ...)."""
    counts: dict[tuple[Architecture, Recipe], int] = {}
    for experiment in experiments:
        for kind in experiment.kinds(settings):
            counts[kind] = max(counts.get(kind, 0), experiment.size(settings).nets or 0)
    return counts


def _train(kinds: dict[tuple[Architecture, Recipe], int], jobs: int, progress: Progress) -> None:
    seconds = {}
    for (architecture, recipe), seeds in kinds.items():
        if absent := missing(architecture, recipe, range(seeds)):
            seconds[architecture, recipe] = costs.training_seconds(architecture, recipe.epochs, len(absent))
    if not seconds:
        return
    total = sum(seconds.values())
    jobs = min(jobs, len(seconds), environment.cores())  # on this machine, wherever the groups are measured
    progress.say(f"training {len(seconds)} kinds of net: about {_duration(total / jobs)}")
    executor = LocalProcesses(jobs, 1)
    try:
        with progress.meter("training") as meter:
            futures = {
                executor.submit(get_nets, kind[0], kind[1], range(kinds[kind])): kind
                for kind in sorted(seconds, key=lambda kind: -seconds[kind])
            }
            done = 0.0
            for future in as_completed(futures):
                future.result()
                architecture, recipe = futures[future]
                done += seconds[futures[future]]
                label = f"{architecture.activation} {architecture.label}, {recipe.label}"
                meter.done(round(100 * done / total), 100, f"% of the work; {label}")
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
