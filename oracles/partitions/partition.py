"""Partitions of the output space, fixed by a pilot sample, and total variation on them.

The cells are fixed before any rule is evaluated, from an oracle sample that is not used otherwise. All rules
are therefore compared on the same cells, which do not depend on extreme samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..estimate.estimate import Estimate, Floor
from ..estimate.samples import Samples
from .counting import (
    Cells,
    Columns,
    check_count,
    integers,
    namespace,
    pilot_values,
    rounding_of,
    tally,
    tally_lines,
)
from .floors import cell_counts, total_variation_floor
from .tree import EqualMassTree

__all__ = [
    "AxisBins",
    "Classes",
    "EqualMassTree",
    "Partition",
    "ScoreDifferences",
    "pairwise_total_variation",
    "total_variation",
    "total_variation_of_counts",
]

_QUANTILES = (0.0005, 0.9995)
_MOST_CELLS = 2**24  # 128 MB of counts
_TINY = 1e-300


class Partition(Protocol):
    """Base class of cells that cover the output space."""

    def __hash__(self) -> int:
        """Hash by identity, since partitions are immutable."""

    @property
    def cells(self) -> int:
        """Number of cells."""

    def counts(self, samples: Samples) -> NDArray[np.int64]:
        """Count the samples in every cell, shape (cells,)."""


@dataclass(frozen=True, eq=False)
class AxisBins:
    """Equidistant bins along every axis, with a low and a high outer bin on each: (bins + 2)^m cells.

    Attributes
    ----------
    low, high : ndarray, shape (m,)
        Ends of the inner bins of an axis, both included.
    bins : int
        Number of inner bins per axis.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    bins: int

    @classmethod
    def from_samples(
        cls, pilot: Samples, bins: int = 10, bin_range: Literal["quantiles", "minmax"] = "quantiles"
    ) -> AxisBins:
        """Choose the range of the bins by a pilot sample, shape (samples, m).

        The `bins` inner bins are between the pilot's 0.05 % and 99.95 % quantiles on each axis ("quantiles"),
        or between its extremes ("minmax"). An axis on which the pilot is constant up to rounding gets bins
        just wide enough to contain the rounding errors.
        """
        values = pilot_values(pilot)
        bins = check_count("bins", bins, 1)
        if (bins + 2) ** values.shape[1] > _MOST_CELLS:
            raise ValueError(
                f"{bins} bins on {values.shape[1]} axes make {(bins + 2.0) ** values.shape[1]:.2g} cells, "
                f"over {_MOST_CELLS}; take fewer bins or an EqualMassTree"
            )
        if bin_range == "quantiles":
            low, high = np.quantile(values, _QUANTILES, axis=0)
        elif bin_range == "minmax":
            low, high = values.min(0), values.max(0)
        else:
            raise ValueError(f"bin_range must be 'quantiles' or 'minmax', got {bin_range!r}")
        slack = rounding_of(pilot) * np.abs(values).max(0)
        constant = high - low <= 2 * slack
        return cls(np.where(constant, low - slack, low), np.where(constant, high + slack, high), bins)

    @property
    def cells(self) -> int:
        """Number of cells, including the outer ones."""
        return int((self.bins + 2) ** len(self.low))

    def counts(self, samples: Samples) -> NDArray[np.int64]:
        """Count the samples in every cell, shape (cells,); the first axis varies slowest."""
        width = self.high - self.low
        # on an axis of width zero, all other values are far away
        steps = self.bins / np.maximum(width, _TINY)
        # one ulp less if needed, so that `high` itself is in the last inner bin
        steps = np.where(width * steps >= self.bins, np.nextafter(steps, 0), steps)

        def locate(columns: Columns) -> Cells:
            xp = namespace(columns)
            cell = xp.zeros_like(columns[0])
            for column, low, step in zip(columns, self.low, steps, strict=True):
                bin_ = column - low
                bin_ *= step
                xp.clip(bin_, -1, self.bins, out=bin_)
                cell *= self.bins + 2
                cell += xp.floor(bin_, out=bin_)
                cell += 1
            return integers(cell)

        return tally(samples, len(self.low), self.cells, locate)


@dataclass(frozen=True)
class Classes:
    """The decision: one cell per output, the arg max; ties go to the lowest index."""

    m: int

    def __post_init__(self) -> None:
        check_count("m", self.m, 1)

    @property
    def cells(self) -> int:
        """Number of classes."""
        return self.m

    def counts(self, samples: Samples) -> NDArray[np.int64]:
        """Count the samples in every class, shape (m,)."""

        def locate(columns: Columns) -> Cells:
            xp = namespace(columns)
            best, winner = columns[0], xp.zeros_like(columns[0], dtype=xp.int64)
            for label, column in enumerate(columns[1:], start=1):
                xp.maximum(winner, (column > best) * label, out=winner)
                best = xp.maximum(best, column, out=column)
            return winner

        return tally(samples, self.m, self.m, locate)


