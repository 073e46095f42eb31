"""Running: one group in a worker, and a whole plan from a driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, replace
from typing import Any

from sdp_bench.bench.environment import one_thread
from sdp_bench.bench.errors import one_line
from sdp_bench.bench.experiments.suites import Group, Plan
from sdp_bench.bench.experiments.task import Task, TaskGroup
from sdp_bench.bench.metrics import metric as metric_of
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.prediction import Prediction
from sdp_bench.bench.metrics.references import Reference
from sdp_bench.bench.results.record import Failure, Record
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.runs import fingerprints
from sdp_bench.bench.runs.predict import input_law, predict, prediction_of
from sdp_ref.laws import Law
from sdp_ref.rules import Propagator

Fresh = frozenset[tuple[str, str, str]]
"""Measurements (unit, rule, metric) that need not be made again."""


@dataclass(frozen=True)
class GroupResult:
    """What came of a group: its records, its failures, and how long it took (s)."""

    records: list[Record]
    failures: list[Failure]
    seconds: float


def run_group(group: Group | TaskGroup, done: Fresh) -> GroupResult:
    """Measure all that a group wants and that is not `done`; see :func:`run_oracles`."""
    if isinstance(group, TaskGroup):
        return run_task(group, done)
    return run_oracles(group, done)


def run_task(group: TaskGroup, done: Fresh) -> GroupResult:
    """Measure all that a group of an experiment wants; what is measured when it fails is kept."""
    start = time.perf_counter()
    places = set(wanted(group, done))
    records: list[Record] = []
    failures: list[Failure] = []
    try:
        with one_thread():  # its matrices are small: more threads would only wait for each other
            for record in group.measure(sorted(places)):
                # Others are there already. One by one: what comes before a failure is kept.
                records += [record] if (record.unit, record.rule, record.metric) in places else []
    except Exception as error:
        took = time.perf_counter() - start
        there = {(record.unit, record.rule) for record in records}
        missing = sorted({(key, rule) for key, rule, _ in places} - there)
        failures = [Failure(key, rule, None, one_line(error), took) for key, rule in missing]
    return GroupResult(records, failures, time.perf_counter() - start)


def run_oracles(group: Group, done: Fresh) -> GroupResult:
    """Measure rules against the oracles of a group.

    The rules run on all inputs at once; then each oracle is drawn and every prediction compared
    with it. A rule that fails is recorded and the others go on.
    """
    start = time.perf_counter()
    device = group.settings.device
    net = group.net.build().to(device)
    law = input_law(group)
    missing: dict[str, list[tuple[str, str]]] = {subject.key.hex: [] for subject in group.subjects}
    for key, name, metric in wanted(group, done):
        missing[key].append((metric, name))
    names = dict.fromkeys(name for pairs in missing.values() for _, name in pairs)
    records: list[Record] = []
    failures: list[Failure] = []
    rules: dict[str, Propagator | Reference] = {}
    predicted: dict[str, tuple[Law, float]] = {}
    for name in names:
        begun = time.perf_counter()
        try:
            rule = group.settings.rule(name)
            if not isinstance(rule, Reference):
                predicted[name] = predict(rule, net, law.to(device=device), group.subjects)
            rules[name] = rule
        except Exception as error:
            seconds = time.perf_counter() - begun
            failures += [Failure(s.key.hex, name, None, one_line(error), seconds) for s in group.subjects]
    for place, subject in enumerate(group.subjects):
        ready = [(metric, name) for metric, name in missing[subject.key.hex] if name in rules]
        if not ready:
            continue
        oracle = Oracle(net, law[place], subject.key, group.settings.sampling)
        begun = time.perf_counter()
        try:
            _ = oracle.samples
        except Exception as error:
            took = time.perf_counter() - begun
            failures.append(Failure(subject.key.hex, None, None, one_line(error), took))
            continue
        for name in dict.fromkeys(name for _, name in ready):
            rule, begun, seconds = rules[name], time.perf_counter(), 0.0
            try:
                if isinstance(rule, Reference):
                    prediction = rule.predict(oracle)
                    seconds = time.perf_counter() - begun
                else:
                    law_of_all, seconds = predicted[name]
                    prediction = prediction_of(rule, law_of_all[place], oracle)
            except Exception as error:
                failures.append(Failure(subject.key.hex, name, None, one_line(error), seconds))
                continue
            for metric in (metric for metric, its in ready if its == name):
                begun = time.perf_counter()
                try:
                    records += measure(oracle, prediction, name, metric, seconds)
                except Exception as error:
                    took = time.perf_counter() - begun
                    failures.append(Failure(subject.key.hex, name, metric, one_line(error), took))
    return GroupResult(records, failures, time.perf_counter() - start)


def measure(oracle: Oracle, prediction: Prediction, rule: str, metric: str, seconds: float) -> list[Record]:
    """Records of one metric of one prediction.

    Raises
    ------
    ValueError
        If the metric comes out as NaN.
    """
    definition = metric_of(metric)
    records = []
    for component, estimate in definition.measure(oracle, prediction):
        if estimate.value != estimate.value:
            raise ValueError(f"{metric} is not a number")
        floor, floor95, stderr = map(_known, (estimate.floor, estimate.floor95, estimate.stderr))
        records.append(
            Record(
                oracle.key.hex,
                rule,
                metric,
                component,
                float(estimate.value),
                floor,
                floor95,
                stderr,
                definition.unit,
                seconds,
            )
        )
    return records


def _known(value: float) -> float | None:
    return None if value != value else float(value)


# The driver -------------------------------------------------------------------------------------


def fresh(store: Store, plan: Plan) -> Fresh:
    """Measurements that the store holds as today's code would make them."""
    plugins = plan.groups[0].settings.plugins if plan.groups else ()
    marks = {
        (metric, rule): fingerprints.of_measurement(rule, metric, plugins)
        for metrics, rules in plan.suites.values()
        for metric in metrics
        for rule in rules
    }
    units = {key for _, key in plan.members}
    return frozenset(
        (unit, rule, metric)
        for unit, rule, metric, mark in store.measured(units)
        if marks.get((metric, rule)) == mark
    )


