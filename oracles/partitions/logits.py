"""Distances between laws of many logits, where a joint histogram would need too many samples.

None of them is sufficient alone: the decision is insensitive to scale, an energy distance almost insensitive
to skewness, and pairs of outputs do not show joint effects of three. All except the partitions of the margin
and the decision ignore a common shift of all logits, which does not affect a softmax either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from ..estimate.estimate import Estimate, Floor
from ..estimate.redraws import check_redraws, upper95
from ..estimate.samples import Samples, matrix_of
from .counting import (
    Cells,
    Columns,
    Edges,
    check_count,
    namespace,
    pilot_values,
    tally,
)
from .floors import total_variation_floor
from .partition import ScoreDifferences, total_variation_of_counts

Array = NDArray[np.float64]
Matrix = NDArray[np.floating]

_NULL = 1e-10  # relative to the largest variance: less is rounding
_ROWS = 2**16  # rows whose cells are in memory at once
_NORMALS = 2000  # number of samples for a standard error, whose relative error is then 1.6 %


def without_shift(samples: Samples) -> Array:
    """Samples minus the mean of their outputs, shape (samples, m), float64."""
    values = matrix_of(samples).astype(np.float64)
    centred: Array = values - values.mean(1, keepdims=True)
    return centred


@dataclass(frozen=True, eq=False)
class Margin:
    """The largest of m outputs minus the second largest, in bins of equal mass, the last one unbounded."""

    edges: Array
    m: int

    @classmethod
    def from_samples(cls, pilot: Samples, bins: int = 64) -> Margin:
        values = pilot_values(pilot)
        bins = check_count("bins", bins, 2)
        if values.shape[1] < 2:
            raise ValueError("a margin needs at least two outputs, the pilot has one")
        return cls(np.quantile(_margin(values.T), np.arange(1, bins) / bins), values.shape[1])

    @property
    def cells(self) -> int:
        return len(self.edges) + 1

    def counts(self, samples: Samples) -> NDArray[np.int64]:
        """Number of samples in every bin, shape (cells,)."""
        edges = Edges(self.edges)

        def locate(columns: Columns) -> Cells:
            return edges.below(_margin(columns))

        return tally(samples, self.m, self.cells, locate)


def _margin(columns: Columns) -> Columns:
    xp = namespace(columns)
    highest, second = xp.maximum(columns[0], columns[1]), xp.minimum(columns[0], columns[1])
    for column in columns[2:]:
        second = xp.maximum(second, xp.minimum(highest, column))
        highest = xp.maximum(highest, column)
    return highest - second


@dataclass(frozen=True)
class PairedDifferences:
    """Total variation of the score differences of all pairs of outputs: maximum and mean."""

    largest: Estimate
    mean: Estimate


def pairwise_summary(
    oracle: Samples, rule: Samples, partition: ScoreDifferences, *, redraws: int = 40, seed: int = 0
) -> PairedDifferences:
    """Maximum and mean total variation over all pairs of outputs, with floors of at least 19 `redraws`.

    `oracle` and `rule` have the shape (samples, m). Floors come from a double bootstrap of the oracle, and
    standard errors from the covariance of the distances of different pairs.
    """
    redraws = check_redraws("redraws", redraws)
    x, y = matrix_of(oracle), matrix_of(rule)
    x_counts, y_counts = partition.counts(x), partition.counts(y)
    no_floor = Floor(0.0, 0.0)
    values = np.array(
        [total_variation_of_counts(a, b, no_floor).value for a, b in zip(x_counts, y_counts, strict=True)]
    )
    cells = _cells_of(partition, x)
    once, twice = _bootstrapped_distances(cells, len(x), len(y), partition.cells, redraws, seed)
    floor_of_largest = bootstrapped_floor(once.max(1), twice.max(1))
    floor_of_mean = bootstrapped_floor(once.mean(1), twice.mean(1))
    # A total variation is the difference of the shares of those cells where the oracle has more mass.
    excess = x_counts / len(x) > y_counts / len(y)
    far_above_floor = _covariance_given(excess, partition, x) + _covariance_given(excess, partition, y)
    covariance = _blended(values, 2 * once.mean(0) - twice.mean(0), far_above_floor, once)
    error_of_largest = _error_of_largest(values, covariance, seed)
    error_of_mean = math.sqrt(covariance.mean())
    return PairedDifferences(
        Estimate(float(values.max()), floor_of_largest.mean, floor_of_largest.upper95, error_of_largest),
        Estimate(float(values.mean()), floor_of_mean.mean, floor_of_mean.upper95, error_of_mean),
    )


def _bootstrapped_distances(
    cells: Cells, x_size: int, y_size: int, cell_count: int, redraws: int, seed: int
) -> tuple[Array, Array]:
    """Distances between two samples redrawn from one, and from a redrawn one, both (redraws, pairs)."""
    generator = np.random.default_rng(seed)

    def redrawn(pool: Cells, size: int) -> Cells:
        return pool[:, generator.integers(pool.shape[1], size=size)]

    once, twice = [], []
    for _ in range(redraws):
        first = redrawn(cells, x_size)
        once.append(_distances(first, redrawn(cells, y_size), cell_count))
        again = redrawn(first, x_size)
        twice.append(_distances(again, redrawn(first, y_size), cell_count))
    return np.array(once), np.array(twice)


def _covariance_given(excess: NDArray[np.bool_], partition: ScoreDifferences, samples: Matrix) -> Array:
    """Covariance of the shares of samples in given cells of each pair, shape (pairs, pairs)."""
    pairs = len(excess)
    together = np.zeros((pairs, pairs))
    for start in range(0, len(samples), _ROWS):
        cells = _cells_of(partition, samples[start : start + _ROWS])
        inside = np.take_along_axis(excess, cells, 1).astype(np.float64)
        together += inside @ inside.T
    together /= len(samples)
    shares = together.diagonal()
    covariance: Array = (together - np.outer(shares, shares)) / len(samples)
    return covariance


def _blended(values: Array, floors: Array, given: Array, simulated: Array) -> Array:
    """Covariance of the pairs' distances, interpolated between its limits far above the floor and at it."""
    near = np.divide(floors, values, out=np.ones(len(values)), where=values > floors) ** 3
    at_floor, above = np.sqrt(near), np.sqrt(1 - near)
    null = np.atleast_2d(np.cov(simulated, rowvar=False))
    blended: Array = given * np.outer(above, above) + null * np.outer(at_floor, at_floor)
    return blended


