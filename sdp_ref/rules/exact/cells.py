"""Polytopes near the origin, represented by their vertices, and cuts of them by hyperplanes.

All polytopes are simple: every vertex lies on n facets, and two vertices are joined by an edge if they share
n - 1 of them. A hyperplane through a vertex is treated as if it passed next to it, so that cuts of simple
polytopes are always simple.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]

ON = 1e-9
"""Distance below which a point counts as on a hyperplane, in standard deviations of the input."""

_STEPS = 64
"""Maximum number of iterations of the search for the point closest to the origin; three usually suffice."""


@dataclass(frozen=True)
class Place:
    """Position of a cell in the tree of cuts: the cut above it and the side (0 or 1)."""

    cut: int
    side: int


@dataclass(frozen=True, eq=False)
class Cell:
    """A simple polytope: each of its `vertices` (k, n) lies on n facets.

    `facets` (k, facets) is the incidence matrix. `planes` (facets, n + 1) are outer unit normals a and
    offsets b of the facets: a z + b <= 0 inside. `place` is the position in the tree of cuts, and None for
    its root.
    """

    vertices: Array
    facets: Flags
    planes: Array
    place: Place | None = None

    @classmethod
    def box(cls, n: int, half: float) -> Cell:
        high = np.array(list(itertools.product((False, True), repeat=n)), dtype=bool).reshape(2**n, n)
        normals = np.concatenate([np.eye(n), -np.eye(n)])
        planes = np.concatenate([normals, np.full((2 * n, 1), -half)], 1)
        return cls(np.where(high, half, -half), np.concatenate([high, ~high], 1), planes)

    def cut(self, plane: Array) -> tuple[Cell, Cell, Array] | None:
        """Cut by a hyperplane; return both sides and the new vertices, or None if it does not cut."""
        n = self.vertices.shape[1]
        distance = self.vertices @ plane[:n] + plane[n]
        above = distance > -ON
        if above.all() or not (distance > ON).any():
            return None
        high, low = np.flatnonzero(above), np.flatnonzero(~above)
        own = self.facets.astype(np.float32)
        i, j = np.nonzero(own[high] @ own[low].T > n - 1.5)  # edges that cross the hyperplane
        i, j = high[i], low[j]
        share = np.clip(distance[i] / (distance[i] - distance[j]), 0, 1)[:, None]
        fresh = self.vertices[i] + share * (self.vertices[j] - self.vertices[i])
        edges = self.facets[i] & self.facets[j]

        def side(kept: Indices, outer: Array) -> Cell:
            facets = np.concatenate([self.facets[kept], edges])
            used = facets.any(0)
            new = np.arange(len(facets)) >= len(kept)
            return Cell(
                np.concatenate([self.vertices[kept], fresh]),
                np.concatenate([facets[:, used], new[:, None]], 1),
                np.concatenate([self.planes[used], outer[None]]),
            )

        return side(low, plane), side(high, -plane), fresh

    def surface(self) -> tuple[Indices, Indices]:
        """Triangulate the facets by pulling vertices.

        Every simplex is a chain of faces F1 > F2 > ..., represented by their first vertices, in which no face
        contains the first vertex of its predecessor.

        References
        ----------
        Cohen and Hickey, "Two algorithms for determining volumes of convex polyhedra", J. ACM 1979.
        """
        count, n = self.vertices.shape
        own = np.nonzero(self.facets)[1].reshape(count, n)
        on = self.facets.T[own]  # (vertex, facet of it, vertex): whether the last lies on that facet
        holds = np.ones((count, 2**n, count), dtype=bool)
        for subset in range(1, 2**n):
            last = subset.bit_length() - 1
            np.logical_and(holds[:, subset - 2**last], on[:, last], out=holds[:, subset])
        orders, subsets = _flags(n)
        chains = holds.argmax(2)[:, subsets]
        facet = own[:, orders[:, 0]]
        kept = (np.diff(chains, axis=2) != 0).all(2)
        return chains[kept], facet[kept]


@functools.cache
def _flags(n: int) -> tuple[Indices, Indices]:
    """Orderings of n facets, and the bit sets that grow by one facet of an ordering at a time."""
    orders = np.array(list(itertools.permutations(range(n))), dtype=np.intp)
    return orders, (2**orders).cumsum(1)


def nearest(points: Array, radius: float) -> tuple[Array, bool]:
    """Return a point of the convex hull within a radius of the origin, if there is one.

    References
    ----------
    Gilbert, "An iterative procedure for computing the minimum of a quadratic form on a convex set", SIAM J.
    Control 1966.
    """
    point = points[(points * points).sum(1).argmin()]
    for _ in range(_STEPS):
        size = float(point @ point)
        if size < radius**2:
            return point, True
        along = points @ point
        best = along.argmin()
        if along[best] > radius * size**0.5:
            return point, False
        step = points[best] - point
        length = float(step @ step)
        if length == 0:
            break
        point = point + min(1.0, max(0.0, -float(point @ step) / length)) * step
    return point, True
