"""Reduced costs |x_i - y_j| - u_i - v_j of all pairs, tile by tile, to verify a dual solution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch

from .clouds import Floats, Ints

T = TypeVar("T")

_ROWS = 64  # neighbours in memory, whose bounding box is compared with every column
_TILE = 256  # columns of a block of distances: 128 kB, which fit in cache


class ReducedCosts:
    """|x_i - y_j| - u_i - v_j by tiles, without columns that cannot be negative by a bounding box.

    `x` (n, m) and `y` (k, m) are points, `u` (n,) and `v` (k,) their potentials.
    """

    def __init__(self, x: Floats, u: Floats, y: Floats, v: Floats) -> None:
        self._x, self._u, self._y, self._v = x, u, np.ascontiguousarray(y.T), v
        self._starts = np.arange(0, len(x), _ROWS)

    def by_rows(self, function: Callable[[Ints], T]) -> list[T]:
        """Results of a function of the rows of every block, in order, with as many threads as torch uses."""
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            return list(pool.map(lambda start: function(self._rows(start)), self._starts))

    def slack(self, rows: Ints) -> Iterator[tuple[Ints, Floats]]:
        """Column indices (c,) of each tile, and the tile (rows, c), which the next one overwrites."""
        x, u = self._x[rows], self._u[rows, None]
        near = self._near(x, float(u.max()))
        tile, work = np.empty((2, len(x), _TILE))
        for start in range(0, len(near), _TILE):
            columns = near[start : start + _TILE]
            total, square = tile[:, : len(columns)], work[:, : len(columns)]
            total[:] = 0
            for column, other in zip(x.T, self._y, strict=True):
                np.subtract(column[:, None], other[columns], out=square)
                np.multiply(square, square, out=square)
                np.add(total, square, out=total)
            np.sqrt(total, out=total)
            np.subtract(total, self._v[columns], out=total)
            np.subtract(total, u, out=total)
            yield columns, total

    def _rows(self, start: int) -> Ints:
        return np.arange(start, min(start + _ROWS, len(self._x)))

    def _near(self, x: Floats, most: float) -> Ints:
        """Columns whose distance to the box around x is less than `most` plus their potential."""
        square = np.zeros(len(self._v))
        for column, other in zip(x.T, self._y, strict=True):
            distance = other - np.clip(other, column.min(), column.max())
            square += distance * distance
        return np.flatnonzero(np.sqrt(square) - self._v < most)


def lipschitz_extension(z: Floats, y: Floats, v: Floats, guess: Ints) -> Floats:
    """min_j |z - y_j| - v_j at points z (n, m), shape (n,).

    y[guess], with `guess` (n,), is expected to be close to the minimiser, which saves time.
    """
    f: Floats = np.linalg.norm(z - y[guess], axis=1) - v[guess]
    blocks = ReducedCosts(z, f, y, v)
    change = np.zeros(len(z))

    def lower(rows: Ints) -> None:
        for _, slack in blocks.slack(rows):
            change[rows] = np.minimum(change[rows], slack.min(1))

    blocks.by_rows(lower)
    return f + change
