"""Which rule is best: the ranking of rules by paired differences, and marks of ties in tables.

References
----------
Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979.
Gupta, "On some multiple decision (selection and ranking) rules", Technometrics 7, 1965.
Hsu, "Constrained simultaneous confidence intervals for multiple comparisons with the best", Ann. Statist. 12,
1984.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, DTypeLike, NDArray

from sdp_bench.bench.metrics import Metric


class Labels(Sequence[int]):
    """Sorted row labels, hashable, so that numbers that rest on the same rows can be matched.

    They take four bytes each; as tuples those of a million measurements would take 100 MB.
    """

    __slots__ = ("_hash", "_labels")

    def __init__(self, labels: ArrayLike = ()) -> None:
        self._labels = np.sort(np.asarray(labels, dtype=np.int32))
        self._hash = hash(self._labels.tobytes())

    def __len__(self) -> int:
        return len(self._labels)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        found: int | list[int] = self._labels[place].tolist()
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self[:])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[np.int32]:
        return np.array(self._labels, dtype=dtype, copy=copy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Labels) and np.array_equal(self._labels, other._labels)

    def __hash__(self) -> int:
        return self._hash


def labels_of(rows: Sequence[int]) -> Labels:
    return rows if isinstance(rows, Labels) else Labels(rows)


LEVEL = 0.05
"""Probability of declaring a false winner, and of an interval missing its mean."""

UNIT = ["net", "input"]
"""Columns over which means are taken and rules are paired."""


class Comparison(ABC):
    """Mean scores of rules, lower is better, and tests of their paired differences."""

    @abstractmethod
    def mean(self, rule: str) -> float: ...

    @abstractmethod
    def p_better(self, one: str, others: Sequence[str]) -> NDArray[np.float64]:
        """One-sided p-values of "`one` is better than the other"."""

    def beats(self, one: str, other: str, comparisons: int = 1) -> bool:
        """Whether `one` is significantly better than `other`, corrected for the number of comparisons."""
        return bool(self.p_better(one, [other])[0] <= LEVEL / comparisons)


@dataclass(frozen=True)
class Ranking:
    """The rule with the best mean, the rules statistically tied with it, and the others; best first."""

    leader: str
    tied: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()

    @property
    def best(self) -> tuple[str, ...]:
        """The leader and the rules tied with it."""
        return self.leader, *self.tied

    @property
    def decided(self) -> bool:
        """Whether the leader is significantly better than all others."""
        return not self.tied

    def cheapest(self, seconds: Mapping[str, float]) -> str:
        """Return the rule with the shortest time among the leader and its ties; the leader without times."""
        timed = [rule for rule in self.best if math.isfinite(seconds.get(rule, math.nan))]
        return min(timed, key=seconds.__getitem__, default=self.leader)


def rank(compared: Comparison, rules: Sequence[str]) -> Ranking:
    """Rank one rule or more by their means and find those that are statistically tied with the best.

    The leader is compared with each other rule by a one-sided test of their paired differences, corrected by
    Holm's method at the level 5 % / 2. The level is halved because the leader is chosen from the same data:
    either of two equal rules could lead. A leader without ties is thus a false winner with a probability of
    at most 5 %, and the leader and its ties contain the best rule with at least 95 % (subset selection after
    Gupta 1965, comparison with the best after Hsu 1984).
    """
    leader, *others = sorted(rules, key=compared.mean)
    p = dict(zip(others, compared.p_better(leader, others).tolist(), strict=True)) if others else {}
    worse: set[str] = set()
    for rule in sorted(others, key=p.__getitem__):
        if p[rule] > LEVEL / 2 / (len(others) - len(worse)):
            break
        worse.add(rule)
    return Ranking(
        leader,
        tuple(rule for rule in others if rule not in worse),
        tuple(rule for rule in others if rule in worse),
    )


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores, lower is better, shape (pairs of net and input, rules); NaN if not measured.

    `errors` are the standard errors of `values`; `nets` and `inputs` number the net and input of each pair.
    """

    rules: tuple[str, ...]
    values: NDArray[np.float64]
    errors: NDArray[np.float64]
    nets: NDArray[np.int64]
    inputs: NDArray[np.int64]

    @classmethod
    def of(
        cls, metric: Metric, row: pd.DataFrame | Mapping[str, NDArray[Any]], rules: tuple[str, ...]
    ) -> Scores:
        """Return the scores of one row of a table, from columns net, input, rule, value, floor and stderr."""
        (scores,) = cls.of_rows(metric, row, rules, [np.arange(len(row["value"]))])
        return scores

    @classmethod
    def of_rows(
        cls,
        metric: Metric,
        measured: pd.DataFrame | Mapping[str, NDArray[Any]],
        rules: tuple[str, ...],
        rows: Sequence[NDArray[np.intp]],
    ) -> list[Scores]:
        """Return the scores of all rows of a table at once, ten times faster than one by one.

        `rows` holds the positions of the measurements of each row in the columns of `measured`; none is
        empty.
        """
        at = np.concatenate(rows)
        starts = np.cumsum([0, *map(len, rows)])
        row = np.repeat(np.arange(len(rows)), np.diff(starts))
        nets, inputs = (_numbered(row, pd.factorize(measured[name])[0][at]) for name in UNIT)
        units = _numbered(row, nets * (inputs.max() + 1) + inputs)
        of_rule, names = pd.factorize(measured["rule"])
        columns = np.array([rules.index(rule) for rule in names])[of_rule[at]]
        ends = np.cumsum([0, *np.maximum.reduceat(units, starts[:-1]) + 1])
        pairs = units + ends[row]
        first = np.unique(pairs, return_index=True)[1]
        values = np.full((len(first), len(rules)), math.nan)
        errors = values.copy()
        value, floor, error = (np.asarray(measured[name])[at] for name in ("value", "floor", "stderr"))
        values[pairs, columns] = metric.score(value, floor)
        errors[pairs, columns] = metric.score_error(value, error)
        parts = (slice(*own) for own in itertools.pairwise(ends.tolist()))
        return [cls(rules, values[own], errors[own], nets[first[own]], inputs[first[own]]) for own in parts]

    def paired(self, one: str, other: str) -> Scores:
        """Return the scores of two rules on the pairs of net and input for which both were measured."""
        columns = sorted([self.rules.index(one), self.rules.index(other)])
        both = ~np.isnan(self.values[:, columns]).any(1)
        nets, inputs = (pd.factorize(each[both])[0].astype(np.int64) for each in (self.nets, self.inputs))
        rules = self.rules[columns[0]], self.rules[columns[1]]
        return Scores(rules, self.values[both][:, columns], self.errors[both][:, columns], nets, inputs)

    @functools.cached_property
    def means(self) -> dict[str, float]:
        means = means_of_rows(np.ascontiguousarray(self.values.T)).tolist()
        return {rule: mean for rule, mean in zip(self.rules, means, strict=True) if not math.isnan(mean)}


def _numbered(row: NDArray[np.intp], codes: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
    """Renumber codes within each row, in order of first appearance."""
    met: NDArray[np.intp] = pd.factorize(row * (codes.max() + 1) + codes)[0]
    first = np.unique(row, return_index=True)[
        1
    ]  # at the start of a row, all codes so far are those of earlier rows
    return met - met[first][row]


def means_of_rows(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of the known values of each row; NaN if there are none."""
    known = ~np.isnan(values)
    whole = known.all(1) & (values.shape[1] > 0)
    means = np.full(len(values), math.nan)
    means[whole] = values[whole].mean(1)
    for row in np.flatnonzero(known.any(1) & ~whole):
        means[row] = values[row, known[row]].mean()
    return means
