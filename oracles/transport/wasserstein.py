"""Wasserstein-1 distances between samples, with floors and standard errors.

All distances are computed with Kantorovich potentials u and v: the distance is mean(u) + mean(v), and its
standard error is sqrt(Var(u) / n + Var(v) / n), by the central limit theorem for the empirical cost (del
Barrio and Loubes, Ann. Probab. 2019). That theorem is about the mean of the empirical distance, which in
three dimensions is well above the true distance; the floor shows by how much. For an exact or almost exact
rule this error is too large (1.4 to 1.8 times the spread of repeated samples, by simulation). A law without a
mean (Cauchy) has no finite W1, which samples do not show: `require_mean` rejects the law itself.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from ..estimate.estimate import Estimate, Floor
from ..estimate.redraws import upper95_of_few
from ..estimate.samples import Samples, finite_matrix
from .clouds import common_scale

Points = NDArray[np.float64]
Potentials = Callable[[Points, Points], tuple[Points, Points]]

_MOST_PIVOTS = 10**7  # pivots of the network simplex; n = 8000 needs about 10^6


def wasserstein(
    a: Samples, b: Samples, n: int = 2000, *, pairs: int = 8, floor: Floor | None = None, seed: int = 0
) -> Estimate:
    """Exact W1, Euclidean cost, between n points of either sample, by network simplex (POT).

    n = 2000 takes about a second and 0.5 GB, and both grow as n^2 or faster. The value is in units of the
    outputs. A failure of the solver raises a RuntimeError.

    Parameters
    ----------
    a, b : Tensor or ndarray, shapes (N, m) and (M, m)
        Samples of the oracle and of the rule, from which n points each are chosen at random.
    n : int
        Number of points per side, or all if a sample has fewer; the result contains the number used.
    pairs : int
        Pairs of n oracle points for the floor; at least 2.
    floor : Floor, optional
        From :func:`wasserstein_floor` with the same n, to compare several rules with one oracle.
    seed : int
        Selects the points, which are different for the value and for each pair of the floor.
    """
    return estimate_of(_exact, a, b, n, pairs, floor, seed)


def wasserstein_floor(a: Samples, n: int = 2000, pairs: int = 8, *, seed: int = 0) -> Floor:
    """Floor of W1: its value between `pairs` independent pairs of n oracle points, shape (N, m).

    The pairs, at least 2, are disjoint and therefore independent if N >= 2 n pairs. Otherwise each pair is a
    new random choice of 2 n points. For N < 2 n, the floor is computed for N / 2 points per side and
    extrapolated to n with the rate n^(-1 / max(m, 2)).

    The 95 % point is mean + c sd, where c is that of Gumbel's law for so many pairs, 2.54 for eight.
    Distances at the floor have a skewness between 0.4 (three similar outputs) and 1.4 (one output, or one
    that is much wider than the others); Gumbel's law has 1.1. In simulations, Student's bound, 2.01, covered
    91 to 94 % and this one 94 to 97 %. This holds for disjoint pairs; others are too similar, and the bound
    is low.

    References
    ----------
    Fournier and Guillin, "On the rate of convergence in Wasserstein distance of the empirical measure", PTRF
    2015, for the rate.
    """
    return floor_of(_exact, a, n, pairs, seed)


def wasserstein_1d(
    a: Samples, b: Samples, n: int = 50_000, *, pairs: int = 8, floor: Floor | None = None, seed: int = 0
) -> Estimate:
    """W1 between n points of two scalar samples, shapes (N,) or (N, 1), in units of the output.

    Other arguments are those of :func:`wasserstein`.
    """
    for samples in (a, b):
        if np.ndim(samples) not in (1, 2) or (np.ndim(samples) == 2 and np.shape(samples)[1] != 1):
            raise ValueError(f"wasserstein_1d takes one output, got shape {np.shape(samples)}")
    return estimate_of(scale_free(_line), _column(a), _column(b), n, pairs, floor, seed)


def sliced_wasserstein(
    a: Samples,
    b: Samples,
    n: int = 10_000,
    *,
    directions: int = 64,
    pairs: int = 8,
    floor: Floor | None = None,
    seed: int = 0,
) -> Estimate:
    """Mean W1 over one-dimensional projections, in units of the outputs.

    The `directions` are random, but depend only on `seed` and the number of outputs, so that all rules
    are compared along the same ones. Floor and standard error are conditional on these directions. Other
    arguments are those of :func:`wasserstein`.

    References
    ----------
    Bonneel et al., "Sliced and Radon Wasserstein barycenters of measures", JMIV 2015.
    """
    if directions < 1:
        raise ValueError(f"directions must be positive, got {directions}")
    axes = np.random.default_rng(seed).standard_normal((directions, np.shape(a)[-1]))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)

    @scale_free
    def potentials(x: Points, y: Points) -> tuple[Points, Points]:
        centre = np.median(x, axis=0)  # otherwise, projections have the rounding error of a common offset
        x, y = x - centre, y - centre
        u, v = np.zeros(len(x)), np.zeros(len(y))
        for axis in axes:
            u_axis, v_axis = _line(x @ axis[:, None], y @ axis[:, None])
            u += u_axis / directions
            v += v_axis / directions
        return u, v

    return estimate_of(potentials, a, b, n, pairs, floor, seed)


def scale_free(potentials: Potentials) -> Potentials:
    """Scale points by a power of two close to their extent, so that no square over- or underflows."""

    def scaled(x: Points, y: Points) -> tuple[Points, Points]:
        scale = common_scale(x, y) or 1.0
        u, v = potentials(x / scale, y / scale)
        return scale * u, scale * v

    return scaled


_GAP = 1e-3  # relative difference of the cost of a plan and its dual value, which are equal but for rounding
_ROUNDING = 2e-15  # of both values, for points of extent 1


@scale_free
def _exact(x: Points, y: Points) -> tuple[Points, Points]:
    import ot  # takes half a second to import

    # from differences: an expanded square would have the rounding error of a common offset
    cost = cdist(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the log contains the same
        _, log = ot.emd2([], [], cost, numItermax=_MOST_PIVOTS, log=True)
    if log["warning"] is not None:
        raise RuntimeError(f"optimal transport failed: {log['warning']}")
    gap = abs(log["u"].mean() + log["v"].mean() - log["cost"]) - _ROUNDING
    # compared with most distances too: a value far below them may have no digit
    if gap > _GAP * log["cost"] and gap > _GAP * np.median(cost):
        raise RuntimeError(
            "optimal transport failed: a point is so far from the others that float64 does not resolve the "
            "distances of these; transform the outputs, or compare quantiles"
        )
    return log["u"], log["v"]


def _line(x: Points, y: Points) -> tuple[Points, Points]:
    """Potentials on the line: the slope is 1 where y's mass lies below x's, -1 where above."""
    pooled = np.concatenate([x[:, 0], y[:, 0]])
    order = np.argsort(pooled, kind="stable")
    step = np.where(order < len(x), -1 / len(x), 1 / len(y))
    ordered = pooled[order]
    # the slope between neighbours is the sign of F_y - F_x there, a sum of steps that ends at zero
    slope = np.sign(np.cumsum(step)[:-1])
    potential = np.empty(len(pooled))
    potential[order] = np.concatenate([[0.0], np.cumsum(slope * np.diff(ordered))])
    potential -= potential.mean()  # the constant is arbitrary; this one keeps the sums small
    return potential[: len(x)], -potential[len(x) :]


def estimate_of(
    potentials: Potentials, a: Samples, b: Samples, n: int, pairs: int, floor: Floor | None, seed: int
) -> Estimate:
    x, y = finite_matrix("a", a), finite_matrix("b", b)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"the samples have {x.shape[1]} and {y.shape[1]} outputs")
    _check_numbers(n, pairs)
    n = min(n, len(x), len(y))
    if floor is None:
        floor = floor_of(potentials, x, n, pairs, seed)
    elif not isinstance(floor, Floor) or floor.n not in (None, n):
        raise ValueError(f"the floor must be a Floor for {n} points a side, got {floor}")
    u, v = potentials(_choose(x, n, seed, 0), _choose(y, n, seed, 1))
    stderr = math.sqrt(u.var(ddof=1) / n + v.var(ddof=1) / n)
    return Estimate(max(0.0, float(u.mean() + v.mean())), floor.mean, floor.upper95, stderr, n)


def floor_of(potentials: Potentials, a: Samples, n: int, pairs: int, seed: int) -> Floor:
    x = finite_matrix("a", a)
    _check_numbers(n, pairs)
    if len(x) < 4:
        raise ValueError(f"a floor needs at least 4 samples, got {len(x)}")
    n = min(n, len(x))
    side = min(n, len(x) // 2)
    rate = (side / n) ** (1 / max(x.shape[1], 2))
    disjoint = len(x) >= 2 * pairs * side
    points = _choose(x, 2 * pairs * side, seed, 2) if disjoint else None
    distances = []
    for pair in range(pairs):
        if points is None:
            both = _choose(x, 2 * side, seed, 2 + pair)
        else:
            both = points[2 * pair * side : 2 * (pair + 1) * side]
        u, v = potentials(both[:side], both[side:])
        distances.append(rate * (u.mean() + v.mean()))
    return Floor(float(np.mean(distances)), upper95_of_few(distances), n)


def _choose(points: Points, n: int, seed: int, purpose: int) -> Points:
    generator = np.random.default_rng([seed, purpose])
    return points[generator.choice(len(points), n, replace=False)]


def _check_numbers(n: int, pairs: int) -> None:
    if n < 2:
        raise ValueError(f"n must be at least 2, got {n}")
    if pairs < 2:
        raise ValueError(f"pairs must be at least 2, got {pairs}")


def _column(samples: Samples) -> Samples:
    return torch.as_tensor(samples).reshape(-1, 1)
