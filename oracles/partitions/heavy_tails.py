"""Partitions for laws without moments, with axes and edges from quantiles.

Quantiles are robust to extreme samples. The outermost cells are unbounded and count the tails (overflow
cells).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..estimate.samples import Samples
from .counting import check_count, pilot_values, rounding_of, tally_lines


def central_axes(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Principal axes of the central half of a pilot: `Axes` for heavy tails.

    Returns the mean, shape (m,), and in columns the eigenvectors, shape (m, m), of the covariance of the half
    of the samples that is closest to the componentwise median, by decreasing variance. The covariance of a
    whole Cauchy sample is dominated by its few largest values: counts in cells along its axes are correct,
    but insensitive to the thin directions of the bulk.
    """
    # Around the median, which unlike the mean is robust to a few huge samples.
    distances = np.square(values - np.median(values, axis=0)).sum(1)
    nearest = values[distances <= np.sort(distances)[len(values) // 2]]
    centre = nearest.mean(0)
    covariance = np.atleast_2d(np.cov(nearest - centre, rowvar=False))
    return centre, np.linalg.eigh(covariance)[1][:, ::-1]


@dataclass(frozen=True, eq=False)
class OutputBins:
    """Bins of equal mass for each output separately.

    These are m partitions rather than one: counts have one row per output.

    Attributes
    ----------
    edges : ndarray, shape (m, bins - 1)
        Inner edges: the pilot's quantiles; the outer bins are unbounded.
    """

    edges: NDArray[np.float64]

    @classmethod
    def from_samples(cls, pilot: Samples, bins: int = 100) -> OutputBins:
        """Set the edges to quantiles of a pilot, shape (samples, m).

        There are `bins` >= 3 per output. An output that is constant in the pilot up to rounding gets one bin
        just wide enough to contain the rounding errors, and one on either side.
        """
        values = pilot_values(pilot)
        bins = check_count("bins", bins, 3)
        edges = np.quantile(values, np.arange(1, bins) / bins, axis=0).T.copy()
        slack = rounding_of(pilot) * np.abs(values).max(0)
        for output in np.flatnonzero(np.ptp(values, axis=0) <= 2 * slack):
            edges[output] = np.inf
            edges[output, 0] = values[:, output].min() - slack[output]
            edges[output, 1] = values[:, output].max() + slack[output]
        return cls(edges)

    @property
    def cells(self) -> int:
        """Number of bins per output."""
        return int(self.edges.shape[1]) + 1

    def counts(self, samples: Samples) -> NDArray[np.int64]:
        """Number of samples in every bin of every output, shape (m, cells)."""
        return tally_lines(samples, len(self.edges), self.edges, iter)
