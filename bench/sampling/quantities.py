"""Quantities of a net's outputs, estimated from blocks of independent samples, with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri, stdtrit

from ..errors import UserError
from ..text import printable

Array = NDArray[np.float64]

CONFIDENCE = 0.95
MEAN, DEVIATION, QUANTILE, CLASS = "mean", "sd", "quantile", "class"
FORMS = (MEAN, DEVIATION, f"{QUANTILE}:0.95", CLASS)
"""The forms in which users write quantities."""


@dataclass(frozen=True)
class Quantity:
    """The mean, standard deviation or a quantile of each output, or the probability that it is the largest.

    `level` is the level of a quantile.
    """

    kind: str
    level: float = math.nan

    def __str__(self) -> str:
        return f"{self.kind}:{self.level:g}" if self.kind == QUANTILE else self.kind

    @property
    def gaussian_variance(self) -> float:
        """Variance of the estimate times the number of samples, for outputs with a standard Gaussian law.

        For the class it is the largest one, at a probability of one half.
        """
        if self.kind == DEVIATION:
            return 0.5
        if self.kind == CLASS:
            return 0.25
        if self.kind == MEAN:
            return 1.0
        density = math.exp(-(ndtri(self.level) ** 2) / 2) / math.sqrt(2 * math.pi)
        return float(self.level * (1 - self.level) / density**2)

    def fewest(self, tolerance: float) -> int:
        """Return the fewest samples of a block.

        For quantiles these are at least the 100 / (1 - p) of JCGM 101, 7.2.3, and so many that the bias of a
        block's quantile is small compared with the tolerance.
        """
        if self.kind != QUANTILE:
            return 2
        return math.ceil(max(100.0, 1 / tolerance) / min(self.level, 1 - self.level))


def quantity_of(text: str) -> Quantity:
    """Return the quantity that a text names, as one of the `FORMS`; otherwise raise a UserError."""
    kind, _, rest = text.strip().partition(":")
    if kind in (MEAN, DEVIATION, CLASS) and not rest:
        return Quantity(kind)
    if kind == QUANTILE and rest:
        try:
            level = float(rest)
        except ValueError:
            level = math.nan
        if not 0 < level < 1:
            raise UserError(f"the level of a quantile must lie in (0, 1), got '{printable(rest)}'")
        return Quantity(QUANTILE, level)
    raise UserError(f"unknown quantity '{printable(text)}'; write one of {', '.join(FORMS)}")


def block_statistics(outputs: Array, quantities: Sequence[Quantity]) -> Array:
    """Return what is stored of a block of outputs (M, m), shape (2 + quantities, m).

    The rows are mean, variance, and for each quantity a quantile or the number of samples of each class;
    NaN for quantities that follow from mean and variance.
    """
    rows = [outputs.mean(0), outputs.var(0, ddof=1)]
    for quantity in quantities:
        if quantity.kind == QUANTILE:
            # the positions that are unbiased for a Gaussian law
            rows.append(np.quantile(outputs, quantity.level, axis=0, method="normal_unbiased"))
        elif quantity.kind == CLASS:
            counts = np.bincount(outputs.argmax(1), minlength=outputs.shape[1])
            rows.append(counts.astype(np.float64))
        else:
            rows.append(np.full(outputs.shape[1], np.nan))
    return np.stack(rows)


@dataclass(frozen=True, eq=False)
class Estimate:
    """A quantity of each output with its interval, shape (m,).

    `excess` is half the width of the interval, relative to the allowed one.
    """

    quantity: Quantity
    value: Array
    low: Array
    high: Array
    excess: Array

    @property
    def is_reached(self) -> NDArray[np.bool_]:
        return self.excess <= 1


def estimates(
    statistics: Array, samples: int, quantities: Sequence[Quantity], tolerance: float
) -> list[Estimate]:
    """Return the estimates from the statistics of blocks, shape (blocks, 2 + quantities, m).

    `samples` is the number of samples of a block. `tolerance` is relative to the standard deviation of the
    output, and absolute for class probabilities. Intervals of class probabilities are those of Clopper and
    Pearson; the others are Student's, from the spread over blocks. The variance is the mean of the blocks'
    variances, which has no bias, and the interval of its root follows to first order.
    """
    blocks = len(statistics)
    deviation = np.sqrt(statistics[:, 1].mean(0))
    results = []
    for quantity, rows in zip(quantities, statistics[:, 2:].swapaxes(0, 1), strict=True):
        if quantity.kind == CLASS:
            value, low, high = _binomial(rows.sum(0), blocks * samples)
            results.append(Estimate(quantity, value, low, high, (high - low) / 2 / tolerance))
            continue
        if quantity.kind == DEVIATION:
            value = deviation
            error = _standard_error(statistics[:, 1])
            error = np.divide(error, 2 * deviation, out=np.zeros_like(error), where=deviation > 0)
        else:
            rows = statistics[:, 0] if quantity.kind == MEAN else rows
            value, error = rows.mean(0), _standard_error(rows)
        half = float(stdtrit(blocks - 1, (1 + CONFIDENCE) / 2)) * error
        # Constant outputs have neither an error nor a deviation.
        excess = np.divide(half, tolerance * deviation, out=np.zeros_like(half), where=half != 0)
        results.append(Estimate(quantity, value, value - half, value + half, excess))
    return results


def _standard_error(rows: Array) -> Array:
    error: Array = rows.std(0, ddof=1) / math.sqrt(len(rows))
    return error


def _binomial(counts: Array, samples: int) -> tuple[Array, Array, Array]:
    """Shares, and the limits of Clopper and Pearson."""
    tail, rest = (1 - CONFIDENCE) / 2, samples - counts
    low = np.where(counts > 0, betaincinv(np.maximum(counts, 1), rest + 1, tail), 0.0)
    high = np.where(rest > 0, betaincinv(counts + 1, np.maximum(rest, 1), 1 - tail), 1.0)
    return counts / samples, low, high
