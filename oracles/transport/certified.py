"""Wasserstein-1 distance between large samples, with proven bounds.

Both bounds come from linear programming. The upper one is the cost of a bijection. The lower one is the value
of Kantorovich potentials, u_i + v_j <= |x_i - y_j|, which are verified on all pairs.

The assignment problem is solved on a few of its n^2 edges, and the potentials identify missing ones (column
generation). It is fast because of its starting point: clouds of n/2, n/4, ... centres of mass are solved
first, and the (nearly) tight edges between centres are replaced by all edges between their points (Schmitzer,
"A sparse multiscale algorithm for dense optimal transport", JMIV 2016), whose potentials start from those of
their centres. The bounds of coarse clouds are valid for all points, too, so that distances far above the
floor are known before the finest problem is reached.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.spatial import cKDTree

from ..estimate.samples import finite_matrix
from .clouds import (
    GROUP,
    Cloud,
    Floats,
    Ints,
    common_scale,
    lengths,
    paired_length,
)
from .reduced_costs import ReducedCosts, lipschitz_extension

_ALL_EDGES = 300**2  # number of pairs up to which all edges are used
_NEIGHBOURS = 6  # initial edges per point, in addition to those from the coarser level
_TIGHT = 4  # edges per centre that are passed to the finer level
_KEPT = 30  # edges per point that are kept from one round to the next
_ADDED = 20  # maximum number of edges per point that a round adds
_COARSE_GAP = 0.02  # gap of coarse problems that only initialise the finer one
_LENT_GAP = 0.003  # gap of those that provide bounds: below the tolerance, since it limits them
_LENT = 0.05  # relative additional cost of a coarse plan for all points up to which it provides bounds
_COARSE_ROUNDS = 8
_NEGLIGIBLE = 1e-10  # slack of an edge that is not worth adding, relative to the mean cost
_UNIT = 2.0**-53  # unit roundoff of float64
_PIVOTS = 5e4  # pivots of the network simplex per second, a low estimate, to stop it close to the time limit


@dataclass(frozen=True, eq=False)
class Bracket:
    """Bounds of the Wasserstein-1 distance between two samples of n points.

    Attributes
    ----------
    lower, upper : float
        In the units of the points. `upper` is the mean length of a bijection, in float64; `lower` is
        ``mean(u) + mean(v)`` minus an allowance for rounding, (2 m + 16) 2^-53 times the diameter of all
        points and the largest potentials, or 0 if that is negative.
    n : int
        Number of points per side.
    u, v : ndarray, shape (n,)
        Kantorovich potentials of the lower bound at the points x and y, in their order: u_i + v_j <= |x_i -
        y_j| for every pair, up to that allowance.
    """

    lower: float
    upper: float
    n: int
    u: Floats
    v: Floats

    @property
    def value(self) -> float:
        """Midpoint of the bracket."""
        return (self.lower + self.upper) / 2

    @property
    def gap(self) -> float:
        """Width of the bracket relative to its upper end; 0 if both ends are 0."""
        return (self.upper - self.lower) / self.upper if self.upper > 0 else 0.0


def certified_wasserstein(
    x: ArrayLike, y: ArrayLike, *, tolerance: float = 0.01, seconds: float = 60.0
) -> Bracket:
    """Bounds of W1, Euclidean cost, between all points of two samples, both of shape (n, m), in float64.

    It is intended for few dimensions: the bounds are valid for any number, but computing time increases. n =
    30 000 nearly flat points need 0.5 GB; far above the floor less than a second, at the floor about 10 s, in
    between up to 20 s, and twice that in three full dimensions. The result is deterministic for any number of
    threads, unless the time limit ends the search.

    The search ends when the bracket's `gap` is at most `tolerance`; 0 requests the optimum. It also ends
    after `seconds`, with the tightest bracket so far. The time is checked between steps, which take seconds
    at n = 30 000.
    """
    deadline = time.monotonic() + seconds
    if not tolerance >= 0 or not seconds >= 0:
        raise ValueError(f"tolerance and seconds must not be negative, got {tolerance} and {seconds}")
    first, second = finite_matrix("x", x), finite_matrix("y", y)
    if first.shape != second.shape:
        raise ValueError(f"x and y must have one shape, got {first.shape} and {second.shape}")
    n = len(first)
    scale = common_scale(first, second)
    if scale == 0:
        return Bracket(0.0, 0.0, n, np.zeros(n), np.zeros(n))
    (sources, of_x), (targets, of_y) = Cloud.of(first / scale), Cloud.of(second / scale)
    best = _Bounds.above(sources, targets, paired_length(sources, targets, np.arange(n)))
    for bounds in _search(sources, targets, deadline):
        best = best.tightened(bounds)
        if best.within(tolerance) or time.monotonic() > deadline:
            break
    u, v = best.u[of_x], best.v[of_y]
    return Bracket(scale * best.lower, scale * best.upper, n, scale * u, scale * v)


@dataclass(frozen=True, eq=False)
class _Bounds:
    """Bounds of the mean cost between two clouds, and the potentials of the lower one."""

    lower: float
    upper: float
    u: Floats
    v: Floats

    @classmethod
    def of(cls, a: Cloud, b: Cloud, u: Floats, v: Floats, upper: float) -> _Bounds:
        """Bounds from potentials that are feasible up to rounding, and from the cost of a plan."""
        lower = (math.fsum(a.mass * u) + math.fsum(b.mass * v)) / a.mass.sum() - _allowance(a, b, u, v)
        return cls(min(max(lower, 0.0), upper), upper, u, v)

    @classmethod
    def above(cls, a: Cloud, b: Cloud, upper: float) -> _Bounds:
        """Bounds from the cost of a plan alone, with lower bound zero."""
        return cls(0.0, upper, np.zeros(len(a)), np.zeros(len(b)))

    def tightened(self, other: _Bounds) -> _Bounds:
        dual = other if other.lower > self.lower else self
        upper = min(self.upper, other.upper)
        return _Bounds(min(dual.lower, upper), upper, dual.u, dual.v)

    def within(self, tolerance: float) -> bool:
        return self.upper - self.lower <= tolerance * self.upper


@dataclass(frozen=True, eq=False)
class _Plan:
    """Optimal plan on some edges, which moves `mass` from `i` (sorted) to `j`, with its potentials."""

    i: Ints
    j: Ints
    mass: Floats
    u: Floats
    v: Floats

    def cost(self, a: Cloud, b: Cloud) -> float:
        return float(self.mass @ lengths(a, b, self.i, self.j) / a.mass.sum())


class _Restricted:
    """Transport on some edges (i, j), each encoded as i len(b) + j, to which missing edges are added."""

    def __init__(self, a: Cloud, b: Cloud, edges: Ints, guess: Floats) -> None:
        self._a, self._b, self._larger = a, b, max(len(a), len(b))
        self._edges, self._guess, self._cost = edges, guess, math.inf
        self.tight = edges
        """Edges of the last plan, and the next most tight ones."""
        self.complete = False
        """Whether the last plan is optimal among all edges."""

    def solved(self, deadline: float) -> _Plan | None:
        """Return the optimal plan on the edges, or None if the deadline passes."""
        return _solve(self._a, self._b, self._edges, self._guess, deadline)

    def priced(self, plan: _Plan) -> _Bounds:
        """Return bounds from a plan, and add the edges that it lacks."""
        a, b, edges = self._a, self._b, self._edges
        bounds, missing = _priced(a, b, plan)
        flow = plan.i * len(b) + plan.j
        i, j = np.divmod(edges, len(b))
        slack = lengths(a, b, i, j) - plan.u[i] - plan.v[j]
        self.tight = _distinct(edges[_smallest(slack, _TIGHT * self._larger)], flow)
        self.complete = _distinct(edges, missing).size == edges.size
        # Edges are only dropped while the cost decreases, so that no set of edges recurs. Potentials are then
        # kept: once a plan is optimal, they would otherwise drift from round to round.
        falls = bounds.upper < self._cost
        if falls:
            edges = edges[_smallest(slack, _KEPT * self._larger)]
        self._guess = plan.v if falls else np.zeros(len(b))
        self._edges, self._cost = _distinct(edges, flow, missing), bounds.upper
        return bounds


def _levels(a: Cloud, b: Cloud) -> list[tuple[Cloud, Cloud]]:
    """Clouds from the finest to those that are small enough for all edges."""
    levels = [(a, b)]
    while len(a) * len(b) > _ALL_EDGES:
        a, b = a.coarser(), b.coarser()
        levels.append((a, b))
    return levels


def _search(sources: Cloud, targets: Cloud, deadline: float) -> Iterator[_Bounds]:
    """Bounds for the given clouds, from the coarsest level to these."""
    levels = _levels(sources, targets)
    a, b = levels[-1]
    edges, guess = np.arange(len(a) * len(b)), np.zeros(len(b))
    for depth in reversed(range(1, len(levels))):
        a, b = levels[depth]
        problem, gap, plan = _Restricted(a, b, edges, guess), _COARSE_GAP, None
        lends = depth == len(levels) - 1  # so that there is a lower bound whenever the time is over
        for rounds in range(_COARSE_ROUNDS):
            solved = problem.solved(deadline)
            if solved is None:
                break
            plan, bounds = solved, problem.priced(solved)
            if rounds == 0:
                upper = _spread(sources, targets, plan)
                lends = lends or upper - bounds.upper <= _LENT * upper
                gap = _LENT_GAP if lends else _COARSE_GAP
            if problem.complete or bounds.within(gap):
                break
        if plan is None:
            return
        if lends or solved is None:
            yield _lent(sources, targets, a, b, plan, GROUP**depth)
        else:
            yield _Bounds.above(sources, targets, upper)
        if solved is None:
            return
        finer, to = levels[depth - 1]
        edges = _refined(finer, to, *np.divmod(problem.tight, len(b)))
        guess = plan.v[np.arange(len(to)) // GROUP]
    problem = _Restricted(sources, targets, edges, guess)
    while not problem.complete and (solved := problem.solved(deadline)):
        yield _Bounds.above(sources, targets, solved.cost(sources, targets))
        yield problem.priced(solved)


def _solve(a: Cloud, b: Cloud, edges: Ints, guess: Floats, deadline: float) -> _Plan | None:
    """Transport on the given edges by network simplex; None if the deadline passes."""
    import ot  # takes half a second to import

    # With sparse costs, POT does not accept initial potentials. Subtracting the guess of the targets'
    # potentials, and the corresponding potentials of the sources, from the costs does not change the optimal
    # plans, and a good guess reduces the number of pivots. Edges are sorted, at least one per source.
    i, j = np.divmod(edges, len(b))
    left = lengths(a, b, i, j) - guess[j]
    u = np.minimum.reduceat(left, np.searchsorted(i, np.arange(len(a))))
    costs = sparse.coo_matrix((left - u[i], (i, j)), shape=(len(a), len(b)))
    pivots = int(_PIVOTS * min(max(deadline - time.monotonic(), 1.0), 1e4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warning about the pivot limit, which the code also returns
        flow, log = ot.emd(a.mass, b.mass, costs, numItermax=pivots, log=True, center_dual=False)
    order = np.lexsort((flow.col, flow.row))
    i, j, mass = flow.row[order].astype(np.int64), flow.col[order].astype(np.int64), np.rint(flow.data[order])
    whole = np.array_equal(np.bincount(i, mass, len(a)), a.mass)
    whole = whole and np.array_equal(np.bincount(j, mass, len(b)), b.mass)
    return _Plan(i, j, mass, u + log["u"], guess + log["v"]) if log["result_code"] == 1 and whole else None


def _refined(a: Cloud, b: Cloud, i: Ints, j: Ints) -> Ints:
    """All edges between the members of centres i and j, and those between nearest neighbours."""
    edges = []
    for p, q in np.ndindex(GROUP, GROUP):
        row, column = i * GROUP + p, j * GROUP + q
        exists = (row < len(a)) & (column < len(b))
        edges.append(row[exists] * len(b) + column[exists])
    ranks = list(range(1, min(_NEIGHBOURS, len(a), len(b)) + 1))
    nearest_b = cKDTree(b.points).query(a.points, ranks)[1]
    nearest_a = cKDTree(a.points).query(b.points, ranks)[1]
    edges.append((np.arange(len(a))[:, None] * len(b) + nearest_b).ravel())
    edges.append((nearest_a * len(b) + np.arange(len(b))[:, None]).ravel())
    return _distinct(*edges)


def _lent(sources: Cloud, targets: Cloud, a: Cloud, b: Cloud, plan: _Plan, group: int) -> _Bounds:
    """Bounds for the finest clouds from a plan between coarse ones, each centre of `group` points.

    f(z) = min_j |z - b_j| - v_j is 1-Lipschitz for any v, so that f and -f are feasible potentials
    (Kantorovich and Rubinstein).
    """
    to = plan.j[np.searchsorted(plan.i, np.arange(len(a)))]
    u = lipschitz_extension(sources.points, b.points, plan.v, to[np.arange(len(sources)) // group])
    v = -lipschitz_extension(targets.points, b.points, plan.v, np.arange(len(targets)) // group)
    return _Bounds.of(sources, targets, u, v, _spread(sources, targets, plan))


def _spread(sources: Cloud, targets: Cloud, plan: _Plan) -> float:
    """Mean length of a bijection between the finest clouds that follows the plan of the centres, in order."""
    units = plan.mass.astype(np.int64)
    by_target = np.argsort(plan.j, kind="stable")
    begin = np.empty_like(units)
    begin[by_target] = np.cumsum(units[by_target]) - units[by_target]
    partner = np.repeat(begin - (np.cumsum(units) - units), units) + np.arange(units.sum())
    return paired_length(sources, targets, partner)


def _priced(a: Cloud, b: Cloud, plan: _Plan) -> tuple[_Bounds, Ints]:
    """Bounds of a plan, with potentials that are feasible on all pairs, and the edges it lacks.

    The slack of a pair is |x_i - y_j| - u_i - v_j. Potentials are feasible if no slack is negative, and an
    edge of negative slack would lower the cost of the plan.
    """
    upper = plan.cost(a, b)
    i, j, slack = _violated(a, b, plan)
    # Lower the potentials of one side until no slack is negative: of the side where the bound falls less.
    lower_u, lower_v = np.zeros(len(a)), np.zeros(len(b))
    np.minimum.at(lower_u, i, slack)
    np.minimum.at(lower_v, j, slack)
    u, v = plan.u, plan.v
    if a.mass @ lower_u >= b.mass @ lower_v:
        u = u + lower_u
    else:
        v = v + lower_v
    relevant = slack < -_NEGLIGIBLE * upper
    i, j, slack = i[relevant], j[relevant], slack[relevant]
    added = _most_violated(i, slack) | _most_violated(j, slack)
    return _Bounds.of(a, b, u, v, upper), _distinct(i[added] * len(b) + j[added])


def _violated(a: Cloud, b: Cloud, plan: _Plan) -> tuple[Ints, Ints, Floats]:
    """Pairs (i, j) with a negative slack that is the smallest in a row or a column of a tile of pairs."""
    reduced_costs = ReducedCosts(a.points, plan.u, b.points, plan.v)

    def of_rows(rows: Ints) -> tuple[Ints, Ints, Floats]:
        """The pairs of these rows, tile by tile."""
        i_parts, j_parts, slack_parts = [rows[:0]], [rows[:0]], [plan.u[:0]]
        for columns, slack_of_tile in reduced_costs.slack(rows):
            i_parts += [rows, rows[slack_of_tile.argmin(0)]]
            j_parts += [columns[slack_of_tile.argmin(1)], columns]
            slack_parts += [slack_of_tile.min(1), slack_of_tile.min(0)]
        i, j, slack = np.concatenate(i_parts), np.concatenate(j_parts), np.concatenate(slack_parts)
        negative = slack < 0
        return i[negative], j[negative], slack[negative]

    parts = reduced_costs.by_rows(of_rows)
    i = np.concatenate([part[0] for part in parts])
    j = np.concatenate([part[1] for part in parts])
    slack = np.concatenate([part[2] for part in parts])
    return i, j, slack


def _most_violated(point: Ints, slack: Floats) -> NDArray[np.bool_]:
    """Mask of the `_ADDED` edges with the smallest slack per point."""
    order = np.lexsort((slack, point))
    first = np.searchsorted(point[order], point[order])
    chosen = np.empty(len(point), bool)
    chosen[order] = np.arange(len(point)) - first < _ADDED
    return chosen


def _distinct(*edges: Ints) -> Ints:
    """Sorted union, by a sort, which is several times as fast here as the hash of `numpy.unique`."""
    union = np.concatenate(edges)
    union.sort()
    return union[np.diff(union, prepend=-1) > 0]


def _smallest(values: Floats, count: int) -> Ints:
    return np.argpartition(values, count)[:count] if count < len(values) else np.arange(len(values))


def _allowance(a: Cloud, b: Cloud, u: Floats, v: Floats) -> float:
    """Upper bound of the rounding error of u_i + v_j - |x_i - y_j|, and of the sums of u and v."""
    points = np.concatenate([a.points, b.points])
    largest = np.linalg.norm(np.ptp(points, axis=0)) + np.abs(u).max() + np.abs(v).max()
    return float((2 * points.shape[1] + 16) * _UNIT * largest)
