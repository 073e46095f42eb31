"""Counting samples in cells: what all partitions share.

Samples are located in float64: float32 values convert exactly, so an atom of a law falls in one cell
whatever precision a rule works in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from sdp_bench.oracles.estimate.samples import Samples, finite_matrix, matrix_of

Columns = NDArray[np.float64]  # shape (m, rows)
Cells = NDArray[np.intp]  # shape (rows,)

_CHUNK_ROWS = 2**14  # located at a time: they stay in cache
_STEPS = 2**10  # of a table: the pilot's edges seldom share one, and it stays in cache
_ROUNDING = 16  # units in the last place that outputs equal but for rounding may be apart


class Edges:
    """Sorted edges of one line, looked up by a table: np.searchsorted for many values.

    A grid of equal steps lies over the edges; the table tells how many edges lie in the steps before
    a value's own, and the few edges in that step are compared one by one.

    Parameters
    ----------
    edges : ndarray, shape (n,)
        Ascending; those at the end may be infinite.
    """

    def __init__(self, edges: NDArray[np.float64]) -> None:
        finite = edges[np.isfinite(edges)] if np.isfinite(edges).any() else np.zeros(1)
        self._low, width = finite[0], finite[-1] - finite[0]
        steps = _STEPS if np.finfo(np.float64).tiny * _STEPS < width < np.inf else 1
        self._scale, self._last = (steps / width if steps > 1 else 1.0), steps - 1
        own = self._step(finite)
        self._before = np.searchsorted(own, np.arange(steps))
        self._most = int(np.bincount(own).max())
        self._edges = np.append(edges, np.inf)

    def _step(self, values: NDArray[np.float64]) -> Cells:
        # Monotone in the value, so that no edge of an earlier step is above it, whatever the rounding.
        place = values - self._low
        place *= self._scale
        steps: Cells = np.clip(place, 0, self._last, out=place).astype(np.intp)
        return steps

    def below(self, values: NDArray[np.float64]) -> Cells:
        """Number of edges below each value."""
        index = self._before.take(self._step(values), mode="clip")
        for _ in range(self._most):
            index += values > self._edges.take(index, mode="clip")
        return index


def tally(samples: Samples, m: int, cells: int, locate: Callable[[Columns], Cells]) -> NDArray[np.int64]:
    """Count cells chunk by chunk; `locate` maps columns, shape (m, rows), to cell numbers."""
    matrix = matrix_of(samples)
    if matrix.shape[1] != m:
        raise ValueError(f"samples have {matrix.shape[1]} outputs, the partition {m}")
    counts = np.zeros(cells, dtype=np.int64)
    for start in range(0, len(matrix), _CHUNK_ROWS):
        columns = matrix[start : start + _CHUNK_ROWS].T.astype(np.float64, order="C")
        if not np.isfinite(columns).all():
            raise ValueError("samples have non-finite entries (NaN or infinity)")
        counts += np.bincount(locate(columns), minlength=cells)
    return counts


def tally_lines(
    samples: Samples, m: int, edges: NDArray[np.float64], values: Callable[[Columns], Iterable[Columns]]
) -> NDArray[np.int64]:
    """Count bins of lines, shape (lines, bins); `values` maps columns to a row for each line of `edges`."""
    lines, bins = [Edges(line) for line in edges], edges.shape[1] + 1

    def locate(columns: Columns) -> Cells:
        each = enumerate(zip(lines, values(columns), strict=True))
        return np.concatenate([row * bins + line.below(value) for row, (line, value) in each])

    return tally(samples, m, bins * len(lines), locate).reshape(len(lines), bins)


def pilot_values(samples: Samples) -> NDArray[np.float64]:
    """A pilot draw in float64, checked to be finite."""
    return finite_matrix("the pilot", matrix_of(samples))


def rounding_of(samples: Samples) -> float:
    """Relative difference that rounding explains at the samples' precision."""
    return _ROUNDING * float(np.finfo(matrix_of(samples).dtype).eps)


def check_count(name: str, value: int, least: int) -> int:
    """`value` as an int, checked to be one of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)
