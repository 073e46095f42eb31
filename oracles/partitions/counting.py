"""Counting samples in cells, for all partitions.

Samples are located in float64. float32 values convert exactly, so an atom of a law is in one cell for every
precision of a rule. Samples are counted on their device, and only the counts are copied. The code is the same
for arrays and tensors, because numpy and torch have most functions under the same names (:func:`namespace`).
On the CPU numpy is used, which is faster there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..estimate.samples import Samples, finite_matrix, matrix_of, on_cpu, resident_matrix

Columns = Any  # shape (m, rows), float64: an ndarray, or a Tensor on a device
Cells = Any  # shape (rows,), integers: an ndarray, or a Tensor on a device

_CHUNK_ROWS = 2**14  # rows per chunk, which stays in cache
_DEVICE_ROWS = 2**18  # the same on a device: few calls and synchronisations
_STEPS = 2**10  # entries of a table: few edges share one, and it stays in cache
_ROUNDING = 16  # largest difference between outputs due to rounding, in units in the last place


def namespace(columns: Columns) -> Any:
    """The module of these columns, numpy or torch."""
    return torch if isinstance(columns, Tensor) else np


def like(columns: Columns, array: NDArray[Any]) -> Any:
    """Copy an array to the device of the columns."""
    if isinstance(columns, Tensor):
        return torch.from_numpy(np.array(array, order="C")).to(columns.device)
    return array


def take(table: Any, index: Cells) -> Any:
    """Index a table on the device of the indices."""
    # Clipping is for speed; all indices are in bounds.
    return table[index] if isinstance(index, Tensor) else table.take(index, mode="clip")


def integers(values: Any) -> Cells:
    return values.long() if isinstance(values, Tensor) else values.astype(np.intp)


class Edges:
    """Sorted edges of one line with a lookup table: a fast np.searchsorted for many values.

    An equidistant grid lies over the edges; the last edges may be infinite. The table stores the number of
    edges before each grid step, and the few edges within the step of a value are compared one by one.
    """

    def __init__(self, edges: NDArray[np.float64]) -> None:
        finite = edges[np.isfinite(edges)] if np.isfinite(edges).any() else np.zeros(1)
        self._low, width = finite[0], finite[-1] - finite[0]
        steps = _STEPS if np.finfo(np.float64).tiny * _STEPS < width < np.inf else 1
        self._scale, self._last = (steps / width if steps > 1 else 1.0), steps - 1
        bins = self._step(finite)
        self._before = np.searchsorted(bins, np.arange(steps))
        self._most = int(np.bincount(bins).max())
        self._edges = np.append(edges, np.inf)

    def _step(self, values: Columns) -> Cells:
        # Monotone in the value, so that no edge of an earlier step is above it, whatever the rounding.
        position = values - self._low
        position *= self._scale
        return integers(namespace(position).clip(position, 0, self._last, out=position))

    def below(self, values: Columns) -> Cells:
        index = take(like(values, self._before), self._step(values))
        edges = like(values, self._edges)
        for _ in range(self._most):
            index += values > take(edges, index)
        return index


def tally(samples: Samples, m: int, cells: int, locate: Callable[[Columns], Cells]) -> NDArray[np.int64]:
    """Count cells chunk by chunk; `locate` maps columns, shape (m, rows), to cell numbers."""
    counts: NDArray[np.int64] = tally_rows(samples, m, 1, cells, lambda columns: [locate(columns)])[0]
    return counts


def tally_rows(
    samples: Samples, m: int, rows: int, cells: int, locate: Callable[[Columns], Iterable[Cells]]
) -> NDArray[np.int64]:
    """Count several partitions, shape (rows, cells); `locate` returns cell numbers for each of them."""
    matrix = resident_matrix(samples)
    if matrix.shape[1] != m:
        raise ValueError(f"samples have {matrix.shape[1]} outputs, the partition {m}")
    xp, chunk = namespace(matrix), _DEVICE_ROWS if isinstance(matrix, Tensor) else _CHUNK_ROWS
    counts = like(matrix, np.zeros((rows, cells), dtype=np.int64))
    for start in range(0, len(matrix), chunk):
        columns = _columns(matrix[start : start + chunk])
        if not xp.isfinite(columns).all():
            raise ValueError("samples have non-finite entries (NaN or infinity)")
        for row, located in zip(counts, locate(columns), strict=True):
            row += xp.bincount(located, minlength=cells)
    return on_cpu(counts)


def _columns(matrix: Samples) -> Columns:
    if isinstance(matrix, Tensor):
        return matrix.T.to(torch.float64, memory_format=torch.contiguous_format, copy=True)
    return matrix.T.astype(np.float64, order="C")


def tally_lines(
    samples: Samples, m: int, edges: NDArray[np.float64], values: Callable[[Columns], Iterable[Columns]]
) -> NDArray[np.int64]:
    """Count bins of lines, shape (lines, bins); `values` maps columns to one row per line of `edges`."""
    lines = [Edges(line) for line in edges]

    def locate(columns: Columns) -> Iterator[Cells]:
        return (line.below(value) for line, value in zip(lines, values(columns), strict=True))

    return tally_rows(samples, m, len(lines), edges.shape[1] + 1, locate)


def pilot_values(samples: Samples) -> NDArray[np.float64]:
    """Pilot samples in float64; raise if they are not finite."""
    return finite_matrix("the pilot", matrix_of(samples))


def rounding_of(samples: Samples) -> float:
    """Relative difference that rounding can cause at the samples' precision."""
    return _ROUNDING * float(np.finfo(matrix_of(samples).dtype).eps)


def check_count(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)
