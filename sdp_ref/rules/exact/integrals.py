"""Masses and moments of polytopes under the standard normal law, by integrals over their facets.

With phi the density and r the distance from the origin, z h(r) has the divergence phi if (r^n h)' is r^(n -
1) phi. The mass is therefore a sum over facets of their distance times an integral of h, and the moments are
sums of integrals of phi and z phi, in one dimension less than the polytope has.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sdp_ref.errors import NoFormulaError
from sdp_ref.rules.exact.cells import Cell, nearest

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]

_LONGEST = 8.0
"""Largest edge of a simplex near the origin such that the density cannot hide between the points."""

_AWAY = 1.0
"""Distance from the origin beyond which a polytope uses the h that vanishes at infinity."""

_SURE = 0.1
"""Upper bound of the error of the better rule relative to the difference of the two; 0.01 is typical."""

_NEAR = 0.1
"""Half of the squared distance up to which 1 - Q(n / 2, x) loses digits."""

_MOST = 10_000_000
"""Maximum number of simplices, which takes about a minute."""

_CHUNK = 2**17  # cubature points per chunk


def moments(cells: Sequence[Cell], tolerance: float) -> Array:
    """Integrals of (z, 1) (z, 1)^T times the density over polytopes."""
    if not cells:
        return np.empty((0, 0, 0))
    surfaces = [cell.surface() for cell in cells]
    simplices = np.concatenate([c.vertices[s] for c, (s, _) in zip(cells, surfaces, strict=True)])
    planes = np.concatenate([c.planes[f] for c, (_, f) in zip(cells, surfaces, strict=True)])
    owner = np.repeat(np.arange(len(cells)), [len(s) for s, _ in surfaces])
    outer = np.array([not nearest(cell.vertices, _AWAY)[1] for cell in cells])
    return _integrated(simplices, planes, owner, outer, tolerance)


def _integrated(simplices: Array, planes: Array, owner: Indices, outer: Flags, tolerance: float) -> Array:
    """Sums over simplices of the facets; a simplex on which rules of different degrees disagree is halved."""
    count, n = len(outer), simplices.shape[2]
    total, order, seen = np.zeros((count, n + 1, n + 1)), 2, 0
    while len(simplices):
        seen += len(simplices)
        if seen > _MOST:
            raise NoFormulaError(f"regions that take more than {_MOST:,} simplices to integrate over")
        edges, areas = _edges(simplices), _areas(simplices)
        found, error = _cubature(simplices, areas, planes, outer[owner], order)
        mass = total[:, n, n] + np.bincount(owner, found[:, n, n], count)
        share = (mass + 1 / count) / 2 / np.maximum(np.bincount(owner, minlength=count), 1)
        allowed = tolerance * share[owner]
        done = (error <= allowed) & ~_coarse(simplices, edges, areas, outer[owner], allowed)
        np.add.at(total, owner[done], found[done])
        simplices, planes, owner = simplices[~done], planes[~done], owner[~done]
        if order > 2:  # the first rule is for small simplices
            simplices = _halved(simplices, edges[~done])
            planes, owner = np.repeat(planes, 2, axis=0), np.repeat(owner, 2)
        order = 4
    total[:, :n, :n] += total[:, n, n, None, None] * np.eye(n)
    return (total + total.transpose(0, 2, 1)) / 2


def _coarse(simplices: Array, edges: Array, areas: Array, outer: Flags, allowed: Array) -> Flags:
    """Whether simplices are so large that the density may be concentrated between the points of a rule."""
    centre = simplices.mean(1)
    reach = np.sqrt(np.square(simplices - centre[:, None]).sum(2).max(1))
    distance = np.sqrt(np.square(centre).sum(1)) - reach
    longest = np.sqrt(edges.max(1, initial=0))
    coarse: Flags = longest > np.maximum(_LONGEST, distance)
    most = areas * np.exp(-np.square(np.maximum(distance, 0)) / 2)
    coarse &= ~(outer & (most < allowed / 10))
    return coarse


def _edges(simplices: Array) -> Array:
    i, j = np.triu_indices(simplices.shape[1], 1)
    lengths: Array = np.square(simplices[:, i] - simplices[:, j]).sum(2)
    return lengths


def _halved(simplices: Array, edges: Array) -> Array:
    """Bisect every simplex at the middle of its longest edge."""
    i, j = np.triu_indices(simplices.shape[1], 1)
    longest = edges.argmax(1)
    rows, i, j = np.arange(len(simplices)), i[longest], j[longest]
    middle = (simplices[rows, i] + simplices[rows, j]) / 2
    both = np.repeat(simplices, 2, axis=0)
    both[2 * rows, i] = middle
    both[2 * rows + 1, j] = middle
    return both


def _cubature(simplices: Array, areas: Array, planes: Array, outer: Flags, order: int) -> tuple[Array, Array]:
    """Contribution of each simplex of a facet to (z, 1) (z, 1)^T - (1, 0), and its error estimate."""
    count, n = simplices.shape[0], simplices.shape[2]
    points, weights = grundmann_moeller(n - 1, order)
    products = np.einsum("pi,pj->ijp", points, points).reshape(n * n, -1)
    found, error = np.empty((count, n + 1, n + 1)), np.empty(count)
    step = max(1, _CHUNK // len(points))
    for start in range(0, count, step):
        rows = slice(start, start + step)
        part, normal, offset = simplices[rows], planes[rows, :n], planes[rows, n]
        gram = part @ part.transpose(0, 2, 1)
        square = np.maximum(gram.reshape(len(part), -1) @ products, 0)
        area = areas[rows]
        # Means of barycentric coordinates times phi and of h, by the rules of higher and lower degree.
        phi = np.exp(square / -2) * (area * (2 * math.pi) ** (-n / 2))[:, None]
        h = _potential(square, n, outer[rows]) * area[:, None]
        own, other = ((phi * w) @ points for w in weights.T)
        mass, rough = (-offset * (h @ w) for w in weights.T)
        first = np.einsum("si,sij->sj", own, part)
        block = np.zeros((len(part), n + 1, n + 1))
        block[:, :n, :n] = -normal[:, :, None] * first[:, None, :]
        block[:, :n, n] = block[:, n, :n] = -normal * own.sum(1)[:, None]
        block[:, n, n] = mass
        found[rows] = block
        reach = np.sqrt(gram.diagonal(axis1=1, axis2=2).max(1))
        error[rows] = _SURE * (np.abs(mass - rough) + (1 + reach) * np.abs((own - other).sum(1)))
    return found, error


def _areas(simplices: Array) -> Array:
    n = simplices.shape[2]
    sides = simplices[:, 1:] - simplices[:, :1]
    gram = sides @ sides.transpose(0, 2, 1)
    areas: Array = np.sqrt(np.maximum(np.linalg.det(gram), 0)) / math.factorial(n - 1)
    return areas


def _potential(square: Array, n: int, outer: Flags) -> Array:
    """Values of h at squared distances: finite at the origin, or vanishing at infinity if `outer`."""
    half = square / 2
    beyond = special.erfc(np.sqrt(half)) if n % 2 else np.exp(-half)  # Q(1/2, x), Q(1, x)
    for place in np.arange(2 - n % 2, n, 2) / 2:
        beyond += half**place * np.exp(-half) / math.gamma(place + 1)
    share = np.where(outer[:, None], -beyond, 1 - beyond)
    near = (half < _NEAR) & ~outer[:, None]
    share[near] = special.gammainc(n / 2, half[near])
    sphere = 2 * math.pi ** (n / 2) / math.gamma(n / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        h = share / (sphere * square ** (n / 2))
    finite: Array = np.where((square < 1e-12) & ~outer[:, None], (2 * math.pi) ** (-n / 2) / n, h)
    return finite


@functools.cache
def grundmann_moeller(n: int, order: int) -> tuple[Array, Array]:
    """Points and weights for the mean over a simplex of a rule of degree 2 order + 1 and of the previous one.

    References
    ----------
    Grundmann and Moeller, "Invariant integration formulas for the n-simplex by combinatorial methods", SIAM
    J. Numer. Anal. 1978.
    """
    points, weights = [], []
    for level in range(order + 1):
        own = np.array(list(_compositions(level, n + 1)), dtype=float)
        points.append((2 * own + 1) / (n + 1 + 2 * level))
        pair = [_weight(n, order, level), _weight(n, order - 1, level) if level < order else 0.0]
        weights.append(np.tile(pair, (len(own), 1)))
    return np.concatenate(points), np.concatenate(weights)


def _weight(n: int, order: int, level: int) -> float:
    """Weight of a point of a level, for the mean; order - level is i of the paper."""
    degree, i = 2 * order + 1, order - level
    power = (degree + n - 2 * i) ** degree
    below = math.factorial(i) * math.factorial(degree + n - i)
    return float((-1) ** i * power * math.factorial(n) / (4**order * below))


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as a sum of `parts` integers >= 0."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)
