"""Counting samples in cells: what all partitions share.

Samples are located in float64: float32 values convert exactly, so an atom of a law falls in one cell
whatever precision a rule works in.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Samples = Tensor | NDArray[np.floating]
Columns = NDArray[np.float64]  # shape (m, rows)
Cells = NDArray[np.intp]  # shape (rows,)

_CHUNK_ROWS = 2**13  # located at a time: they stay in cache
_ROUNDING = 16  # units in the last place that outputs equal but for rounding may be apart


def search(edges: NDArray[np.float64], values: NDArray[np.float64]) -> Cells:
    """Number of the 2^k - 1 edges below each value: np.searchsorted without its branches."""
    index = np.zeros(len(values), dtype=np.intp)
    step = (len(edges) + 1) // 2
    while step:
        index += step * (values > edges[index + (step - 1)])
        step //= 2
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


def matrix_of(samples: Samples) -> NDArray[np.floating]:
    """Samples as an array of shape (samples, m), in their own precision."""
    matrix = samples.detach().cpu().numpy() if isinstance(samples, Tensor) else np.asarray(samples)
    if matrix.ndim != 2 or matrix.size == 0 or matrix.dtype.kind != "f":
        raise ValueError(
            f"samples must be a floating-point matrix (samples, m), got shape {matrix.shape}, {matrix.dtype}"
        )
    return matrix


def pilot_values(samples: Samples) -> NDArray[np.float64]:
    """A pilot draw in float64, checked to be finite."""
    values = matrix_of(samples).astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("the pilot has non-finite entries (NaN or infinity)")
    return values


def rounding_of(samples: Samples) -> float:
    """Relative difference that rounding explains at the samples' precision."""
    return _ROUNDING * float(np.finfo(matrix_of(samples).dtype).eps)


def check_count(name: str, value: int, least: int) -> int:
    """`value` as an int, checked to be one of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)
