"""Polytopes near the origin, represented by their vertices, and cuts of them by hyperplanes.

All polytopes are simple: every vertex lies on n facets, and two vertices are joined by an edge if they share
n - 1 of them. A hyperplane through a vertex is treated as if it passed next to it, so that cuts of simple
polytopes are always simple.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.trace import Step, last_uses

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]

ON = 1e-9
"""Distance below which a point counts as on a hyperplane, in standard deviations of the input."""

_STEPS = 64
"""Maximum number of iterations of the search for the point closest to the origin; three usually suffice."""


@dataclass(frozen=True, eq=False)
class Cell:
    """A simple polytope: each of its `vertices` (k, n) lies on n facets.

    `facets` (k, facets) is the incidence matrix. `planes` (facets, n + 1) are outer unit normals a and
    offsets b of the facets: a z + b <= 0 inside. `tree_position` is the position in the tree of cuts, the cut
    above and the side (0 or 1), and None for its root.
    """

    vertices: Array
    facets: Flags
    planes: Array
    tree_position: tuple[int, int] | None = None

    @classmethod
    def box(cls, n: int, half: float) -> Cell:
        """The cube from -`half` to `half` in each of n dimensions."""
        high = np.array(list(itertools.product((False, True), repeat=n)), dtype=bool).reshape(2**n, n)
        normals = np.concatenate([np.eye(n), -np.eye(n)])
        planes = np.concatenate([normals, np.full((2 * n, 1), -half)], 1)
        return cls(np.where(high, half, -half), np.concatenate([high, ~high], 1), planes)

    def cut(self, plane: Array) -> tuple[Cell, Cell, Array] | None:
        """Cut by a hyperplane (n + 1,); return both sides and the new vertices (k, n).

        None if the hyperplane does not cut the polytope. A new vertex lies on every edge that crosses the
        hyperplane, and on the facets of that edge.
        """
        n = self.vertices.shape[1]
        distance = self.vertices @ plane[:n] + plane[n]
        is_high = distance > -ON  # vertices on the hyperplane count as high and may coincide with new ones
        if is_high.all() or not (distance > ON).any():
            return None
        high, low = np.flatnonzero(is_high), np.flatnonzero(~is_high)
        # two vertices are joined by an edge if they share n - 1 facets; the counts are floats
        incidence = self.facets.astype(np.float32)
        high_end, low_end = np.nonzero(incidence[high] @ incidence[low].T > n - 1.5)
        i, j = high[high_end], low[low_end]
        fraction = np.clip(distance[i] / (distance[i] - distance[j]), 0, 1)[:, None]
        new_vertices = self.vertices[i] + fraction * (self.vertices[j] - self.vertices[i])
        facets_of_edges = self.facets[i] & self.facets[j]

        def side(kept: Indices, outer_plane: Array) -> Cell:
            """Return the half with the vertices `kept` and the new ones.

            Facets that have lost all vertices are dropped. The last facet is the cut, with the hyperplane
            `outer_plane` (n + 1,), which points out of this half.
            """
            facets = np.concatenate([self.facets[kept], facets_of_edges])
            used = facets.any(0)
            on_cut = np.arange(len(facets)) >= len(kept)
            return Cell(
                np.concatenate([self.vertices[kept], new_vertices]),
                np.concatenate([facets[:, used], on_cut[:, None]], 1),
                np.concatenate([self.planes[used], outer_plane[None]]),
            )

        return side(low, plane), side(high, -plane), new_vertices

    def surface(self) -> tuple[Indices, Indices]:
        """Triangulate the facets by pulling vertices; return vertices (simplices, n) and facets (simplices,).

        Every simplex is a chain of faces F1 > F2 > ..., represented by their first vertices, in which no face
        contains the first vertex of its predecessor. A face at a vertex is a set of the n facets of the
        vertex, which is written as a bit set.

        References
        ----------
        Cohen and Hickey, "Two algorithms for determining volumes of convex polyhedra", J. ACM 1979.
        """
        count, n = self.vertices.shape
        facets_of_vertex = np.nonzero(self.facets)[1].reshape(count, n)
        # (vertex, facet of it, vertex): whether the last lies on that facet
        lies_on = self.facets.T[facets_of_vertex]
        # (vertex, set of its facets, vertex): whether the last lies on all of them
        lies_on_all = np.ones((count, 2**n, count), dtype=bool)
        for subset in range(1, 2**n):
            last = subset.bit_length() - 1
            np.logical_and(lies_on_all[:, subset - 2**last], lies_on[:, last], out=lies_on_all[:, subset])
        orders, subsets = _flags(n)
        chains = lies_on_all.argmax(2)[:, subsets]  # the first vertex of each face of a chain
        facet = facets_of_vertex[:, orders[:, 0]]
        is_simplex = (np.diff(chains, axis=2) != 0).all(2)
        return chains[is_simplex], facet[is_simplex]


@functools.cache
def _flags(n: int) -> tuple[Indices, Indices]:
    """Orderings of n facets, and the bit sets that grow by one facet of an ordering at a time."""
    orders = np.array(list(itertools.permutations(range(n))), dtype=np.intp)
    return orders, (2**orders).cumsum(1)


def nearest(points: Array, radius: float) -> tuple[Array, bool]:
    """Return a point (n,) of the hull of points (k, n), and whether the hull may meet a ball at the origin.

    False means that no point of the hull is. The point is the closest to the origin only approximately.

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


