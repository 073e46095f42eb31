"""Two results files side by side."""

from __future__ import annotations

import heapq
import math
import operator
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sdp_bench.bench.results import schema
from sdp_bench.bench.results.checksums import Parts, Row
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
        Measurements in both whose versions, or whose rule's own time, is another.
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
