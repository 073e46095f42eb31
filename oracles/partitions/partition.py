"""Partitions of the output space, frozen from a pilot draw, and total variation on them.

The cells are fixed before any rule is seen, from a draw of the oracle that serves nothing else, so
that every rule is judged on the same cells and these do not move with extreme samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sdp_bench.oracles.estimate.estimate import Estimate, Floor
from sdp_bench.oracles.estimate.samples import Samples
from sdp_bench.oracles.partitions.counting import (
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
from sdp_bench.oracles.partitions.floors import cell_counts, total_variation_floor
from sdp_bench.oracles.partitions.tree import EqualMassTree

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
    """Cells that cover the output space."""

    def __hash__(self) -> int:
        """As what never changes."""

    @property
    def cells(self) -> int:
        """Number of cells."""

    def counts(self, samples: Samples) -> NDArray[np.int64]:
        """Number of samples in every cell, shape (cells,)."""


@dataclass(frozen=True, eq=False)
class AxisBins:
    """Equal bins along every axis, with a low and a high outer cell on each: (bins + 2)^m cells.

    Attributes
    ----------
    low, high : ndarray, shape (m,)
        Where the inner bins of an axis begin and end, both included.
    bins : int
        Number of inner bins on an axis.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    bins: int

    @classmethod
    def from_samples(
        cls, pilot: Samples, bins: int = 10, bin_range: Literal["quantiles", "minmax"] = "quantiles"
    ) -> AxisBins:
        """Place the bins by a pilot draw.

        Parameters
        ----------
        pilot : Tensor or ndarray, shape (samples, m)
        bins : int
            Inner bins on an axis, positive.
        bin_range : {"quantiles", "minmax"}
            Inner bins between the pilot's 0.05 % and 99.95 % quantiles on each axis, or between
            its extremes. An axis on which the pilot is constant but for rounding gets bins just
            wide enough to hold the rounding.

        Returns
        -------
        AxisBins
            (bins + 2)^m cells, the outer ones unbounded.

        Raises
        ------
        ValueError
            If the pilot is not a finite matrix, or `bins` or `bin_range` is not as above.
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
        """Number of cells, the outer ones included."""
        return int((self.bins + 2) ** len(self.low))

    def counts(self, samples: Samples) -> NDArray[np.int64]:
        """Number of samples in every cell, shape (cells,); the first axis varies slowest."""
        width = self.high - self.low
        steps = self.bins / np.maximum(width, _TINY)  # an axis of no width: anything off it is far away
        # one ulp less where needed, so that `high` itself falls into the last inner bin
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
        """Number of samples in every class, shape (m,)."""

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
    """Differences y_i - y_j of every pair i < j, each in bins of equal mass on its own line.

    Not one partition but m (m - 1) / 2 of them: counts have a row for each pair, and
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
        """Place the edges at a pilot's quantiles.

        Parameters
        ----------
        pilot : Tensor or ndarray, shape (samples, m), m >= 2
        bins : int
            Bins of a pair, at least 3. A difference that is constant in the pilot but for
            rounding gets one bin just wide enough to hold the rounding, and one on either side.

        Returns
        -------
        ScoreDifferences
            `bins` cells for each of the m (m - 1) / 2 pairs.

        Raises
        ------
        ValueError
            If the pilot is not a finite matrix with two columns or more, or `bins` is not as above.
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
        """Number of bins of one pair."""
        return int(self.edges.shape[1]) + 1

    def counts(self, samples: Samples) -> NDArray[np.int64]:
        """Number of samples in every bin of every pair, shape (pairs, cells)."""

        def differences(columns: Columns) -> Iterator[Columns]:
            return (columns[i] - columns[j] for i, j in self.pairs)

        return tally_lines(samples, self.m, self.edges, differences)


def total_variation(
    oracle_samples: Samples, rule_samples: Samples, partition: Partition, *, seed: int = 0
) -> Estimate:
    """Total variation between two laws on the cells of a partition.

    Parameters
    ----------
    oracle_samples, rule_samples : Tensor or ndarray, shapes (N, m) and (M, m)
    partition : AxisBins, EqualMassTree or Classes
        Fixed by an independent pilot draw.
    seed : int
        For the floor's simulation.

    Returns
    -------
    Estimate
        In [0, 1]; see :func:`total_variation_of_counts`.

    Raises
    ------
    ValueError
        If samples are not finite matrices of the partition's width.
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

    Parameters, errors and estimates are those of :func:`total_variation`.

    Returns
    -------
    tuple of Estimate
        One a pair.
    """
    estimates = []
    for oracle, rule in zip(partition.counts(oracle_samples), partition.counts(rule_samples), strict=True):
        floor = total_variation_floor(oracle, int(rule.sum()), seed=seed)
        estimates.append(total_variation_of_counts(oracle, rule, floor))
    return tuple(estimates)


def total_variation_of_counts(oracle_counts: ArrayLike, rule_counts: ArrayLike, floor: Floor) -> Estimate:
    """Total variation between two laws from their counts in the same cells.

    With p and q the relative counts and A = {p > q}, the value is P(A) - Q(A) and the standard
    error sqrt(P(A) (1 - P(A)) / N + Q(A) (1 - Q(A)) / M): A is taken as given, which is exact to
    first order away from p = q. Samples are taken as independent; Sobol points are steadier than that.

    Parameters
    ----------
    oracle_counts, rule_counts : array_like of int, shape (cells,)
    floor : Floor
        From :func:`total_variation_floor`; the same for all rules with as many samples.

    Returns
    -------
    Estimate
        In [0, 1].

    Raises
    ------
    ValueError
        If the counts are not vectors of one length, or are negative or all zero.
    """
    oracle, rule = cell_counts("oracle_counts", oracle_counts), cell_counts("rule_counts", rule_counts)
    if oracle.shape != rule.shape:
        raise ValueError(f"counts must be of the same cells, got shapes {oracle.shape} and {rule.shape}")
    p, q = oracle / oracle.sum(), rule / rule.sum()
    excess = p > q
    p_excess, q_excess = float(p[excess].sum()), float(q[excess].sum())
    variance = p_excess * (1 - p_excess) / oracle.sum() + q_excess * (1 - q_excess) / rule.sum()
    return Estimate(p_excess - q_excess, floor.mean, floor.upper95, math.sqrt(max(0.0, variance)))