MOST_INPUTS = 5
"""Largest supported number of variates: for six, the facets have too many simplices."""

_BEYOND = 6.0
"""Minimum half-width of the box around all cells, which contains all but 2e-9 of the mass per variate."""


@dataclass(frozen=True)
class Kink:
    """max(x, 0) + slope min(x, 0), elementwise."""

    slope: float


Operation = Callable[..., Tensor] | Kink
Bend = Callable[[Tensor], tuple[Tensor, Tensor]]


def walk(steps: Sequence[Step], operations: Sequence[Operation], start: Tensor, bend: Bend) -> Tensor:
    """Compute the output of a net as an affine function on each of a growing number of cells.

    Values are (cells, n + 1, *event), the constant last; `start` has one cell. At a kink, `bend` cuts the
    cells where a unit is zero, and returns for every new cell the index of the one that it was part of, and
    whether each unit is positive on it, (cells, *event).
    """
    values = {0: start}
    numbered = enumerate(zip(steps, operations, last_uses(steps), strict=True), start=1)
    for number, (step, operation, unneeded) in numbered:
        inputs = [values[i] for i in step.inputs]
        if isinstance(operation, Kink):
            parents, above = bend(inputs[0])
            values = {key: value[parents] for key, value in values.items()}
            slopes = torch.where(above, start.new_ones(()), operation.slope).unsqueeze(1)
            values[number] = values[step.inputs[0]] * slopes
        else:
            values[number] = operation(*inputs)
        for i in unneeded:
            del values[i]
    return values[len(steps)]


def as_rows(value: Tensor) -> Array:
    """Affine functions of cells, one row per unit."""
    if value.ndim < 3:
        raise NoFormulaError("a value of one number a row (keep a dimension: x[:, :1])")
    rows: Array = value.flatten(2).mT.cpu().numpy()
    if not np.isfinite(rows).all():
        raise ValueError("an op of the net gives values that are not finite: has it weights that are NaN?")
    return rows


def _normalised(planes: Array) -> Array:
    """Hyperplanes (..., n + 1) with normals of length one, or 0."""
    with np.errstate(over="ignore"):  # an offset may overflow where the hyperplane is far away
        # Divide by the largest entry first: squares of large and of small entries over- or underflow.
        size = np.abs(planes[..., :-1]).max(-1, keepdims=True, initial=0)
        planes = planes / np.where(size > 0, size, 1)
        size = np.linalg.norm(planes[..., :-1], axis=-1, keepdims=True)
        normalised: Array = planes / np.where(size > 0, size, 1)
    return normalised


