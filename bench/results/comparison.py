"""Results side by side: those of two files, and stored records with new ones."""

from __future__ import annotations

import heapq
import math
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sdp_bench.bench.results import schema
from sdp_bench.bench.results.checksums import Parts, Row
from sdp_bench.bench.results.record import Record, redrawn, same
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.results.tables import differing

SHOWN = 20
"""Differences that are kept in full."""


@dataclass(frozen=True)
class Comparison:
    """Two results files side by side.

    Every field of a measurement that is in both is compared. Numbers may differ by rounding
    (:func:`sdp_bench.bench.results.record.same_number`), its unit and the precision of its oracle not at all.
    By which code and in what time it was made is no part of the measurement and counted apart; runs have
    other numbers in every file and are not compared.

    Attributes
    ----------
    equal, different : int
        Measurements in both, with the same fields and with others.
    fields : Counter
        Of those that are different, how many are in each field.
    largest : DataFrame
        The largest differences: key, component, field, a, b, and the difference in units of the larger of
        the standard errors (infinite where both are 0, and of what is no number).
    other_code, other_time : int
        Measurements in both whose fingerprint, or whose rule's own time, is another.
    only_a, only_b : int
    """

    equal: int
    different: int
    fields: Counter[str]
    largest: pd.DataFrame
    other_code: int
    other_time: int
    only_a: int
    only_b: int


def compare(a: Store, b: Store) -> Comparison:
    """Compare two results files measurement by measurement."""
    counts: Counter[str] = Counter()
    fields: Counter[str] = Counter()
    largest: list[tuple[Any, ...]] = []
    for left, right in _beside(a.parts("records"), b.parts("records")):
        here, there = ({_KEY(row): row for row in rows} for rows in (left, right))
        both = here.keys() & there.keys()
        counts.update(both=len(both), only_a=len(here) - len(both), only_b=len(there) - len(both))
        if left == right:
            continue
        for key in sorted(both, key=str):
            old, new = here[key], there[key]
            names = differing(old, new)
            counts["different"] += bool(names)
            counts["code"] += old[_CODE] != new[_CODE]
            counts["time"] += old[_TIME] != new[_TIME]
            fields.update(names)
            largest += [_difference(name, old, new) for name in names]
        largest = heapq.nlargest(SHOWN, largest, key=operator.itemgetter(-1))
    return Comparison(
        counts["both"] - counts["different"],
        counts["different"],
        fields,
        pd.DataFrame(largest, columns=["key", "component", "field", "a", "b", "standard errors"]),
        counts["code"],
        counts["time"],
        counts["only_a"],
        counts["only_b"],
    )


_COLUMNS = list(schema.columns()["records"])
_KEY = operator.itemgetter(*(_COLUMNS.index(name) for name in schema.KEYS["records"]))
_CODE, _TIME, _STDERR = (_COLUMNS.index(name) for name in ("fingerprint", "seconds", "stderr"))


def _beside(a: Parts, b: Parts) -> Iterator[tuple[list[Row], list[Row]]]:
    """Rows of the same unit in two files, whose units come in ascending order; none where it is not there."""
    left, right = next(a, None), next(b, None)
    while left or right:
        first = min(part[0] for part in (left, right) if part)
        mine, theirs = (part[1] if part and part[0] == first else [] for part in (left, right))
        yield mine, theirs
        left, right = next(a, None) if mine else left, next(b, None) if theirs else right


def _difference(name: str, old: Row, new: Row) -> tuple[Any, ...]:
    unit, rule, metric, component = _KEY(old)
    a, b = (row[_COLUMNS.index(name)] for row in (old, new))
    error = max(old[_STDERR] or 0, new[_STDERR] or 0)
    numbers = isinstance(a, float) and isinstance(b, float)
    gap = abs(a - b) / error if numbers and error > 0 else math.inf
    return f"{unit}/{rule}/{metric}", component or "", name, a, b, gap


@dataclass(frozen=True)
class Disagreement:
    """A number that did not come out as it is stored.

    Attributes
    ----------
    experiment : str
        All that ask for it, separated by commas.
    unit : str
        Net, input and noise, or data set and seed, for people.
    rule, metric : str
        Specs.
    component : str
        Empty where the metric has one number.
    number : str
        Which one: the value, its floor, the floor's 95 % point, or the standard error.
    stored, again : float, optional
        None where there was none.
    """

    experiment: str
    unit: str
    rule: str
    metric: str
    component: str
    number: str
    stored: float | None
    again: float | None

    def __str__(self) -> str:
        name = " ".join(filter(None, (self.metric, self.component)))
        stored, again = ("none" if x is None else f"{x:.12g}" for x in (self.stored, self.again))
        return (
            f"{self.experiment}: {self.unit}, {self.rule}, {name}: {self.number} stored {stored}, now {again}"
        )