def fresh_trials(store: Store, task: Task, groups: Sequence[TaskGroup]) -> Fresh:
    """The same for the groups of an experiment: a method whose first metric is there is there in full."""
    trials = [trial for group in groups for trial in group.subjects]
    stored = store.measured({trial.key.hex for trial in trials})
    first, mark = task.metrics[0], task.fingerprint
    there = {(key, rule) for key, rule, metric, its in stored if (metric, its) == (first, mark)}
    return frozenset(
        (key, rule, metric)
        for key, trial in ((trial.key.hex, trial) for trial in trials)
        for metric, rule in trial.pairs
        if (key, rule) in there
    )


def wanted(group: Group | TaskGroup, done: Fresh) -> list[tuple[str, str, str]]:
    """What is left to measure in a group: (unit, rule, metric)."""
    return [
        place
        for subject in group.subjects
        for metric, rule in subject.pairs
        if (place := (subject.key.hex, rule, metric)) not in done
    ]


def is_done(group: Group | TaskGroup, done: Fresh) -> bool:
    """Whether nothing is left to measure in a group."""
    return not wanted(group, done)


def store_result(store: Store, run: int, group: Group | TaskGroup, result: GroupResult, done: Fresh) -> None:
    """Store what came of a group, with the fingerprints of today's code."""

    def mark(record: Record) -> str:
        if isinstance(group, TaskGroup):
            return group.task.fingerprint
        return fingerprints.of_measurement(record.rule, record.metric, group.settings.plugins)

    records = [replace(record, fingerprint=mark(record)) for record in result.records]
    store.write_group(run, records, result.failures, wanted(group, done))


def execute(
    groups: Sequence[Group | TaskGroup],
    done: Fresh,
    store: Store,
    run: int,
    executor: Executor,
    on_group: Callable[[Any, GroupResult], None],
) -> None:
    """Run groups and store each as it is finished.

    A worker that dies or runs out of time makes its group a failed one; whatever ends the driver
    loses no group that was finished before.
    """
    start = time.perf_counter()
    futures: dict[Future[GroupResult], Group | TaskGroup] = {}
    for group in groups:
        keys = {s.key.hex for s in group.subjects}
        known = frozenset(item for item in done if item[0] in keys)
        futures[executor.submit(run_group, group, known)] = group
    for future in as_completed(futures):
        group = futures.pop(future)
        try:
            result = future.result()
        except Exception as error:
            line = one_line(error)
            took = time.perf_counter() - start
            failed = [Failure(s.key.hex, None, None, line, took) for s in group.subjects]
            result = GroupResult([], failed, took)
        store_result(store, run, group, result, done)
        on_group(group, result)
