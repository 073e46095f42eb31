"""95 % points of a statistic, from redraws of it."""

from __future__ import annotations

import functools
import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

Array = NDArray[np.float64]

LEAST_REDRAWS = 19
"""Fewest redraws whose largest value covers 95 % of further values."""

_MANY = 100


def check_redraws(name: str, number: int) -> int:
    """Require enough redraws for a 95 % point; `name` is that of the argument."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < LEAST_REDRAWS:
        raise ValueError(
            f"{name} must be an integer of at least {LEAST_REDRAWS}, got {number!r}: the largest of n values "
            "covers only n / (n + 1) of further ones"
        )
    return int(number)


def upper95(redraws: ArrayLike, method: Literal["weibull", "linear", "higher"] = "weibull") -> Array:
    """95 % point of a statistic, shape (...), from at least 19 redraws of it, shape (n, ...).

    Of n + 1 exchangeable values, the last is at most the k-th smallest of the others with probability k / (n
    + 1), so the point lies at k = 0.95 (n + 1).

    Parameters
    ----------
    redraws : array_like, shape (n, ...)
    method : {"weibull", "linear", "higher"}
        "weibull" interpolates between the values next to the point. "linear" and "higher" are NumPy's
        definitions with k = 0.95 (n - 1) + 1, which stored floors have. They cover up to 0.9 / (n + 1) less,
        and are used from 100 redraws on, where this is less than 0.01. With fewer redraws, "linear" equals
        "weibull", and "higher" is the first value at or above the point, for statistics with few values.
    """
    values = np.asarray(redraws, dtype=np.float64)
    number = check_redraws("the number of redraws", len(values))
    if number < _MANY and method == "higher":
        rank = math.ceil(0.95 * (number + 1) - 1e-9)
        return np.asarray(np.sort(values, axis=0)[rank - 1])
    return np.asarray(np.quantile(values, 0.95, axis=0, method="weibull" if number < _MANY else method))


def upper95_of_few(redraws: ArrayLike) -> float:
    """95 % point of a right-skewed statistic from two or more redraws of it, by Gumbel's law.

    The point is mean + c sd, with c such that it covers 95 % of further values of Gumbel's law, whose
    skewness is 1.1.
    """
    values = np.asarray(redraws, dtype=np.float64)
    return float(np.mean(values)) + _reach(len(values)) * float(np.std(values, ddof=1))


@functools.cache
def _reach(draws: int) -> float:
    drawn = np.random.default_rng(0).gumbel(size=(2**14, draws))
    mean, spread = drawn.mean(1), drawn.std(1, ddof=1)

    def excess(reach: float) -> float:
        return float(np.exp(-np.exp(-mean - reach * spread)).mean()) - 0.95

    return float(brentq(excess, 0.0, 100.0))