class Regions:
    """Cells on which a net of n variates is affine, within a radius of the origin, and their cuts.

    A hyperplane cuts a cell if it meets the cell within the radius. Outside the radius, cells continue up to
    the box around all of them, and so do the affine functions of the net on them. `most` limits the number of
    cells.
    """

    def __init__(self, n: int, radius: float, most: int) -> None:
        self.radius, self.most = radius, most
        # Until the first cut, only the origin is known to be inside, so nets without kinks within the radius
        # may have any number of inputs.
        self.cells = [Cell(np.zeros((1, n)), np.zeros((1, 0), dtype=bool), np.zeros((0, n + 1)))]
        self.planes: list[Array] = []
        self.children: list[list[int]] = []

    def bend(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Cut all cells where units are zero; see :func:`walk`."""
        planes = _normalised(as_rows(value))
        cells: list[Cell] = []
        parents: list[int] = []
        above: list[Flags] = []
        for number, (cell, planes_of_cell) in enumerate(zip(self.cells, planes, strict=True)):
            waiting = len(self.cells) - number - 1
            parts = self._parts(cell, planes_of_cell, self.most - len(cells) - waiting)
            cells += parts
            parents += [number] * len(parts)
            above += [self._above(part, planes_of_cell) for part in parts]
        self.cells = cells
        sides = torch.from_numpy(np.array(above)).unflatten(1, value.shape[2:])
        return torch.tensor(parents, device=value.device), sides.to(value.device)

    def tree(self) -> tuple[Array, Indices]:
        """Cuts that made the cells."""
        for number, cell in enumerate(self.cells):
            self._hang(cell, ~number)
        planes = np.array(self.planes).reshape(-1, self.cells[0].planes.shape[1])
        return planes, np.array(self.children, dtype=np.intp).reshape(-1, 2)

    def _parts(self, cell: Cell, planes: Array, most: int) -> list[Cell]:
        """Pieces of a cell between the hyperplanes that meet it.

        `planes` (units, n + 1) are those where units of the next layer are zero. The closest to the origin
        cut first. More than `most` pieces raise an error.
        """
        varying = planes[:, :-1].any(1)  # a constant unit has no kink
        close = np.flatnonzero(varying & (np.abs(planes[:, -1]) < self.radius))
        if len(close) and not len(cell.planes):
            if (n := planes.shape[1] - 1) > MOST_INPUTS:
                raise NoFormulaError(f"kinks within the noise of {n} inputs, more than {MOST_INPUTS}")
            cell = Cell.box(n, max(_BEYOND, self.radius))
        by_distance = close[np.abs(planes[close, -1]).argsort(kind="stable")]
        pending, done = [(cell, by_distance)], []  # cells with the units that may cut them
        while pending:
            cell, units = pending.pop()
            sides, later_units = self._cut_by_first(cell, planes, units)
            if sides:
                pending += [(side, later_units) for side in sides]
            else:
                done.append(cell)
            if len(pending) + len(done) > most:
                hint = "take less noise, a lower mass or more regions"
                raise NoFormulaError(f"more than {self.most} linear regions within the mass; {hint}")
        return done

    def _cut_by_first(self, cell: Cell, planes: Array, units: Indices) -> tuple[list[Cell], Indices]:
        """Cut a cell by the first hyperplane that meets it within the radius, and store the cut in the tree.

        Return both sides and the units after it, or no sides if no hyperplane cuts the cell.
        """
        if len(units):
            distance = cell.vertices @ planes[units, :-1].T + planes[units, -1]
            units = units[(distance.min(0) < -ON) & (distance.max(0) > ON)]
        for index, unit in enumerate(units):
            parts = cell.cut(planes[unit])
            if parts is None:
                continue
            low, high, new_vertices = parts
            if not nearest(new_vertices, self.radius)[1]:
                continue
            cut = len(self.planes)
            self._hang(cell, cut)
            self.planes.append(planes[unit])
            self.children.append([0, 0])
            sides = [replace(low, tree_position=(cut, 0)), replace(high, tree_position=(cut, 1))]
            return sides, units[index + 1 :]
        return [], units[:0]

    def _above(self, cell: Cell, planes: Array) -> Flags:
        """Side of each hyperplane on which a cell is; if it is on both, that of its part near the origin."""
        distance = cell.vertices @ planes[:, :-1].T + planes[:, -1]
        low, high = distance.min(0), distance.max(0)
        point, _ = nearest(cell.vertices, self.radius)
        at_point = planes[:, :-1] @ point + planes[:, -1]
        return np.where((low < -ON) & (high > ON), at_point >= 0, high >= -low)

    def _hang(self, cell: Cell, number: int) -> None:
        """Store a region or a cut at the cell's position in the tree of cuts."""
        if cell.tree_position:
            cut, side = cell.tree_position
            self.children[cut][side] = number
