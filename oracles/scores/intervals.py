"""Errors of predicted intervals and of predicted tail probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..estimate.estimate import Ratio
from ..estimate.redraws import upper95
from ..estimate.samples import Samples
from ..partitions.quantiles import Quantiles, central, check_outputs

Array = NDArray[np.float64]

TAILS = (1e-1, 1e-2, 1e-3, 1e-4)
"""Probabilities of exceeding the thresholds of :class:`Tails`."""

_NORMAL_975 = 1.959963984540054
_LEAST = 10  # minimum expected number of samples above a threshold
_NULL = 10_000  # number of samples for a 95 % point
_MANY = 1000  # expected samples outside an interval from which on the mass inside is nearly normal


def coverage(oracle: Quantiles, rule: Quantiles, level: float) -> tuple[Ratio, ...]:
    """True mass of a rule's central interval of a level, such as 0.9, for each output.

    References
    ----------
    David and Nagaraja, "Order Statistics", 3rd edition, 2003, section 2.5.
    """
    check_outputs(oracle, rule)
    levels = central(level)
    intervals, again = rule.at(levels), rule.replicates(levels=levels, seed=1)
    normal = _NORMAL_975 * math.sqrt(level * (1 - level) * (1 / oracle.samples + 1 / rule.samples))
    few = (1 - level) * min(oracle.samples, rule.samples) < _MANY
    null = _masses_of_exact(oracle.samples, rule.samples, level) if few else None
    ratios = []
    for output, interval in enumerate(oracle.at(levels).T):
        ordered = oracle.ordered[output]
        value, exact = float(_mass(ordered, intervals[:, output])), float(_mass(ordered, interval))
        width = normal if null is None else float(upper95(np.abs(null - exact), "linear"))
        counted = value * (1 - value) / oracle.samples
        stderr = math.sqrt(counted + _mass(ordered, again[..., output]).var(ddof=1))
        ratios.append(Ratio(value, exact, exact + width, stderr))
    return tuple(ratios)


def _masses_of_exact(oracle_samples: int, rule_samples: int, level: float) -> Array:
    """Measured masses of an exact rule's interval, which are skewed if few samples lie outside."""
    generator = np.random.default_rng(2)
    # The mass between two order statistics of a sample has a Beta distribution (David and Nagaraja).
    inside = level * (rule_samples - 1)
    masses = generator.beta(inside, rule_samples + 1 - inside, _NULL)
    counted: Array = generator.binomial(oracle_samples, masses) / oracle_samples
    return counted


def _mass(ordered: Array, intervals: Array) -> Array:
    """Share of a sorted sample in closed intervals, shape (..., 2)."""
    below = np.searchsorted(ordered, intervals[..., 0], side="left")
    upto = np.searchsorted(ordered, intervals[..., 1], side="right")
    mass: Array = (upto - below) / len(ordered)
    return mass


@dataclass(frozen=True, eq=False)
class Tails:
    """Thresholds (probabilities, m) that an oracle rarely exceeds, fixed by an independent pilot."""

    probabilities: tuple[float, ...]
    thresholds: Array

    @classmethod
    def from_samples(cls, pilot: Samples, samples: int) -> Tails:
        """Thresholds at the upper quantiles of a pilot."""
        quantiles = Quantiles.from_samples(pilot)
        known = tuple(p for p in TAILS if p * min(quantiles.samples, samples) >= _LEAST)
        return cls(known, quantiles.at(1 - np.array(known)))

    def ratios(
        self, oracle: Quantiles, predicted: Array, draws: int | None = None, *, seed: int = 0
    ) -> list[tuple[Ratio, ...]]:
        """Ratios of the predicted to the true probabilities of exceeding the thresholds."""
        outputs = len(oracle.ordered)
        if not predicted.shape == self.thresholds.shape == (len(self.probabilities), outputs):
            raise ValueError(f"the oracle has {outputs} outputs, the rule {predicted.shape[-1]}")
        generator = np.random.default_rng(seed)

        def ratio(output: int, threshold: float, probability: float) -> Ratio:
            ordered = oracle.ordered[output]
            above = len(ordered) - int(np.searchsorted(ordered, threshold, side="right"))
            return _exceedance(above, len(ordered), probability, draws, generator)

        rows = zip(self.thresholds.tolist(), predicted.tolist(), strict=True)
        return [tuple(map(ratio, range(outputs), *row)) for row in rows]


def _exceedance(
    above: int, samples: int, predicted: float, draws: int | None, generator: np.random.Generator
) -> Ratio:
    """Ratio of a predicted probability, exact or counted, to the observed share of samples."""
    if above == 0:  # an atom at the threshold
        return Ratio(1.0 if predicted == 0 else math.inf, 1.0, 1.0, math.nan)
    share = above / samples
    value, relative = predicted / share, (1 - share) / above
    exact: float | NDArray[np.float64] = share
    if draws is not None:
        relative += (1 - predicted) / (predicted * draws) if predicted > 0 else math.nan
        exact = generator.binomial(draws, share, _NULL) / draws
    with np.errstate(divide="ignore", invalid="ignore"):
        null = np.abs(exact / (generator.binomial(samples, share, _NULL) / samples) - 1)
    width = float(upper95(np.where(np.isfinite(null), null, 1.0), "linear"))
    return Ratio(value, 1.0, 1.0 + width, value * math.sqrt(relative))