@dataclass(frozen=True)
class Agreement:
    """How stored records compare with new ones.

    Attributes
    ----------
    disagreements : tuple of Disagreement
    redrawn : int
        Records whose floor was simulated anew, and agrees within its simulation's error.
    """

    disagreements: tuple[Disagreement, ...]
    redrawn: int


_FLOORS = {"floor": "floor", "floor95": "95 % point of the floor"}
_NUMBERS = {"value": "value", "stderr": "standard error", **_FLOORS}

Key = tuple[str, str, str, str | None]
"""Unit, rule, metric and component."""


def agreement(stored: pd.DataFrame, again: Iterable[Record], asked: pd.DataFrame) -> Agreement:
    """Compare stored records with new ones, rounding apart.

    Numbers may differ as they may where files are merged (:func:`same_number`): by 1e-9 of them, or by a
    hundredth of the stored standard error. The latter is for samples at the edge of a cell, which other
    sizes of a batch or another processor's kernels put on its other side: they move a value by far less than
    its own sampling error, a wrong formula by far more.

    Floors are simulated from counts, and one sample in another cell lets the simulation draw other numbers.
    So a floor may differ by a standard error of the value, which is several times the simulation's own error.
    But that is rare: a formula or a seed that changed would change them all. If no more than half of a
    metric's floors are equal to rounding, those that are not disagree.

    Parameters
    ----------
    stored : DataFrame
        Rows of :meth:`Queries.records`: all components of what was measured again.
    again : iterable of Record
        A component that is missing here or there disagrees.
    asked : DataFrame
        As :meth:`Queries.asked` gives it, for the names of experiments.

    Returns
    -------
    Agreement
    """
    new: dict[Key, Any] = {(one.unit, one.rule, one.metric, one.component): one for one in again}
    rows: Iterable[Any] = stored.itertuples(index=False)
    old: dict[Key, Any] = {(row.unit, row.rule, row.metric, _known(row.component)): row for row in rows}
    ordered = sorted(old.keys() | new.keys(), key=lambda key: (*key[:3], key[3] or ""))
    relations = {
        (key, name): relation
        for key in ordered
        for name in (_NUMBERS if key in old and key in new else ("value",))
        if (relation := _relation(old.get(key), new.get(key), name)) != "equal"
    }
    redrawn = {key for (key, _), relation in relations.items() if relation == "redrawn"}
    floors = Counter(metric for (_, _, metric, _), row in old.items() if _number(row, "floor") is not None)
    changed = {
        metric for metric, count in Counter(key[2] for key in redrawn).items() if 2 * count >= floors[metric]
    }
    apart = [
        (key, name) for (key, name), relation in relations.items() if relation == "apart" or key[2] in changed
    ]
    return Agreement(tuple(_named(apart, old, new, asked)), len(redrawn - {key for key, _ in apart}))


def _named(
    apart: Iterable[tuple[Key, str]], old: Mapping[Key, Any], new: Mapping[Key, Any], asked: pd.DataFrame
) -> Iterator[Disagreement]:
    """Numbers that disagree, with all that names them."""
    units = {row.unit: _described(row) for row in old.values()}
    experiments = asked.groupby(["unit", "rule", "metric"])["experiment"].agg(
        lambda own: ", ".join(sorted(own))
    )
    for key, name in apart:
        unit, rule, metric, component = key
        yield Disagreement(
            *(experiments.get(key[:3], ""), units[unit], rule, metric, component or "", _NUMBERS[name]),
            stored=_number(old.get(key), name),
            again=_number(new.get(key), name),
        )


def _relation(before: Any, after: Any, name: str) -> str:
    """Whether a number is ``equal`` but for rounding, a floor that was ``redrawn``, or ``apart``."""
    a, b, error = _number(before, name), _number(after, name), _number(before, "stderr")
    if same(a, b, error):
        return "equal"
    return "redrawn" if name in _FLOORS and redrawn(a, b, error) else "apart"


def _number(side: Any, name: str) -> float | None:
    """A number of a record or row, where there is one."""
    number: float | None = _known(getattr(side, name, None))
    return number


def _known(value: Any) -> Any:
    return None if pd.isna(value) else value


def _described(row: Any) -> str:
    """Net, input and noise of a row of :meth:`Queries.records`, or its data set and seed."""
    if _known(row.net) is None:
        return " ".join(filter(None, (row.dataset, _known(row.objective), f"seed {row.seed}")))
    net = f"{row.activation} {row.network} seed {row.seed}"
    return f"{net}, input {row.input}, {row.noise} noise {row.sigma:g}"