def _error_of_largest(values: Array, covariance: Array, seed: int) -> float:
    """Standard deviation of the maximum of normal values around these, without their scatter from noise."""
    scatter = np.square(values - values.mean()).sum()
    noise = np.trace(covariance) - covariance.mean() * len(values)
    kept = math.sqrt(max(0.0, 1 - noise / scatter)) if scatter > 0 else 0.0
    variances, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(0, variances)) @ vectors.T
    normals = np.random.default_rng(seed).standard_normal((_NORMALS, len(values)))
    return float((kept * (values - values.mean()) + normals @ root).max(1).std())


def _distances(first: Cells, second: Cells, cells: int) -> Array:
    """Total variation of each pair's bins between two samples of cells."""
    distances = []
    for x, y in zip(first, second, strict=True):
        x_shares = np.bincount(x, minlength=cells) / len(x)
        y_shares = np.bincount(y, minlength=cells) / len(y)
        distances.append(np.abs(x_shares - y_shares).sum() / 2)
    return np.array(distances)


def bootstrapped_floor(statistic: Array, again: Array) -> Floor:
    """Floor from a bootstrapped statistic, with its bias estimated by a second bootstrap."""
    bias = statistic.mean() - again.mean()
    return Floor(float(statistic.mean() + bias), float(upper95(statistic)) + float(bias))


def _cells_of(partition: ScoreDifferences, samples: Matrix) -> Cells:
    values = samples.astype(np.float64)
    lines = [Edges(line) for line in partition.edges]
    return np.stack(
        [line.below(values[:, i] - values[:, j]) for line, (i, j) in zip(lines, partition.pairs, strict=True)]
    )


def sliced_total_variation(
    oracle: Samples, rule: Samples, *, directions: int = 200, bins: int = 64, seed: int = 0
) -> Estimate:
    """Total variation along the direction in which it is largest, for whitened outputs.

    The direction is chosen on one half of the samples, and the distance is computed on the other, so that
    the choice does not bias it. It is a lower bound on the maximum, up to noise.
    """
    directions, bins = check_count("directions", directions, 0), check_count("bins", bins, 2)
    x, y = _both(oracle, rule, 4 * bins)
    x_half, y_half = len(x) // 2, len(y) // 2
    centre, whitening = _whitening(x[:x_half])
    x_first, y_first = (x[:x_half] - centre) @ whitening, (y[:y_half] - centre) @ whitening
    candidates = _candidates(x_first, y_first, directions, seed)
    if candidates.shape[1] == 0:  # the oracle is a point mass
        return Estimate(float(not np.allclose(y, centre, rtol=_NULL, atol=1e-6)), 0.0, 0.0, 0.0)
    direction, edges = _most_distant(candidates, x_first, y_first, np.arange(1, bins) / bins)
    x_bins = np.searchsorted(edges, (x[x_half:] - centre) @ whitening @ direction)
    y_bins = np.searchsorted(edges, (y[y_half:] - centre) @ whitening @ direction)
    x_counts, y_counts = np.bincount(x_bins, minlength=bins), np.bincount(y_bins, minlength=bins)
    floor = total_variation_floor(x_counts, int(y_counts.sum()), seed=seed)
    return total_variation_of_counts(x_counts, y_counts, floor)


