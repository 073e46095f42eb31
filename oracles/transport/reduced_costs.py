"""Reduced costs |x_i - y_j| - u_i - v_j of all pairs, tile by tile: a dual solution is checked on these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch

from sdp_bench.oracles.transport.clouds import Floats, Ints

T = TypeVar("T")

_TILE = 256  # points a side of a block of distances: half a megabyte, which stays in cache


class ReducedCosts:
    """|x_i - y_j| - u_i - v_j by tiles, without those where boxes say that it is not negative."""

    def __init__(self, x: Floats, u: Floats, y: Floats, v: Floats) -> None:
        self._x, self._u, self._y, self._v = x, u, np.ascontiguousarray(y.T), v
        self.starts = np.arange(0, len(x), _TILE)
        self._columns = np.arange(0, len(y), _TILE)
        low, high = np.minimum.reduceat(x, self.starts), np.maximum.reduceat(x, self.starts)
        other_low, other_high = np.minimum.reduceat(y, self._columns), np.maximum.reduceat(y, self._columns)
        apart = np.maximum(low[:, None] - other_high, other_low - high[:, None])
        most = np.maximum.reduceat(u, self.starts)[:, None] + np.maximum.reduceat(v, self._columns)
        self._needed = np.linalg.norm(np.maximum(apart, 0), axis=2) < most

    def each(self, function: Callable[[int], T]) -> list[T]:
        """Values of a function of every block of rows, in order, on the threads that torch has."""
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            return list(pool.map(function, range(len(self.starts))))

    def rows(self, block: int) -> Ints:
        """Places of the rows of a block."""
        return np.arange(self.starts[block], min(self.starts[block] + _TILE, len(self._x)))

    def slack(self, block: int) -> Iterator[tuple[Ints, Floats]]:
        """Places of the columns of each tile, and the tile, which the next one overwrites."""
        begin = self.starts[block]
        x, u = self._x[begin : begin + _TILE], self._u[begin : begin + _TILE, None]
        tile, work = np.empty((2, len(x), _TILE))
        for start in self._columns[self._needed[block]]:
            y, v = self._y[:, start : start + _TILE], self._v[start : start + _TILE]
            total, square = tile[:, : len(v)], work[:, : len(v)]
            total[:] = 0
            for column, other in zip(x.T, y, strict=True):
                np.subtract(column[:, None], other, out=square)
                np.multiply(square, square, out=square)
                np.add(total, square, out=total)
            np.sqrt(total, out=total)
            np.subtract(total, v, out=total)
            np.subtract(total, u, out=total)
            yield np.arange(start, start + len(v)), total


def lipschitz_extension(z: Floats, y: Floats, v: Floats, guess: Ints) -> Floats:
    """min_j |z - y_j| - v_j; y[guess] is taken to be near the minimum, which saves work."""
    f: Floats = np.linalg.norm(z - y[guess], axis=1) - v[guess]
    blocks = ReducedCosts(z, f, y, v)
    change = np.zeros(len(z))

    def lower(block: int) -> None:
        rows = blocks.rows(block)
        for _, slack in blocks.slack(block):
            change[rows] = np.minimum(change[rows], slack.min(1))

    blocks.each(lower)
    return f + change
