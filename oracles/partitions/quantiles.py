"""Distances between the quantiles of the outputs of an oracle and a rule, with floors and standard errors.

Quantiles exist for every law, so these replace moments and W1 if tails are heavy. Their sampling error is
estimated by the bootstrap, which needs no resampling for quantiles: the k-th smallest of n samples from an
empirical law is its quantile at the k-th smallest of n uniform variates, and several of those are drawn
jointly by their gaps, which are Gamma variates over their sum. The relative error of these standard errors is
about n^(-1/4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..estimate.estimate import Estimate, Ratio
from ..estimate.redraws import upper95
from ..estimate.samples import Samples, on_cpu, resident_matrix

Array = NDArray[np.float64]
Statistic = Callable[[Array, Array], Array]
"""Maps quantiles of the oracle and of the rule, shapes (..., levels, m), to numbers, shape (..., m)."""

LEVELS = np.arange(1, 20) / 20
"""5 %, 10 % ... 95 %, which includes the quartiles; the sampling error at the ends is still small."""

_LOWER, _UPPER = 4, 14  # indices of the quartiles in LEVELS
_REPLICATES = 400


@dataclass(frozen=True, eq=False)
class Quantiles:
    """The quantiles of the samples of every output.

    Attributes
    ----------
    ordered : ndarray, shape (m, N)
        Samples of each output in ascending order.
    """

    ordered: Array

    @classmethod
    def from_samples(cls, samples: Samples) -> Quantiles:
        """Sort at least 100 independent samples, shape (N, m)."""
        ordered = _sorted(resident_matrix(samples))
        if not np.isfinite(ordered[:, [0, -1]]).all():
            raise ValueError("samples have non-finite entries (NaN or infinity)")
        if ordered.shape[1] < 100:
            raise ValueError(f"quantiles need at least 100 samples, got {ordered.shape[1]}")
        return cls(ordered)

    @property
    def samples(self) -> int:
        """Number of samples, N."""
        return int(self.ordered.shape[1])

    @property
    def values(self) -> Array:
        """Quantiles at :data:`LEVELS`, shape (levels, m)."""
        return self.at(LEVELS)

    def at(self, levels: Array) -> Array:
        """Quantiles at the given levels, shape (levels, m)."""
        return np.stack([_between(column, levels * (self.samples - 1)) for column in self.ordered], axis=-1)

    def replicates(
        self, number: int = _REPLICATES, *, samples: int | None = None, seed: int = 0, levels: Array = LEVELS
    ) -> Array:
        """Return quantiles of simulated further samples, shape (number, levels, m), in units of the outputs.

        They follow from gamma spacings between the order statistics (Bayesian bootstrap). `samples` is the
        size of each sample, by default N; `levels` are ascending, inside (0, 1). Different seeds give
        independent replicates.
        """
        size = self.samples if samples is None else samples
        ranks = levels * (size - 1) + 1  # ranks of the order statistics, from 1
        gaps = np.diff(ranks, prepend=0.0, append=size + 1.0)
        # independent variates for each output, since no statistic combines outputs
        shape = (self.ordered.shape[0], number, len(gaps))
        sums = np.random.default_rng([seed, 1]).standard_gamma(gaps, shape).cumsum(-1)
        uniform = sums[..., :-1] / sums[..., -1:]
        places = np.clip(uniform * (self.samples + 1) - 1, 0, self.samples - 1)
        return np.stack([_between(*pair) for pair in zip(self.ordered, places, strict=True)], axis=-1)


def mean_quantile_distance(oracle: Quantiles, rule: Quantiles) -> tuple[Estimate, ...]:
    """Mean distance of the quantiles at 5 %, 10 % ... 95 %, over the oracle's interquartile range.

    A Wasserstein-1 distance without the tails (Munk and Czado 1998), which is finite for every law. There is
    one dimensionless estimate per output; it is infinite if half of the oracle's mass is at one point and the
    rule's is not.

    References
    ----------
    Munk and Czado, "Nonparametric validation of similar distributions and assessment of goodness of fit",
    JRSS B 1998.
    """
    return _estimates(_mean_distance, oracle, rule)


def largest_quantile_distance(oracle: Quantiles, rule: Quantiles) -> tuple[Estimate, ...]:
    """Maximum distance of the same quantiles; see :func:`mean_quantile_distance`."""
    return _estimates(_largest_distance, oracle, rule)


def interquartile_ratio(oracle: Quantiles, rule: Quantiles) -> tuple[Ratio, ...]:
    """Ratio of the predicted to the true interquartile range, per output; below 1 is overconfident.

    It replaces the ratio of standard deviations for laws without moments.
    """
    return _ratios(_range_ratio, oracle, rule, LEVELS)


def interval_width_ratio(oracle: Quantiles, rule: Quantiles, level: float) -> tuple[Ratio, ...]:
    """Ratio of the predicted to the true width of the central interval of a level (0.9, say), per output."""
    return _ratios(_width_ratio, oracle, rule, central(level))


def central(level: float) -> Array:
    """Levels of the two quantiles that enclose the central interval of this mass."""
    return np.array([(1 - level) / 2, (1 + level) / 2])


def _ratios(statistic: Statistic, oracle: Quantiles, rule: Quantiles, levels: Array) -> tuple[Ratio, ...]:
    estimates = _estimates(statistic, oracle, rule, exact=1.0, levels=levels)
    return tuple(Ratio(e.value, e.floor, e.floor95, e.stderr) for e in estimates)


def _estimates(
    statistic: Statistic,
    oracle: Quantiles,
    rule: Quantiles,
    exact: float | None = None,
    levels: Array = LEVELS,
) -> tuple[Estimate, ...]:
    """Estimates of a statistic; `exact` is its value for an exact rule if errors have two sides."""
    check_outputs(oracle, rule)
    values = statistic(oracle.at(levels), rule.at(levels))
    again = statistic(oracle.replicates(seed=0, levels=levels), rule.replicates(seed=1, levels=levels))
    null = statistic(
        oracle.replicates(seed=2, levels=levels),
        oracle.replicates(samples=rule.samples, seed=3, levels=levels),
    )
    if exact is None:
        floors, upper = null.mean(0), upper95(null, "linear")
    else:
        floors = np.full(len(values), exact)
        upper = exact + upper95(np.abs(null - exact), "linear")
    finite = np.isfinite(again).all(0)
    errors = np.where(finite, np.where(finite, again, 0.0).std(0, ddof=1), 0.0)
    columns = np.stack([values, floors, upper, errors], axis=1).tolist()
    return tuple(Estimate(value, floor, floor95, error) for value, floor, floor95, error in columns)


def check_outputs(oracle: Quantiles, rule: Quantiles) -> None:
    if len(oracle.ordered) != len(rule.ordered):
        raise ValueError(f"the oracle has {len(oracle.ordered)} outputs, the rule {len(rule.ordered)}")


def _mean_distance(oracle: Array, rule: Array) -> Array:
    return _over(np.abs(oracle - rule).mean(-2), _range(oracle), equal=0.0)


def _largest_distance(oracle: Array, rule: Array) -> Array:
    return _over(np.abs(oracle - rule).max(-2), _range(oracle), equal=0.0)


def _range_ratio(oracle: Array, rule: Array) -> Array:
    return _over(_range(rule), _range(oracle), equal=1.0)


def _width_ratio(oracle: Array, rule: Array) -> Array:
    return _over(np.diff(rule, axis=-2)[..., 0, :], np.diff(oracle, axis=-2)[..., 0, :], equal=1.0)


def _range(quantiles: Array) -> Array:
    return quantiles[..., _UPPER, :] - quantiles[..., _LOWER, :]


def _over(top: Array, bottom: Array, equal: float) -> Array:
    """Quotient; division by 0 yields infinity, or `equal` if both are 0."""
    empty = np.where(top > 0, np.inf, equal)
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), empty)


def _sorted(matrix: Samples) -> Array:
    """Columns in ascending order, as rows; sorted on their device."""
    if isinstance(matrix, Tensor):
        return on_cpu(matrix.sort(dim=0).values).T.astype(np.float64, order="C")
    return np.sort(matrix.T.astype(np.float64), axis=1)


def _between(ordered: Array, places: Array) -> Array:
    """Values at fractional indices of a sorted array, by linear interpolation."""
    below = np.minimum(places.astype(np.intp), len(ordered) - 2)
    values: Array = ordered[below] + (places - below) * (ordered[below + 1] - ordered[below])
    return values
