"""A share of a results file's records measured again, and the others stamped with today's fingerprints.

:mod:`sdp_bench.bench.results.verify` says which are chosen and what agrees; here they are measured, in the
groups that they were measured in, from the nets that the file keeps, or from the same nets made again
(:mod:`sdp_bench.bench.replay.nets`). Rules see the same batch of inputs, and of a group's oracles only those
are drawn that something was chosen of. What an experiment without an oracle trains together it trains
together again, so that one chosen record of it costs a whole group.

The file is not touched before the end: the stamp is one transaction, with its evidence. Whatever ends the
work before that leaves the file as it was, with what was measured in another file beside it; the same command
goes on from there.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.replay.outdated import Outdated, find_outdated
from sdp_bench.bench.results import verify
from sdp_bench.bench.results.comparison import Disagreement, agreement
from sdp_bench.bench.results.record import Cell, Record, Verification
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.results.unfinished import Unfinished
from sdp_bench.bench.results.verify import CELL
from sdp_bench.bench.runs.again import Part, measure_again, parts_of
from sdp_bench.bench.runs.driver import Progress


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes
    ----------
    share : float
        Of the predictions, in (0, 1].
    seed : int
        Of the choice.
    experiments : tuple of str
        Those that are looked at; all if none are named.
    trusted : bool
        Whether the code of plug-in rules may be run that is stored in the file.
    """

    share: float
    seed: int = 0
    experiments: tuple[str, ...] = ()
    trusted: bool = False


@dataclass(frozen=True)
class Estimate:
    """What is measured of an experiment: records out of date and chosen, and time (s) on one core."""

    experiment: str
    outdated: int
    chosen: int
    seconds: float


@dataclass(frozen=True)
class Preparation:
    """All that is known before anything is measured.

    Attributes
    ----------
    records, asked : DataFrame
        Of the store, of the experiments that are looked at.
    outdated : Outdated
    parts : tuple of Part
        What was chosen.
    """

    records: pd.DataFrame = field(repr=False)
    asked: pd.DataFrame = field(repr=False)
    outdated: Outdated
    parts: tuple[Part, ...] = field(repr=False)

    @property
    def chosen(self) -> set[Cell]:
        """Measurements that were chosen."""
        return {cell for part in self.parts for cell in part.cells}

    @functools.cached_property
    def components(self) -> Counter[Cell]:
        """Records of each measurement, one a component."""
        return Counter(self.records[CELL].itertuples(index=False, name=None))

    def count(self, cells: Iterable[Cell]) -> int:
        """Records of some measurements."""
        return sum(self.components[cell] for cell in cells)

    def by_experiment(self) -> list[Estimate]:
        """What is measured of each experiment; what several ask for counts for each of them."""
        cells: dict[str, set[Cell]] = {}
        for each in self.outdated.measurements:
            cells.setdefault(each.experiment, set()).add(each.cell)
        return [
            Estimate(
                name or "no experiment",
                self.count(own),
                self.count(own & self.chosen),
                sum(part.seconds for part in self.parts if part.cells & own),
            )
            for name, own in sorted(cells.items())
        ]

    def evidence(self, stamped: set[Cell]) -> dict[str, Any]:
        """Fields of a `Verification` that go by what was stamped."""
        old = self.outdated
        return {
            "experiments": tuple(sorted(self.asked["experiment"].unique())),
            "unrepeatable": self.count(old.cells - old.groups.keys()),
            "stamped": self.count(stamped),
            "remaining": self.count(old.cells - stamped),
        }

    def remaining(self, stamped: set[Cell]) -> dict[str, int]:
        """Records that keep an old fingerprint, by experiment and kind of net, and the reason."""
        found: dict[str, set[Cell]] = {}
        for each in self.outdated.measurements:
            if each.cell not in stamped:
                name = " ".join(filter(None, (each.experiment or "no experiment", each.activation)))
                found.setdefault(f"{name}: {self.outdated.reasons[each.cell]}", set()).add(each.cell)
        return {name: self.count(cells) for name, cells in sorted(found.items())}