@dataclass(frozen=True, eq=False)
class ScoreDifferences:
    """Differences y_i - y_j of all pairs i < j, each in bins of equal mass.

    These are m (m - 1) / 2 partitions rather than one: counts have one row per pair, and
    :func:`pairwise_total_variation` compares them one by one.

    Attributes
    ----------
    edges : ndarray, shape (pairs, bins - 1)
        Inner edges: the pilot's quantiles; the outer bins are unbounded.
    m : int
        Number of outputs.
    """

    edges: NDArray[np.float64]
    m: int

    @classmethod
    def from_samples(cls, pilot: Samples, bins: int = 64) -> ScoreDifferences:
        """Set the edges to quantiles of a pilot, shape (samples, m), m >= 2.

        There are `bins` >= 3 per pair. A difference that is constant in the pilot up to rounding gets one bin
        just wide enough to contain the rounding errors, and one on either side.
        """
        values = pilot_values(pilot)
        bins = check_count("bins", bins, 3)
        m = values.shape[1]
        if m < 2:
            raise ValueError("score differences need at least two outputs, the pilot has one")
        levels = np.arange(1, bins) / bins
        rounding = rounding_of(pilot)
        edges = []
        for i, j in combinations(range(m), 2):
            difference = values[:, i] - values[:, j]
            slack = rounding * np.abs(values[:, [i, j]]).max()
            if np.ptp(difference) <= 2 * slack:
                line = np.full(bins - 1, np.inf)
                line[:2] = difference.min() - slack, difference.max() + slack
            else:
                line = np.quantile(difference, levels)
            edges.append(line)
        return cls(np.array(edges), m)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs of outputs (i, j), i < j, in the order of the rows of `counts`."""
        return tuple(combinations(range(self.m), 2))

    @property
    def cells(self) -> int:
        """Number of bins per pair."""
        return int(self.edges.shape[1]) + 1

    def counts(self, samples: Samples) -> NDArray[np.int64]:
        """Count the samples in every bin of every pair, shape (pairs, cells)."""

        def differences(columns: Columns) -> Iterator[Columns]:
            return (columns[i] - columns[j] for i, j in self.pairs)

        return tally_lines(samples, self.m, self.edges, differences)


def total_variation(
    oracle_samples: Samples, rule_samples: Samples, partition: Partition, *, seed: int = 0
) -> Estimate:
    """Total variation in [0, 1] between two laws on the cells of a partition, from samples (N, m) and (M, m).

    The partition must be fixed by an independent pilot sample. `seed` is used to simulate the floor; see
    :func:`total_variation_of_counts`.
    """
    if isinstance(partition, ScoreDifferences):
        raise ValueError("ScoreDifferences is one partition per pair: use pairwise_total_variation")
    oracle_counts, rule_counts = partition.counts(oracle_samples), partition.counts(rule_samples)
    floor = total_variation_floor(oracle_counts, int(rule_counts.sum()), seed=seed)
    return total_variation_of_counts(oracle_counts, rule_counts, floor)


def pairwise_total_variation(
    oracle_samples: Samples, rule_samples: Samples, partition: ScoreDifferences, *, seed: int = 0
) -> tuple[Estimate, ...]:
    """Total variation of every score difference, in the order of ``partition.pairs``.

    Arguments are those of :func:`total_variation`.
    """
    estimates = []
    for oracle, rule in zip(partition.counts(oracle_samples), partition.counts(rule_samples), strict=True):
        floor = total_variation_floor(oracle, int(rule.sum()), seed=seed)
        estimates.append(total_variation_of_counts(oracle, rule, floor))
    return tuple(estimates)


def total_variation_of_counts(oracle_counts: ArrayLike, rule_counts: ArrayLike, floor: Floor) -> Estimate:
    """Total variation in [0, 1] between two laws, from their counts in the same cells.

    With p and q the relative counts and A = {p > q}, the value is P(A) - Q(A) and the standard error
    sqrt(P(A) (1 - P(A)) / N + Q(A) (1 - Q(A)) / M). A is treated as given, which is exact to first order away
    from p = q. Samples are treated as independent; the error of Sobol points is smaller.

    The `floor` is that of :func:`total_variation_floor`, which is the same for all rules with equally many
    samples.
    """
    oracle, rule = cell_counts("oracle_counts", oracle_counts), cell_counts("rule_counts", rule_counts)
    if oracle.shape != rule.shape:
        raise ValueError(f"counts must be of the same cells, got shapes {oracle.shape} and {rule.shape}")
    p, q = oracle / oracle.sum(), rule / rule.sum()
    excess = p > q
    p_excess, q_excess = float(p[excess].sum()), float(q[excess].sum())
    variance = p_excess * (1 - p_excess) / oracle.sum() + q_excess * (1 - q_excess) / rule.sum()
    return Estimate(p_excess - q_excess, floor.mean, floor.upper95, math.sqrt(max(0.0, variance)))
