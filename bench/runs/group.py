"""Measuring one group in a worker, and running groups from a driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, replace

from sdp_bench.bench.errors import one_line
from sdp_bench.bench.executors import lost
from sdp_bench.bench.experiments.base import Group
from sdp_bench.bench.results.ranges import outside
from sdp_bench.bench.results.record import Cell, Failure, Record
from sdp_bench.bench.results.store import Store

Current = frozenset[Cell]
"""Cells that need not be measured again: their records rest on today's versions."""


@dataclass(frozen=True)
class GroupResult:
    """Records and failures of a group, and its time (s)."""

    records: list[Record]
    failures: list[Failure]
    seconds: float


def _cell(record: Record) -> Cell:
    return record.unit, record.rule, record.metric


def _outside(record: Record) -> str:
    return outside(record.metric, record.value, record.floor, record.floor95, record.stderr)


def run_group(group: Group, cells: Collection[Cell]) -> GroupResult:
    """Measure some cells of a group and return their records; an impossible value is a failure."""
    start, asked = time.perf_counter(), frozenset(cells)
    records: list[Record] = []
    failures: list[Failure] = []
    for outcome in group.measure(asked):
        if isinstance(outcome, Failure):
            failures.append(outcome)
        elif _cell(outcome) in asked:
            records.append(outcome)
    wrong = {cell: reason for record in records if (reason := _outside(record)) for cell in [_cell(record)]}
    failures += [Failure(*cell, reason, 0.0) for cell, reason in wrong.items()]
    records = [record for record in records if _cell(record) not in wrong]
    return GroupResult(records, failures, time.perf_counter() - start)


def current(store: Store, groups: Sequence[Group]) -> Current:
    """Cells of some groups whose records in the store rest on today's versions."""
    marks = {cell: group.versions_of(cell[1], cell[2]) for group in groups for cell in group.cells}
    units = {unit for unit, _, _ in marks}
    measured = store.measured(units)
    return frozenset(
        (unit, rule, metric)
        for unit, rule, metric, mark in measured
        if marks.get((unit, rule, metric)) == mark
    )


def store_result(store: Store, run: int, group: Group, result: GroupResult, cells: Sequence[Cell]) -> None:
    """Store what came of some cells of a group, with today's versions.

    `cells`: what was to be measured; what the store has of it is replaced.
    """
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
    on_group: Callable[[Group, GroupResult], None],
) -> None:
    """Run groups and store each as it finishes.

    Cells in `done` are skipped, and `on_group` is called after each group is stored. If a worker dies or
    exceeds its time limit, its group has failed. If the driver ends, finished groups are already stored.
    Errors in a worker outside the measured code are bugs of the project and are raised here.
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
            result = GroupResult([], [Failure(unit, rule, None, line, took) for unit in units], took)
        store_result(store, run, group, result, cells)
        on_group(group, result)
