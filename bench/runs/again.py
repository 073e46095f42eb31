"""Repetition of selected measurements of some groups."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, replace

from sdp_bench.bench.errors import one_line
from sdp_bench.bench.executors import lost
from sdp_bench.bench.experiments.base import Group
from sdp_bench.bench.experiments.law_group import Asked, LawGroup
from sdp_bench.bench.results.record import Cell, Record
from sdp_bench.bench.results.unfinished import MeasuredAgain
from sdp_bench.bench.runs.driver import Meter, Progress
from sdp_bench.bench.runs.group import GroupResult, run_group

_FIRST, _TICK = 1.0, 15.0
"""Seconds between progress updates while no group ends: the first two, and all later ones."""
_NEARLY = 0.95  # progress of a group that takes longer than expected, until it is done


@dataclass(frozen=True)
class Part:
    """The cells of one group to measure again, with the expected time (s) on one core."""

    group: Group
    cells: frozenset[Cell]
    seconds: float


def parts_of(groups: Mapping[Cell, Group], chosen: Collection[Cell]) -> tuple[Part, ...]:
    """Group the chosen cells, longest first, so that no worker is left alone with a long one."""
    cells: dict[int, set[Cell]] = {}
    for cell in chosen:
        cells.setdefault(id(groups[cell]), set()).add(cell)
    by_id = {id(group): group for group in groups.values()}
    parts = [
        Part(by_id[number], frozenset(own), _seconds(by_id[number], own)) for number, own in cells.items()
    ]
    return tuple(sorted(parts, key=lambda part: (-part.seconds, min(part.cells))))


def measure_again(
    parts: Collection[Part],
    known: MeasuredAgain,
    make_executor: Callable[[], Executor],
    keep: Callable[[Collection[Cell], Collection[Record]], None],
    progress: Progress,
) -> MeasuredAgain:
    """Measure parts of groups again; failures are recorded, and the other parts continue.

    Measurements in `known` are not repeated. `keep` is called with the cells and records of each group as
    soon as it ends. The result includes `known`.
    """
    todo = [replace(part, cells=part.cells - known.cells) for part in parts]
    todo = [part for part in todo if part.cells]
    again = MeasuredAgain(list(known.records), set(known.cells))
    if not todo:
        return again
    executor = make_executor()
    try:
        with progress.meter("groups") as meter:
            futures = {executor.submit(run_group, part.group, part.cells): part for part in todo}
            for part, future in _ended(futures, meter):
                made = _result(part, future)
                keep(made.cells, made.records)
                for line in made.failures:
                    meter.note(f"failed: {line}")
                again.records += made.records
                again.cells |= made.cells
                again.failures += made.failures
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    return again


def _ended(
    futures: Mapping[Future[GroupResult], Part], meter: Meter
) -> Iterator[tuple[Part, Future[GroupResult]]]:
    """Yield parts as they end; progress is updated meanwhile, since the first may take minutes."""
    began: dict[Future[GroupResult], float] = {}
    pending, count = set(futures), 0
    for seconds in itertools.chain((_FIRST, _FIRST), itertools.repeat(_TICK)):
        ended, pending = wait(pending, seconds, FIRST_COMPLETED)
        for future in ended:
            yield futures[future], future
        count += len(ended)
        if not pending:
            meter.done(count, len(futures), "")
            return
        at_work = [future for future in pending if future.running()]
        titles = [futures[future].group.title for future in (*ended, *at_work)]
        meter.done(count, len(futures), next(iter(titles), ""), _share(futures, began))


def _share(futures: Mapping[Future[GroupResult], Part], began: dict[Future[GroupResult], float]) -> float:
    """Return the completed share of the work; running parts count by the time since they began."""
    now, done = time.monotonic(), 0.0
    for future, part in futures.items():
        if future.done():
            done += part.seconds
        elif future.running():
            done += min(now - began.setdefault(future, now), _NEARLY * part.seconds)
    return done / (sum(part.seconds for part in futures.values()) or 1.0)  # all may be too fast for the clock


def _seconds(group: Group, cells: Collection[Cell]) -> float:
    """Return the time (s) of some cells on one core; groups without an oracle always run whole."""
    if not isinstance(group, LawGroup):
        return group.seconds
    subjects = []
    for subject in group.subjects:
        pairs = [(m, rule) for m, rule in subject.pairs if (subject.key.hex, rule, m) in cells]
        if pairs:
            subjects.append(replace(subject, asked=tuple(Asked("", (m,), (rule,)) for m, rule in pairs)))
    return replace(group, subjects=tuple(subjects)).seconds


def _result(part: Part, future: Future[GroupResult]) -> MeasuredAgain:
    """Return the result of a part; if its worker was stopped, the whole part has failed."""
    try:
        result = future.result()
    except lost() as error:
        return MeasuredAgain(failures=[f"{part.group.title}: {one_line(error)}"])
    failed = [(failure.unit, failure.rule, failure.metric) for failure in result.failures]
    lines = [f"{part.group.title}: {each.rule or 'oracle'}: {each.error}" for each in result.failures]
    went_through = {cell for cell in part.cells if not any(_is_of(cell, each) for each in failed)}
    records = [one for one in result.records if (one.unit, one.rule, one.metric) in went_through]
    return MeasuredAgain(records, went_through, list(dict.fromkeys(lines)))


def _is_of(cell: Cell, failure: tuple[str, str | None, str | None]) -> bool:
    """Return whether a failure concerns this cell; without a rule or metric it concerns all."""
    return all(part in (own, None) for own, part in zip(cell, failure, strict=True))
