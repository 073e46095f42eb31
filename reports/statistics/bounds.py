"""Confidence bounds of a mean that hold for any number of values and for skewed values, such as errors.

Student's interval collapses if all values of a small sample happen to be small: of errors that are 0 for most
inputs and large for a few, a small sample is likely to contain only zeros.

For independent values v >= 0 with mean m, each product of the factors 1 + b (v / m - 1) with a bet b between
0 and 1 has the expectation 1. By Markov's inequality the product, or a mean of products for several bets,
exceeds 1 / LEVEL with a probability of at most LEVEL. The means m that are not refuted in this way form a
confidence interval. By Ville's inequality this also holds if inputs are added until there is a decision.

References
----------
Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", J. R. Stat. Soc. B 86,
2024.
Ville, "Étude critique de la notion de collectif", 1939.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Array = NDArray[np.float64]

LEVEL = 0.05
"""Largest probability that a bound is wrong, for each of the two bounds."""

_BETS = 0.5 ** np.arange(6)
"""Bets of the lower bound: large ones for values with little spread, small ones for rare large values."""

_LOG_SMALLEST = -600.0  # the bound is 0 to rounding, and ratios of values to it would overflow


def upper_bound(values: Array, largest: float) -> float:
    """Return an upper 95 % bound of the mean of independent values that never exceed `largest`.

    It is largest - g LEVEL^(1 / n) with the geometric mean g of the n distances from `largest`, the bound
    that the largest bet refutes. For zeros it is the exact bound of a proportion by Clopper and Pearson. It
    is infinite if a value exceeds `largest`.
    """
    distances = largest - values
    if (distances < 0).any():
        return math.inf
    return float(largest - math.exp(_mean_log(distances) + math.log(LEVEL) / len(values)))


def lower_bound(values: Array, smallest: float = 0.0) -> float:
    """Return a lower 95 % bound of the mean of independent values that never fall below `smallest`."""
    distances = values - smallest
    mean = float(distances.mean())
    if not 0 < mean < math.inf:
        return smallest + mean

    def excess(log: float) -> float:
        return _log_wealth(distances / math.exp(log)) + math.log(LEVEL)

    # The mean of the sample is never refuted. The smallest bet alone refutes every mean below the other end:
    # the largest value has a factor of at least its ratio times the bet, the others at least 1 - bet.
    bet = float(_BETS[-1])
    bottom = math.log(distances.max() * bet * LEVEL / len(_BETS)) + len(values) * math.log1p(-bet)
    if bottom < _LOG_SMALLEST:
        return smallest
    return smallest + math.exp(brentq(excess, bottom, math.log(mean)))


def inputs_to_show_small(values: Array, limit: float, largest: float) -> float:
    """Number of values like these with an upper bound of at most `limit`; infinite if no number suffices."""
    distances = largest - values
    if (distances <= 0).any():
        return math.inf
    gain = _mean_log(distances) - math.log(largest - limit)
    return math.ceil(-math.log(LEVEL) / gain) if gain > 0 else math.inf


def inputs_to_show_large(values: Array, limit: float, smallest: float = 0.0) -> float:
    """Number of values like these with a lower bound above `limit`; infinite if no number suffices."""
    distances = (values - smallest) / (limit - smallest)
    with np.errstate(divide="ignore"):
        gain = float(np.log1p(_BETS[:, np.newaxis] * (distances - 1)).mean(1).max())
    return math.ceil(math.log(len(_BETS) / LEVEL) / gain) if gain > 0 else math.inf


def _log_wealth(ratios: Array) -> float:
    """Logarithm of the mean over bets of the products of factors."""
    with np.errstate(divide="ignore"):
        products = np.log1p(_BETS[:, np.newaxis] * (ratios - 1)).sum(1)
    return float(np.logaddexp.reduce(products) - math.log(len(_BETS)))


def _mean_log(values: Array) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(values).mean())