def _most_distant(candidates: Array, x: Array, y: Array, levels: Array) -> tuple[Array, Array]:
    """The candidate with the largest total variation, the first of equals, and its bin edges."""
    largest, best_direction, best_edges = -1.0, candidates[:, 0], np.empty(0)
    for direction in candidates.T:
        x_along, y_along = x @ direction, y @ direction
        edges = np.quantile(x_along, levels)
        distance = np.abs(_relative(edges, x_along) - _relative(edges, y_along)).sum() / 2
        if distance > largest:
            largest, best_direction, best_edges = distance, direction, edges
    return best_direction, best_edges


def _relative(edges: Array, values: Array) -> Array:
    return np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1) / len(values)


def _whitening(values: Array) -> tuple[Array, Array]:
    """Centre, and a map of deviations to uncorrelated ones of unit variance, without null directions."""
    centre = values.mean(0)
    variances, vectors = np.linalg.eigh(np.atleast_2d(np.cov(values, rowvar=False)))
    support = variances > _NULL * max(variances[-1], np.finfo(np.float64).tiny)
    return centre, vectors[:, support] / np.sqrt(variances[support])


def _candidates(oracle: Array, rule: Array, count: int, seed: int) -> Array:
    r = oracle.shape[1]
    if r == 0:
        return np.empty((0, 0))
    shift = (rule.mean(0) - oracle.mean(0))[:, None]
    axes = np.linalg.eigh(np.atleast_2d(np.cov(rule, rowvar=False)))[1]
    drawn = np.random.default_rng(seed).standard_normal((r, count))
    vectors = np.hstack([shift, axes, np.eye(r), drawn])
    lengths = np.linalg.norm(vectors, axis=0)
    candidates: Array = vectors[:, lengths > 0] / lengths[lengths > 0]
    return candidates


def energy_distance(
    oracle: Samples, rule: Samples, n: int = 2000, *, halves: int = 100, seed: int = 0, shift: bool = False
) -> Estimate:
    """Energy distance 2 E|X - Y| - E|X - X'| - E|Y - Y'| of the outputs, with or without their common shift.

    The estimate is unbiased (a U-statistic), so that it is close to 0, and possibly negative, for an exact
    rule. The distance is 0 for equal laws only (Szekely and Rizzo 2013). The 95 % point is that of the
    distances between `halves` pairs of random halves of the oracle's points, at least 19.
    """
    halves = check_redraws("halves", halves)
    x, y = _both(oracle, rule, 4, shift=shift)
    x, y = x[:n], y[:n]
    across, within_x, within_y = cdist(x, y), cdist(x, x), cdist(y, y)
    x_to_y, y_to_x = across.mean(1), across.mean(0)
    # Without the zero distances of points to themselves, which makes the statistic unbiased.
    x_to_x, y_to_y = within_x.sum(1) / (len(x) - 1), within_y.sum(1) / (len(y) - 1)
    value = 2 * across.mean() - x_to_x.mean() - y_to_y.mean()
    # Hoeffding's projections: the first-order term of a U-statistic's variance.
    variance = np.var(2 * (x_to_y - x_to_x)) / len(x) + np.var(2 * (y_to_x - y_to_y)) / len(y)
    between_halves = _distances_between_halves(within_x, halves, seed)
    # Under equal laws the statistic scales as 1/n, here from 2 / half rows to 1/n + 1/m.
    scale = (1 / len(x) + 1 / len(y)) / (2 / (len(x) // 2))
    upper = scale * float(upper95(between_halves, "linear"))
    return Estimate(float(value), 0.0, upper, math.sqrt(variance))


def _distances_between_halves(distances: Array, count: int, seed: int) -> Array:
    """Energy distances between pairs of random halves of points, given the distances between the points."""
    generator = np.random.default_rng(seed)
    n = len(distances)
    half = n // 2
    members = np.zeros((n, 2, count))  # indicators of the first and the second half
    for redraw in range(count):
        order = generator.permutation(n)
        members[order[:half], 0, redraw] = 1
        members[order[half : 2 * half], 1, redraw] = 1
    # Sums of distances within and between halves as quadratic forms, in one matrix product.
    to_half = (distances @ members.reshape(n, -1)).reshape(members.shape)
    within = (members * to_half).sum((0, 1))
    between = (members[:, 0] * to_half[:, 1]).sum(0)
    return np.asarray(2 * between / half**2 - within / (half * (half - 1)))


def _both(oracle: Samples, rule: Samples, least: int, *, shift: bool = False) -> tuple[Array, Array]:
    if shift:
        x, y = matrix_of(oracle).astype(np.float64), matrix_of(rule).astype(np.float64)
        width = 1
    else:
        x, y = without_shift(oracle), without_shift(rule)
        width = 2
    if x.shape[1] != y.shape[1] or x.shape[1] < width:
        raise ValueError(
            f"samples must have one width of at least {width}, got {x.shape[1]} and {y.shape[1]} outputs"
        )
    if min(len(x), len(y)) < least:
        raise ValueError(f"at least {least} samples of either are needed, got {len(x)} and {len(y)}")
    for values in (x, y):
        if not np.isfinite(values).all():
            raise ValueError("samples have non-finite entries (NaN or infinity)")
    return x, y
