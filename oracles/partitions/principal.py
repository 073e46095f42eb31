"""The headline's cells for any number of dimensions: all principal axes together, and pairs of axes.

A tree of 512 cells splits each of three axes three times, each of six once or twice, and a tenth never; one
median split is insensitive to scale. With more than three axes, there is therefore also a grid on each pair
of axes. Total variation on any of these is a lower bound of the true one, and so is their maximum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..estimate.estimate import Estimate, Floor
from ..estimate.redraws import check_redraws
from ..estimate.samples import Samples
from .counting import Cells, Columns, Edges, like, pilot_values, tally_rows
from .floors import redrawn_distances
from .logits import bootstrapped_floor
from .partition import total_variation_of_counts
from .tree import ROUNDING, Axes, EqualMassTree, principal_axes

TREE_AXES = 3
"""Maximum number of axes that the tree alone resolves: 512 cells are 8 of equal mass along each of three."""

_PAIRS = 190  # maximum number of pairs: all of 20 axes
_LEAST_BINS = 4  # per axis: its median and two tails
_TAIL = 0.01


@dataclass(frozen=True, eq=False)
class PrincipalCells:
    """An equal-mass tree over all principal axes and, if there are more than three, a grid on each pair.

    These are several partitions: counts have one row for each, that of the tree first. Both axes of a grid
    have equally many bins of equal mass, except that 1 % at either end are separate bins, because a law that
    is too wide has its mass there; a grid has about as many cells as the tree. With more than 20 axes not all
    pairs are used: each axis is paired with those next to it in width, in a ring.

    Attributes
    ----------
    tree : EqualMassTree
    edges : ndarray, shape (axes, bins - 1)
        Inner edges along each axis that has spread; those of an atom coincide and are infinite.
    """

    tree: EqualMassTree
    edges: NDArray[np.float64]

    @classmethod
    def from_samples(cls, pilot: Samples, cells: int = 512, axes: Axes = principal_axes) -> PrincipalCells:
        """Fix all cells by a pilot sample, shape (samples, m), as :meth:`EqualMassTree.from_samples` does.

        With at most three axes that have spread, this is the tree alone.
        """
        tree = EqualMassTree.from_samples(pilot, cells, axes)
        coordinates = (pilot_values(pilot) - tree.centre) @ tree.axes
        if coordinates.shape[1] <= TREE_AXES:
            return cls(tree, np.empty((0, 1)))
        slack = ROUNDING * np.abs(coordinates).max()
        bins = max(_LEAST_BINS, math.isqrt(cells))
        return cls(tree, np.array([_edges(np.sort(column), bins, slack) for column in coordinates.T]))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The axes of the grid, for every row of counts except the first."""
        axes = len(self.edges)
        if axes * (axes - 1) // 2 <= _PAIRS:
            return list(combinations(range(axes), 2))
        steps = range(1, max(1, _PAIRS // axes) + 1)
        return [(axis, (axis + step) % axes) for step in steps for axis in range(axes)]

    @property
    def cells(self) -> int:
        """Number of cells of the tree or of a grid, whichever is larger: the length of a row of counts."""
        return max(self.tree.cells, int(self.edges.shape[1] + 1) ** 2)

    def counts(self, samples: Samples) -> NDArray[np.int64]:
        """Count the samples in every cell, shape (1 + pairs, cells); rows of grids are padded with zeros."""
        partitions = 1 + len(self.pairs)
        return tally_rows(samples, len(self.tree.centre), partitions, self.cells, self.located)

    def located(self, columns: Columns) -> Iterator[Cells]:
        """Yield the cell numbers of samples in each partition, from their columns, shape (m, samples)."""
        yield self.tree.located(columns)
        if not len(self.edges):
            return
        bins = self.edges.shape[1] + 1
        deviations = columns - like(columns, self.tree.centre[:, None])
        coordinates = like(columns, self.tree.axes.T) @ deviations
        bin_numbers = [
            Edges(line).below(values) for line, values in zip(self.edges, coordinates, strict=True)
        ]
        for first, second in self.pairs:
            yield bin_numbers[first] * bins + bin_numbers[second]


def largest_total_variation(oracle: NDArray[np.int64], rule: NDArray[np.int64], floor: Floor) -> Estimate:
    """Return the largest total variation among several partitions, with its standard error.

    `oracle` and `rule` are counts in the same cells, shape (rows, cells), and `floor` is that of the maximum,
    from :func:`floor_of_largest`.
    """
    rows = (total_variation_of_counts(*counts, floor) for counts in zip(oracle, rule, strict=True))
    return max(rows, key=lambda estimate: estimate.value)


def floor_of_largest(counts: ArrayLike, rule_total: int, *, pairs: int = 200, seed: int = 0) -> Floor:
    """Return the floor of the largest total variation among several partitions, by simulation.

    The simulation is that of :func:`total_variation_floor` for each partition, with the maximum over the
    partitions of each draw. `counts` are those of the oracle, shape (rows, cells). Partitions are simulated
    independently, although some share axes. The maximum of dependent ones is smaller, so the floor is, if
    anything, too high, but at most by the small scatter of total variations in hundreds of cells.
    """
    pairs = check_redraws("pairs", pairs)
    generator = np.random.default_rng(seed)
    rows = [redrawn_distances(row, rule_total, pairs, generator) for row in np.asarray(counts)]
    once, twice = np.max(rows, axis=0)
    return bootstrapped_floor(once, twice)


def _edges(ordered: NDArray[np.float64], bins: int, slack: float) -> NDArray[np.float64]:
    """Edges between two different values as close to their mass as possible: no atom is on an edge."""
    levels = np.r_[_TAIL, np.arange(1, bins - 2) / (bins - 2), 1 - _TAIL]
    places = (levels * len(ordered)).astype(np.intp)
    values = ordered[places]
    before = np.searchsorted(ordered, values - slack, "left")
    behind = np.searchsorted(ordered, values + slack, "right")
    cuts = np.where((places - before <= behind - places) & (before > 0), before, behind)
    cuts = np.unique(cuts[cuts < len(ordered)])
    edges = np.full(bins - 1, np.inf)
    edges[: len(cuts)] = (ordered[cuts - 1] + ordered[cuts]) / 2
    return edges
