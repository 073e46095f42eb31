"""Partitions for laws without moments: axes and edges from quantiles, which extreme samples do not move.

The outermost cells are unbounded, so the tails are counted in them (overflow cells).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdp_bench.oracles.estimate.samples import Samples
from sdp_bench.oracles.partitions.counting import check_count, pilot_values, rounding_of, tally_lines


def central_axes(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Principal axes of the central half of a pilot: `Axes` for heavy tails.

    Mean and eigenvectors of the covariance of the half of the samples that is nearest to the
    componentwise median. The covariance of a whole Cauchy draw is that of its few largest samples:
    cells along their axes count right, but are blind to the thin directions of the bulk.

    Parameters
    ----------
    values : ndarray, shape (samples, m)
        Two samples at least.

    Returns
    -------
    centre : ndarray, shape (m,)
    directions : ndarray, shape (m, m)
        In columns, the widest first.
    """
    # About the median, which a few huge samples do not move, as they would a mean.
    distances = np.square(values - np.median(values, axis=0)).sum(1)
    nearest = values[distances <= np.sort(distances)[len(values) // 2]]
    centre = nearest.mean(0)
    covariance = np.atleast_2d(np.cov(nearest - centre, rowvar=False))
    return centre, np.linalg.eigh(covariance)[1][:, ::-1]


@dataclass(frozen=True, eq=False)
class OutputBins:
    """Each output by itself, in bins of equal mass on its own line.

    Not one partition but m of them: counts have a row for each output.

    Attributes
    ----------
    edges : ndarray, shape (m, bins - 1)
        Inner edges: the pilot's quantiles; the outer bins are unbounded.
    """

    edges: NDArray[np.float64]

    @classmethod
    def from_samples(cls, pilot: Samples, bins: int = 100) -> OutputBins:
        """Place the edges at a pilot's quantiles.

        Parameters
        ----------
        pilot : Tensor or ndarray, shape (samples, m)
        bins : int
            Bins of an output, at least 3. An output that is constant in the pilot but for rounding
            gets one bin just wide enough to hold the rounding, and one on either side.

        Returns
        -------
        OutputBins
            `bins` cells for each output, the outer two unbounded.

        Raises
        ------
        ValueError
            If the pilot is not a finite matrix, or `bins` is not as above.
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
        """Number of bins of one output."""
        return int(self.edges.shape[1]) + 1

    def counts(self, samples: Samples) -> NDArray[np.int64]:
        """Number of samples in every bin of every output, shape (m, cells)."""
        return tally_lines(samples, len(self.edges), self.edges, iter)
