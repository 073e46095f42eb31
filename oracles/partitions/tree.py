"""The headline partition: cells of equal mass in the oracle's principal coordinates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..estimate.samples import Samples
from .counting import (
    Cells,
    Columns,
    check_count,
    like,
    namespace,
    pilot_values,
    rounding_of,
    take,
    tally,
)

ROUNDING = 4 * float(np.finfo(np.float64).eps)
"""Rounding error of a rotation, relative to the largest coordinate: values within it count as equal."""

Axes = Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""Maps a pilot, shape (samples, m), to a centre, shape (m,), and orthonormal directions, the columns of an
array of shape (m, m), by decreasing width.
"""


def principal_axes(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean, and eigenvectors of the covariance by decreasing variance: :data:`Axes` of a law with moments."""
    centre = values.mean(0)  # in the pilot's subspace, unlike medians
    covariance = np.atleast_2d(np.cov(values - centre, rowvar=False))
    return centre, np.linalg.eigh(covariance)[1][:, ::-1]


@dataclass(frozen=True, eq=False)
class EqualMassTree:
    """Cells of equal mass: a k-d tree in the principal coordinates of the oracle.

    Each level splits every cell at the pilot's median along the next principal axis, cyclically by decreasing
    variance, so thin directions are resolved as finely as wide ones. Medians do not depend on the scale of a
    coordinate, so whitening is implied. If an atom is at the median, the cell is split next to it. A
    direction in which every pilot sample agrees with the centre up to rounding is null and not split; samples
    outside the pilot's subspace are counted in an additional last cell. A constant pilot is a point mass: one
    cell at it, and one for other values.

    Attributes
    ----------
    centre : ndarray, shape (m,)
        Mean of the pilot, or the centre of other :data:`Axes`.
    axes, null : ndarray, shapes (m, r) and (m, m - r)
        Principal directions with and without spread.
    thresholds : ndarray, shape (leaves,)
        Node i has children 2i (at or below its threshold) and 2i + 1; the root is node 1.
    rounding : float
        Largest distance from the subspace that counts as rounding, relative to a sample's largest output.
    """

    centre: NDArray[np.float64]
    axes: NDArray[np.float64]
    null: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    rounding: float

    @classmethod
    def from_samples(cls, pilot: Samples, cells: int = 512, axes: Axes = principal_axes) -> EqualMassTree:
        """Construct the tree from a pilot sample, shape (samples, m)."""
        values = pilot_values(pilot)
        cells = check_count("cells", cells, 2)
        if cells & (cells - 1):
            raise ValueError(f"cells must be a power of two, got {cells}")
        if len(values) < cells:
            raise ValueError(f"a pilot of {len(values)} samples cannot fix {cells} cells; draw more")
        centre, directions = axes(values)
        rounding = rounding_of(pilot)
        deviations = values - centre
        coordinates = deviations @ directions
        # Relative to a sample's largest output, not its coordinate: a rotation mixes the rounding of all
        # outputs.
        slack = rounding * (np.abs(values).max(1) + np.abs(centre).max())
        is_null = (np.abs(coordinates) <= slack[:, None]).all(0)
        thresholds = _grow(coordinates[:, ~is_null], cells, ROUNDING * np.abs(coordinates).max())
        return cls(centre, directions[:, ~is_null], directions[:, is_null], thresholds, rounding)

    @property
    def cells(self) -> int:
        """Number of cells: the leaves and the cell of samples outside the pilot's subspace."""
        return len(self.thresholds) + 1

    def counts(self, samples: Samples) -> NDArray[np.int64]:
        """Count the samples in every cell, shape (cells,); the last cell is outside the subspace."""
        return tally(samples, len(self.centre), self.cells, self.located)

    def located(self, columns: Columns) -> Cells:
        xp, leaves = namespace(columns), len(self.thresholds)
        spread = self.axes.shape[1]
        deviations = columns - like(columns, self.centre[:, None])
        if spread and leaves > 1:
            coordinates = like(columns, self.axes.T) @ deviations
            thresholds = like(columns, self.thresholds)
            node = 2 + (coordinates[0] > self.thresholds[1])
            for level in range(1, leaves.bit_length() - 1):
                above = coordinates[level % spread] > take(thresholds, node)
                node += node
                node += above
        else:
            node = xp.full_like(columns[0], leaves, dtype=xp.int64)
        if self.null.shape[1]:
            slack = self.rounding * (xp.amax(xp.abs(columns), 0) + np.abs(self.centre).max())
            node[(xp.abs(like(columns, self.null.T) @ deviations) > slack).any(0)] = 2 * leaves
        node -= leaves
        return node


def _grow(coordinates: NDArray[np.float64], leaves: int, slack: float) -> NDArray[np.float64]:
    """Thresholds of a tree, as a heap; each level splits one column, cyclically, but not within `slack`."""
    thresholds = np.zeros(leaves)
    if coordinates.shape[1] == 0:
        return thresholds
    groups = [np.arange(len(coordinates))]
    for level in range(leaves.bit_length() - 1):
        column = coordinates[:, level % coordinates.shape[1]]
        children = []
        for node, rows in enumerate(groups, start=2**level):
            values = column[rows]
            thresholds[node] = _split(np.sort(values), slack)
            above = values > thresholds[node]
            children += [rows[~above], rows[above]]
        groups = children
    return thresholds


def _split(ordered: NDArray[np.float64], slack: float) -> float:
    """Threshold between two different values, as close to the median as possible."""
    if len(ordered) == 0:
        return 0.0
    half = len(ordered) // 2
    ends = (
        np.searchsorted(ordered, ordered[half] - slack, "left"),
        np.searchsorted(ordered, ordered[half] + slack, "right"),
    )
    inside = [int(end) for end in ends if 0 < end < len(ordered)]
    if not inside:
        return float(ordered[-1] + slack)
    cut = min(inside, key=lambda end: abs(end - half))
    # Between the two, so that rounding of a sample at either does not move it. The midpoint of adjacent
    # floats rounds to one of them, and only the lower one is correct: values at or below the threshold go
    # left.
    middle = (ordered[cut - 1] + ordered[cut]) / 2
    return float(middle if middle < ordered[cut] else ordered[cut - 1])
