"""A whole run: train what is missing, measure what is not known yet, and keep it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from sdp_bench.bench import environment
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments.suites import Group, Suite, nets_wanted
from sdp_bench.bench.experiments.task import Task, TaskGroup
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import Recipe, committed, get_nets, missing
from sdp_bench.bench.nets.net import Net, best_classifier, stored
from sdp_bench.bench.results.record import RunDescription
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.runs import costs
from sdp_bench.bench.runs.executors.local import LocalProcesses
from sdp_bench.bench.runs.group import Fresh, GroupResult, execute, is_done
from sdp_bench.bench.runs.plan import Work, work_of
from sdp_bench.bench.settings import Settings


class Meter(Protocol):
    """Where a long loop says how far it has come."""

    def done(self, count: int, total: int, text: str, share: float | None = None) -> None:
        """Say that `count` of `total` steps are done, the last one being `text`.

        `share` is how much of the work that was, where steps are unequal: the time left goes by it.
        """

    def note(self, text: str) -> None:
        """Say something that stays on the screen."""


class Progress(Protocol):
    """Where a run says what it does."""

    def say(self, text: str) -> None:
        """Say one line."""

    def meter(self, title: str) -> AbstractContextManager[Meter]:
        """Show the progress of a loop until the block is left."""


@dataclass(frozen=True)
class Request:
    """What a run is asked for.

    Attributes
    ----------
    suites : sequence of Suite
    settings : Settings
    tasks : sequence of Task
    nets : sequence of Net, optional
        What the suites ask about; trained, or taken from the cache, if none are given.
    command, preset : str
        As the user wrote them, for the record.
    shard : (int, int)
        Part i of n of the groups, counted from 1.
    """

    suites: Sequence[Suite]
    settings: Settings
    tasks: Sequence[Task] = ()
    nets: Sequence[Net] | None = None
    command: str = ""
    preset: str = ""
    shard: tuple[int, int] = (1, 1)


def run(
    store: Store,
    request: Request,
    jobs: int | None,
    make_executor: Callable[[int, int], Executor],
    progress: Progress,
) -> int:
    """Do a run; what the store holds as today's code would measure it is not measured again.

    Parameters
    ----------
    store : Store
    request : Request
    jobs : int, optional
        Workers; one a core by default.
    make_executor : callable of (int, int)
        Executor with so many workers, each with so many BLAS threads.
    progress : Progress

    Returns
    -------
    int
        Failed measurements.

    Raises
    ------
    UserError
        If a setting does not fit, or there is nothing to run.
    """
    start = time.monotonic()
    nets = request.nets
    if nets is None:
        nets = nets_of(request.suites, request.settings, jobs or environment.cores(), progress)
    work = work_of(request.suites, request.tasks, request.settings, nets).shard(*request.shard)
    for reason in dict.fromkeys(each.reason for each in work.left_out):
        progress.say(f"left out: {reason}")
    done = work.fresh(store)
    todo = [group for group in work.groups if not is_done(group, done)]
    jobs = max(1, min(jobs or environment.cores(), len(todo) or 1))
    threads = max(1, environment.cores() // jobs)
    number = _begin(store, request, work, nets, environment.describe(request.settings.device, jobs, threads))
    if skipped := len(work.groups) - len(todo):
        progress.say(f"{skipped} of {len(work.groups)} groups are measured already")
    failed = 0
    if todo:
        expected = costs.elapsed(sorted(map(costs.seconds, todo), reverse=True), jobs)
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


def _begin(
    store: Store, request: Request, work: Work, nets: Sequence[Net], described: dict[str, object]
) -> int:
    description = RunDescription(
        command=request.command,
        preset=request.preset,
        settings=request.settings.as_dict(),
        experiments=work.experiments,
        left_out=work.left_out,
        environment=described,
    )
    return store.begin_run(
        description, nets=map(stored, nets), units=work.units, rules=work.rules, members=work.members
    )


def _measure(
    store: Store,
    number: int,
    groups: Sequence[Group | TaskGroup],
    done: Fresh,
    executor: Executor,
    progress: Progress,
) -> int:
    """Measure groups; gives the number of failures."""
    expected = {id(group): costs.seconds(group) for group in groups}
    # Longest first: no worker is left alone with the last long group.
    groups = sorted(groups, key=lambda group: -expected[id(group)])
    failed = count = 0
    spent = 0.0
    with progress.meter("groups") as meter:
        meter.done(0, len(groups), "")

        def on_group(group: Group | TaskGroup, result: GroupResult) -> None:
            nonlocal failed, count, spent
            count += 1
            spent += expected[id(group)]
            failed += len(result.failures)
            for line in dict.fromkeys(f"{f.rule}: {f.error}" for f in result.failures):
                meter.note(f"failed: {group.title}: {line}")
            meter.done(count, len(groups), group.title, spent / sum(expected.values()))

        execute(groups, done, store, number, executor, on_group)
    return failed


def nets_of(suites: Sequence[Suite], settings: Settings, jobs: int, progress: Progress) -> list[Net]:
    """Nets that the suites want, from the cache; what is missing there is trained by `jobs` workers.

    But for image classifiers, which take hours: these are left out.

    Raises
    ------
    UserError
        If there is none of them.
    """
    wanted = nets_wanted(suites, settings)
    classifiers: list[Net] = []
    for architecture in dict.fromkeys(a for suite in suites for a in suite.classifiers):
        if settings.net_source == "trained" and (classifier := best_classifier(architecture)):
            classifiers.append(classifier)
            continue
        line = f"no {architecture.label} is in the cache; `sdp-bench train {architecture.name}` trains one"
        if settings.net_source != "trained":
            line = f"no {architecture.label} is committed; use --net-source trained"
        if not wanted:
            raise UserError(line)
        progress.say(f"left out: {line}")
    if not wanted:
        return classifiers
    if settings.net_source == "committed":
        found = {kind: committed(*kind, seeds) for kind, seeds in wanted.items()}
        absent = [f"{a.activation} {a.label} ({r.label})" for (a, r), nets in found.items() if not nets]
        if absent:
            progress.say(f"left out, no net being committed: {'; '.join(absent)}")
        nets: list[Net] = [net for each in found.values() for net in each]
        if not nets:
            raise UserError("no net of these suites is committed; use --net-source trained")
        return nets
    _train(wanted, jobs, progress)
    plain = [n for (kind, recipe), seeds in wanted.items() for n in get_nets(kind, recipe, range(seeds))]
    return [*plain, *classifiers]


def _train(wanted: dict[tuple[Architecture, Recipe], int], jobs: int, progress: Progress) -> None:
    seconds = {}
    for (architecture, recipe), seeds in wanted.items():
        if absent := missing(architecture, recipe, range(seeds)):
            seconds[architecture, recipe] = costs.training_seconds(architecture, recipe.epochs, len(absent))
    if not seconds:
        return
    total = sum(seconds.values())
    jobs = min(jobs, len(seconds))
    progress.say(f"training {len(seconds)} kinds of net: about {_duration(total / jobs)}")
    executor = LocalProcesses(jobs, 1)
    try:
        with progress.meter("training") as meter:
            futures = {
                executor.submit(get_nets, kind[0], kind[1], range(wanted[kind])): kind
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
