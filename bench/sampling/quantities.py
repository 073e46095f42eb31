"""Quantities of a net's outputs, estimated from blocks of independent samples, with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri, stdtrit
from scipy.stats import binom

from ..errors import UserError
from ..text import printable

Array = NDArray[np.float64]

CONFIDENCE = 0.95
MEAN, DEVIATION, QUANTILE, CLASS, ABOVE = "mean", "sd", "quantile", "class", "above"
PROBABILITIES = (CLASS, ABOVE)
"""Quantities in [0, 1], with absolute tolerances."""
FORMS = (MEAN, DEVIATION, f"{QUANTILE}:0.95", CLASS, f"{ABOVE}:51")
"""The forms in which users write quantities."""

_WINDOW = 8.0  # standard deviations of a rank, to either side
_OUTLIER = 1e-3  # level of Grubbs' test
_VARYING_BLOCKS = 10  # fewest blocks with different values that support an interval of mean or sd
_ROUNDING = 1e-14  # spread of equal values around their rounded mean, relative to the mean


@dataclass(frozen=True)
class Quantity:
    """The mean, standard deviation or a quantile of each output, or a probability.

    The probability is that the output is the largest (`class`), or that it exceeds a threshold (`above`).
    `level` is the level of a quantile, or the threshold.
    """

    kind: str
    level: float = math.nan

    def __str__(self) -> str:
        return self.kind if math.isnan(self.level) else f"{self.kind}:{self.level:.15g}"

    @property
    def gaussian_variance(self) -> float:
        """Variance of the estimate times the number of samples, for outputs with a standard Gaussian law.

        For probabilities it is the largest one, at one half.
        """
        if self.kind == DEVIATION:
            return 0.5
        if self.kind in PROBABILITIES:
            return 0.25
        if self.kind == MEAN:
            return 1.0
        density = math.exp(-(ndtri(self.level) ** 2) / 2) / math.sqrt(2 * math.pi)
        return float(self.level * (1 - self.level) / density**2)

    @property
    def fewest(self) -> int:
        """The fewest samples of a block: for quantiles so many that about 100 are on the shorter side."""
        return math.ceil(100 / min(self.level, 1 - self.level)) if self.kind == QUANTILE else 2


def quantity_of(text: str) -> Quantity:
    """Return the quantity that a text names, as one of the `FORMS`; otherwise raise a UserError."""
    kind, _, rest = text.strip().partition(":")
    if kind in (MEAN, DEVIATION, CLASS) and not rest:
        return Quantity(kind)
    if kind in (QUANTILE, ABOVE) and rest:
        try:
            level = float(rest)
        except ValueError:
            level = math.nan
        if kind == QUANTILE and not 0 < level < 1:
            raise UserError(f"the level of a quantile must lie in (0, 1), got '{printable(rest)}'")
        if not math.isfinite(level):
            raise UserError(f"the threshold in '{printable(text)}' must be a number, as in {ABOVE}:51")
        return Quantity(kind, level)
    raise UserError(f"unknown quantity '{printable(text)}'; write one of {', '.join(FORMS)}")


@dataclass(frozen=True, eq=False)
class Block:
    """The part of a block of outputs (M, m) from which quantities are estimated.

    `statistics` has the rows mean, variance, and number of samples in which the output is the largest. For
    each quantile level follow the lower and the upper end of a window and the number of samples below it, and
    for each threshold the number of samples above it. `inside` lists the samples in these windows: position
    of the level, output, value, and number of samples with this value, shape (values, 4).
    """

    statistics: Array
    inside: Array


def levels_of(quantities: Sequence[Quantity]) -> list[float]:
    """Return the levels of the quantiles among some quantities, sorted."""
    return sorted({quantity.level for quantity in quantities if quantity.kind == QUANTILE})


def thresholds_of(quantities: Sequence[Quantity]) -> list[float]:
    """Return the thresholds of the exceedance probabilities among some quantities, sorted."""
    return sorted({quantity.level for quantity in quantities if quantity.kind == ABOVE})


def block_of(
    outputs: Array, levels: Sequence[float], first: Block | None = None, thresholds: Sequence[float] = ()
) -> Block:
    """Return the block of outputs, shape (M, m), for quantiles of some levels and some thresholds.

    The first block determines the windows: its sample quantile, eight standard deviations of its rank to
    either side. All blocks together have the quantile there, except with a probability below 1e-10, and only
    a few percent of the samples are stored.
    """
    samples, count = outputs.shape
    classes = np.bincount(outputs.argmax(1), minlength=count).astype(np.float64)
    rows, inside = [outputs.mean(0), outputs.var(0, ddof=1), classes], [np.empty((0, 4))]
    ordered = np.sort(outputs, axis=0) if first is None else outputs
    for position, level in enumerate(levels):
        if first is None:
            half = _WINDOW * math.sqrt(samples * level * (1 - level))
            low = _at_rank(ordered, math.floor(samples * level - half))
            high = _at_rank(ordered, math.ceil(samples * level + half))
        else:
            low, high = first.statistics[3 + 3 * position : 5 + 3 * position]
        is_inside = (outputs >= low) & (outputs <= high)
        rows += [low, high, (outputs < low).sum(0).astype(np.float64)]
        for output in range(count):
            values, counts = np.unique(outputs[is_inside[:, output], output], return_counts=True)
            table = np.empty((len(values), 4))
            table[:, 0], table[:, 1], table[:, 2], table[:, 3] = position, output, values, counts
            inside.append(table)
    rows += [(outputs > threshold).sum(0).astype(np.float64) for threshold in thresholds]
    return Block(np.stack(rows), np.concatenate(inside))


def _at_rank(ordered: Array, rank: int) -> Array:
    """Return the row of this rank, from 1; minus or plus infinity beyond the ends."""
    if not 1 <= rank <= len(ordered):
        return np.full(ordered.shape[1], -math.inf if rank < 1 else math.inf)
    row: Array = ordered[rank - 1]
    return row


@dataclass(frozen=True, eq=False)
class Estimate:
    """A quantity of each output with its interval, shape (m,).

    `excess` is the larger distance from the estimate to an end of the interval, relative to the allowed one.
    `is_heavy` is whether the tails are so heavy that `excess` does not predict the error of more samples.
    `is_flat` is whether so many samples are equal that there is no interval; its ends are then infinite.
    `is_constant` is whether they are all equal.
    """

    quantity: Quantity
    value: Array
    low: Array
    high: Array
    excess: Array
    is_heavy: NDArray[np.bool_]
    is_flat: NDArray[np.bool_]
    is_constant: NDArray[np.bool_]

    @property
    def is_reached(self) -> NDArray[np.bool_]:
        return self.excess <= 1


def estimates(
    blocks: Sequence[Block], samples: int, quantities: Sequence[Quantity], tolerance: float
) -> list[Estimate]:
    """Return the estimates from some blocks.

    `samples` is the number of samples of a block. `tolerance` is relative to the standard deviation of the
    output, and absolute for probabilities. Intervals of probabilities are those of Clopper and Pearson. Those
    of quantiles are order statistics of all samples, which is valid for any law. The others are Student's,
    from the spread over blocks; the variance is the mean of the blocks' variances, which has no bias, and the
    interval of its root follows to first order. They require ten blocks with different values: if (nearly)
    all samples are equal, the spread says nothing about rare other values, and the ends are infinite.
    """
    total = len(blocks) * samples
    statistics = np.stack([block.statistics for block in blocks])
    means, variances, classes = statistics[:, 0], statistics[:, 1], statistics[:, 2]
    deviation = np.sqrt(variances.mean(0))
    levels, thresholds = levels_of(quantities), thresholds_of(quantities)
    varying = (np.sqrt(variances) > _ROUNDING * np.abs(means)).sum(0)
    results = []
    for quantity in quantities:
        allowed, is_heavy = tolerance * deviation, _has_outlier(variances)
        is_flat = np.zeros_like(is_heavy)
        if quantity.kind in PROBABILITIES:
            counts = classes
            if quantity.kind == ABOVE:
                counts = statistics[:, 3 + 3 * len(levels) + thresholds.index(quantity.level)]
            value, low, high = _binomial(counts.sum(0), total)
            allowed, is_heavy = np.full_like(value, tolerance), np.zeros_like(is_heavy)
        elif quantity.kind == QUANTILE:
            position = levels.index(quantity.level)
            value, low, high = _quantile(blocks, position, quantity.level, total)
        elif quantity.kind == MEAN:
            value, is_heavy = means.mean(0), _has_outlier(means)
            low, high = _student(value, _standard_error(means), len(blocks))
        else:
            value, error = deviation, _standard_error(variances)
            error = np.divide(error, 2 * deviation, out=np.zeros_like(error), where=deviation > 0)
            low, high = _student(value, error, len(blocks))
        if quantity.kind in (MEAN, DEVIATION):
            is_flat = varying < _VARYING_BLOCKS
            low[is_flat], high[is_flat] = 0.0 if quantity.kind == DEVIATION else -math.inf, math.inf
        with np.errstate(invalid="ignore"):  # infinite minus infinite
            distance = np.maximum(high - value, value - low)
        distance[np.isnan(distance)] = math.inf
        # Quantiles of constant outputs have neither an error nor a deviation.
        excess = np.divide(distance, allowed, out=np.zeros_like(distance), where=distance != 0)
        is_constant = is_flat & (varying == 0)
        results.append(Estimate(quantity, value, low, high, excess, is_heavy, is_flat, is_constant))
    return results


def _standard_error(rows: Array) -> Array:
    error: Array = rows.std(0, ddof=1) / math.sqrt(len(rows))
    return error


def _student(value: Array, error: Array, blocks: int) -> tuple[Array, Array]:
    half = float(stdtrit(blocks - 1, (1 + CONFIDENCE) / 2)) * error
    return value - half, value + half


def _binomial(counts: Array, samples: int) -> tuple[Array, Array, Array]:
    """Shares, and the limits of Clopper and Pearson."""
    tail, rest = (1 - CONFIDENCE) / 2, samples - counts
    low = np.where(counts > 0, betaincinv(np.maximum(counts, 1), rest + 1, tail), 0.0)
    high = np.where(rest > 0, betaincinv(counts + 1, np.maximum(rest, 1), 1 - tail), 1.0)
    return counts / samples, low, high


def _quantile(
    blocks: Sequence[Block], position: int, level: float, samples: int
) -> tuple[Array, Array, Array]:
    """Sample quantile of all blocks together, and the order statistics that enclose the quantile.

    The number of samples below the quantile is binomial, so the ranks of both ends are quantiles of the
    binomial law (Conover, "Practical nonparametric statistics", 3.2). An end is infinite if its rank is
    outside of the window.
    """
    tail = (1 - CONFIDENCE) / 2
    ranks = [
        math.ceil(samples * level),
        int(binom.ppf(tail, samples, level)),
        int(binom.ppf(1 - tail, samples, level)) + 1,
    ]
    below = sum(block.statistics[5 + 3 * position] for block in blocks)
    inside = np.concatenate([block.inside[block.inside[:, 0] == position] for block in blocks])
    inside = inside[np.lexsort((inside[:, 2], inside[:, 1]))]
    ends = np.searchsorted(inside[:, 1], np.arange(len(below) + 1))
    result = np.empty((3, len(below)))
    for output, count in enumerate(below):
        part = inside[ends[output] : ends[output + 1]]
        cumulative = count + np.cumsum(part[:, 3])
        padded = np.concatenate([[-math.inf], part[:, 2], [math.inf]])
        result[:, output] = [
            padded[0 if rank <= count else 1 + np.searchsorted(cumulative, rank)] for rank in ranks
        ]
    return result[0], result[1], result[2]


def _has_outlier(rows: Array) -> NDArray[np.bool_]:
    """Whether a block differs from the others more than a Gaussian one does, shape (m,).

    This is the test of Grubbs, "Procedures for detecting outlying observations in samples", Technometrics
    1969. With infinite variance, a single block dominates the spread, however many there are.
    """
    blocks, spread = len(rows), rows.std(0, ddof=1)
    t = float(stdtrit(blocks - 2, 1 - _OUTLIER / (2 * blocks)))
    limit = (blocks - 1) * math.sqrt(t**2 / (blocks - 2 + t**2) / blocks)
    is_outlier: NDArray[np.bool_] = np.abs(rows - rows.mean(0)).max(0) > limit * spread
    return is_outlier
