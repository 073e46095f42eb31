"""Estimated errors of linearisation, with their uncertainty, from outputs paired with their linearisation.

Output and linearisation are evaluated at the same draws of the noise, so that most of the sampling noise
cancels where they agree. Arrays are float64, of shape (samples, m).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ... import oracles

Array = NDArray[np.float64]
Cells = NDArray[np.intp]

PILOT = 2000
"""First samples, which only fix the cells."""
CELLS = (16, 64, 256)
"""Coarse cells resolve smooth differences with little noise, and fine cells resolve folds of the output."""
_LEVEL = 0.975  # of each end of an interval
_TINY = 1e-300
_CONSTANT = 1e-12  # spread of an output that counts as constant, relative to its size: rounding in float64


@dataclass(frozen=True)
class Interval:
    """An estimate with a two-sided 95 % interval for its sampling error."""

    value: float
    low: float
    high: float


def deviations_error(outputs: Array, linear: Array) -> Interval:
    """Mean absolute logarithm of the ratio of standard deviations, over outputs that are not constant."""
    squares, linear_squares = (outputs - outputs.mean(0)) ** 2, (linear - linear.mean(0)) ** 2
    variance, linear_variance = squares.mean(0) + _TINY, linear_squares.mean(0) + _TINY
    varies = np.sqrt(np.maximum(variance, linear_variance)) > _CONSTANT * np.abs(linear.mean(0))
    if not varies.any():
        return Interval(0.0, 0.0, 0.0)
    logs = 0.5 * np.log(variance / linear_variance)[varies]
    # Linear terms of the logarithms in the squares.
    terms = 0.5 * (squares / variance - linear_squares / linear_variance)[:, varies]
    value = float(np.abs(logs).mean())
    margin = _margin(terms @ np.sign(logs) / len(logs))
    return Interval(value, max(0.0, value - margin), value + margin)


def class_error(outputs: Array, linear: Array) -> Interval:
    """Total variation of the class probabilities."""
    return _total_variation(outputs.argmax(1), linear.argmax(1))


def distribution_error(
    outputs: Array, linear: Array, pilot: int = PILOT, numbers: Sequence[int] = CELLS
) -> Interval:
    """Total variation of the whole distribution: of several partitions, the one with the largest lower end.

    The partitions are :class:`oracles.PrincipalCells` of each of these numbers of cells, fixed by the first
    `pilot` samples. Each total variation is a lower bound of that of the distributions.
    """
    columns, linear_columns = np.ascontiguousarray(outputs[pilot:].T), np.ascontiguousarray(linear[pilot:].T)
    intervals = []
    for number in numbers:
        cells = oracles.PrincipalCells.from_samples(outputs[:pilot], number)
        located = zip(cells.located(columns), cells.located(linear_columns), strict=True)
        intervals += [_total_variation(*paired) for paired in located]
    return max(intervals, key=lambda interval: (interval.low, interval.value))


def _total_variation(cells: Cells, linear_cells: Cells) -> Interval:
    """Total variation of two laws from paired cell numbers, corrected for noise as an oracle's is."""
    samples = len(cells)
    count = int(max(cells.max(), linear_cells.max())) + 1
    before, after = (np.bincount(row, minlength=count) for row in (linear_cells, cells))
    stay = np.bincount(cells[cells == linear_cells], minlength=count)
    differences = (after - before) / samples
    variances = ((after + before - 2 * stay) / samples - differences**2).clip(min=0) / samples
    raw = float(np.abs(differences).sum() / 2)
    floor = float(np.sqrt(variances).sum() / math.sqrt(2 * math.pi))
    signs = np.sign(differences)
    margin = _margin((signs[cells] - signs[linear_cells]) / 2)
    value, low, high = (_corrected(end, floor) for end in (raw, raw - margin, raw + margin))
    return Interval(value, low, high)


def _corrected(raw: float, floor: float) -> float:
    return math.sqrt(raw**2 - floor**2) if raw > floor else 0.0


def _margin(terms: Array) -> float:
    """Half the width of the interval of a mean, with as many degrees of freedom as terms contribute.

    A rare kink contributes few terms, and the interval is wide.
    """
    squares = (terms - terms.mean()) ** 2
    total = float(squares.sum())
    if total <= _TINY:
        return 0.0
    effective = total**2 / float((squares**2).sum())
    return float(stats.t.ppf(_LEVEL, max(effective - 1, 1))) * math.sqrt(total) / len(terms)