@dataclass(frozen=True)
class Outcome:
    """What came of measuring again.

    Attributes
    ----------
    disagreements : sequence of Disagreement
    failures : list of str
        What could not be measured, one line each.
    verification : Verification, optional
        What was stamped; None if anything disagreed or failed.
    remaining : mapping of str to int
        Records that keep an old fingerprint, by what they are and why.
    elsewhere : sequence of str
        Other processors than this one, on which some of the stored records were made.
    """

    disagreements: Sequence[Disagreement]
    failures: list[str]
    verification: Verification | None = None
    remaining: Mapping[str, int] = field(default_factory=dict)
    elsewhere: Sequence[str] = ()


def prepare(
    store: Store, request: Request, make_executor: Callable[[], Executor], progress: Progress
) -> Preparation:
    """Find what is out of date, have its nets again, and choose what is measured.

    Parameters
    ----------
    store : Store
    request : Request
    make_executor : callable
        For training nets, if there is need.
    progress : Progress

    Returns
    -------
    Preparation

    Raises
    ------
    UserError
        If an experiment that was named is not in the file.
    """
    asked = store.asked()
    names = sorted(asked["experiment"].unique())
    for name in request.experiments:
        if name not in names:
            raise UserError(f"no experiment '{name}' in {store.path}; it has {', '.join(names) or 'none'}")
    progress.say(f"reading {store.path}, and looking for what is not of today's code")
    records = store.records()
    if request.experiments:
        asked = asked[asked["experiment"].isin(request.experiments)]
        records = records.merge(asked[CELL].drop_duplicates(), on=CELL)
    outdated = find_outdated(store, records, asked, make_executor, progress, trusted=request.trusted)
    chosen = verify.choose(outdated.repeatable, request.share, request.seed)
    return Preparation(records, asked, outdated, parts_of(outdated.groups, chosen))


def measure_and_stamp(
    store: Store,
    request: Request,
    preparation: Preparation,
    make_executor: Callable[[], Executor],
    described: Mapping[str, Any],
    progress: Progress,
) -> Outcome:
    """Measure what was chosen and, if all of it agrees, stamp what it speaks for.

    Parameters
    ----------
    store : Store
        Open for writing.
    request : Request
    preparation : Preparation
        Of the same request and store.
    make_executor : callable
    described : mapping
        The machine, as :func:`sdp_bench.bench.environment.describe` gives it.
    progress : Progress

    Returns
    -------
    Outcome
    """
    records, outdated = preparation.records, preparation.outdated
    unfinished = Unfinished(store.path, described)
    known = unfinished.read({cell: outdated.marks[cell] for cell in preparation.chosen})
    if known.records:
        progress.say(f"{len(known.records)} records were measured again already, before an interruption")

    def keep(cells: Collection[Cell], made: Collection[Record]) -> None:
        unfinished.add({cell: outdated.marks[cell] for cell in cells}, made)

    again = measure_again(preparation.parts, known, make_executor, keep, progress)
    stored = records[[cell in again.cells for cell in records[CELL].itertuples(index=False, name=None)]]
    compared = agreement(stored, again.records, preparation.asked)
    if compared.disagreements:
        unfinished.remove()
    if compared.disagreements or again.failures:
        made_on = {store.run(int(number)).environment["cpu"] for number in stored["run"].unique()}
        elsewhere = sorted(made_on - {described["cpu"]})
        return Outcome(compared.disagreements, again.failures, elsewhere=elsewhere)
    stamped = verify.stampable(outdated.measurements, again.cells)
    verification = Verification(
        # two may end within one second, and each is known by when it ended
        finished=datetime.now(UTC).isoformat(timespec="milliseconds"),
        environment=described,
        share=request.share,
        seed=request.seed,
        measured=len(stored),
        redrawn=compared.redrawn,
        **preparation.evidence(stamped),
    )
    store.stamp([(*cell, outdated.marks[cell]) for cell in sorted(stamped)], verification)
    unfinished.remove()
    return Outcome((), [], verification, preparation.remaining(stamped))
