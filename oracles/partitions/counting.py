"""Counting samples in cells: what all partitions share.

Samples are located in float64: float32 values convert exactly, so an atom of a law falls in one cell
whatever precision a rule works in. They are counted where they are, and only counts leave a device.
What locates them is written once, for arrays and for tensors: numpy and torch have most functions by the
same names (:func:`namespace`). On the CPU it is numpy, which is faster there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdp_bench.oracles.estimate.samples import Samples, finite_matrix, matrix_of, on_cpu, resident_matrix

Columns = Any  # shape (m, rows), float64: an ndarray, or a Tensor of a device
Cells = Any  # shape (rows,), integers: the same

_CHUNK_ROWS = 2**14  # located at a time: they stay in cache
_DEVICE_ROWS = 2**18  # the same on a device: few calls and waits
_STEPS = 2**10  # of a table: the pilot's edges seldom share one, and it stays in cache
_ROUNDING = 16  # units in the last place that outputs equal but for rounding may be apart


def namespace(columns: Columns) -> Any:
    """The module whose functions take these columns, numpy or torch."""
    return torch if isinstance(columns, Tensor) else np


def beside(columns: Columns, array: NDArray[Any]) -> Any:
    """An array that was frozen on the CPU, where columns are."""
    if isinstance(columns, Tensor):
        return torch.from_numpy(np.array(array, order="C")).to(columns.device)
    return array


def take(table: Any, index: Cells) -> Any:
    """Entries of a table that is beside the indices."""
    # Clipping is for speed: no index is out of bounds.
    return table[index] if isinstance(index, Tensor) else table.take(index, mode="clip")


def integers(values: Any) -> Cells:
    """Whole numbers in float64 as integers."""
    return values.long() if isinstance(values, Tensor) else values.astype(np.intp)


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

    def _step(self, values: Columns) -> Cells:
        # Monotone in the value, so that no edge of an earlier step is above it, whatever the rounding.
        place = values - self._low
        place *= self._scale
        return integers(namespace(place).clip(place, 0, self._last, out=place))

    def below(self, values: Columns) -> Cells:
        """Number of edges below each value."""
        index = take(beside(values, self._before), self._step(values))
        edges = beside(values, self._edges)
        for _ in range(self._most):
            index += values > take(edges, index)
        return index


def tally(samples: Samples, m: int, cells: int, locate: Callable[[Columns], Cells]) -> NDArray[np.int64]:
    """Count cells chunk by chunk; `locate` maps columns, shape (m, rows), to cell numbers beside them."""
    counts: NDArray[np.int64] = tally_rows(samples, m, 1, cells, lambda columns: [locate(columns)])[0]
    return counts


def tally_rows(
    samples: Samples, m: int, rows: int, cells: int, locate: Callable[[Columns], Iterable[Cells]]
) -> NDArray[np.int64]:
    """The same of several partitions, shape (rows, cells); `locate` gives cell numbers for each of them."""
    matrix = resident_matrix(samples)
    if matrix.shape[1] != m:
        raise ValueError(f"samples have {matrix.shape[1]} outputs, the partition {m}")
    xp, chunk = namespace(matrix), _DEVICE_ROWS if isinstance(matrix, Tensor) else _CHUNK_ROWS
    counts = beside(matrix, np.zeros((rows, cells), dtype=np.int64))
    for start in range(0, len(matrix), chunk):
        columns = _columns(matrix[start : start + chunk])
        if not xp.isfinite(columns).all():
            raise ValueError("samples have non-finite entries (NaN or infinity)")
        for row, located in zip(counts, locate(columns), strict=True):
            row += xp.bincount(located, minlength=cells)
    return on_cpu(counts)


def _columns(matrix: Samples) -> Columns:
    """A copy, which may be written to."""
    if isinstance(matrix, Tensor):
        return matrix.T.to(torch.float64, memory_format=torch.contiguous_format, copy=True)
    return matrix.T.astype(np.float64, order="C")


def tally_lines(
    samples: Samples, m: int, edges: NDArray[np.float64], values: Callable[[Columns], Iterable[Columns]]
) -> NDArray[np.int64]:
    """Count bins of lines, shape (lines, bins); `values` maps columns to a row for each line of `edges`."""
    lines = [Edges(line) for line in edges]

    def locate(columns: Columns) -> Iterator[Cells]:
        return (line.below(value) for line, value in zip(lines, values(columns), strict=True))

    return tally_rows(samples, m, len(lines), edges.shape[1] + 1, locate)


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
