"""Prediction intervals on the UCI sets: split, scaling, grid, selection (Tagasovska and Lopez-Paz 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sdp_bench.bench.datasets.base import RegressionTable
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.methods.uci.scores import NORMAL_95, gaussian_nll, mpiw, picp
from sdp_bench.bench.methods.uci.stacked import Setting

TEST_SHARE, VALIDATION_SHARE = 0.1, 0.2
"""Of all rows, and of those that are left."""
WINDOW = (0.925, 0.975)
"""Validation coverage, exclusive, that a setting needs to qualify."""
GRID = tuple(Setting(rate, decay) for rate in (1e-2, 1e-3, 1e-4) for decay in (0.0, 1e-3, 1e-2, 1e-1, 1.0))
DECADES = tuple(10.0**power for power in range(-8, 1))
"""Input variances of the first scan, in units of standardised features."""
REFINEMENT = tuple(10 ** (step / 10) for step in range(-5, 6))
"""Factors on the best of these, in the second scan."""

_LEAST_ROWS = 10


@dataclass(frozen=True)
class Splits:
    """Rows of a set for several seeds: training, validation and test, in standardised units.

    Attributes
    ----------
    features : dict of str to Tensor, shape (S, rows, n)
        By "train", "validation" and "test".
    targets : dict of str to Tensor, shape (S, rows)
    ranges : Tensor, shape (S,)
        Largest less smallest target of the whole set, in each seed's units.
    """

    features: dict[str, Tensor]
    targets: dict[str, Tensor]
    ranges: Tensor


def rows_of(count: int, seed: int) -> dict[str, np.ndarray]:
    """Rows for training, validation and test under a seed.

    Returns
    -------
    dict of str to ndarray
        Row numbers by part: ``train``, ``validation``, ``test``.

    Raises
    ------
    UserError
        If there are too few rows.
    """
    if count < _LEAST_ROWS:
        raise UserError(f"a set of {count} rows is too small to split; at least {_LEAST_ROWS} are needed")
    # RandomState and not a Generator: these are the published splits.
    order = np.random.RandomState(seed).permutation(count)
    test, rest = np.split(order, [math.ceil(TEST_SHARE * count)])
    rest = rest[np.random.RandomState(seed).permutation(len(rest))]
    validation, train = np.split(rest, [math.ceil(VALIDATION_SHARE * len(rest))])
    return {"train": train, "validation": validation, "test": test}


def splits(data: RegressionTable, seeds: Sequence[int], dtype: torch.dtype = torch.float32) -> Splits:
    """Split and scale a set for each seed, by the mean and population sd of its training rows.

    A feature without variance keeps its scale.

    Returns
    -------
    Splits
        Features and targets in standard deviations, stacked over seeds.

    Raises
    ------
    UserError
        If the set has too few rows, numbers that are not finite, or targets that are all the same.
    """
    x, y = data.features.double(), data.targets.double()
    if not bool(x.isfinite().all() and y.isfinite().all()):
        raise UserError(f"{data.title} has numbers that are not finite")
    if not bool((y != y[0]).any()):
        raise UserError(f"the targets of {data.title} are all the same; there is nothing to predict")
    features: dict[str, list[Tensor]] = {"train": [], "validation": [], "test": []}
    targets: dict[str, list[Tensor]] = {"train": [], "validation": [], "test": []}
    ranges = []
    for seed in seeds:
        rows = {part: torch.from_numpy(each) for part, each in rows_of(len(y), seed).items()}
        train = rows["train"]
        shift, scale = x[train].mean(0), x[train].std(0, correction=0)
        scale = torch.where(scale > 0, scale, 1.0)
        y_shift, y_scale = y[train].mean(), y[train].std(correction=0)
        y_scale = y_scale if y_scale > 0 else torch.ones_like(y_scale)
        for part, each in rows.items():
            features[part].append(((x[each] - shift) / scale).to(dtype))
            targets[part].append(((y[each] - y_shift) / y_scale).to(dtype))
        ranges.append((y.max() - y.min()) / y_scale)
    return Splits(
        {part: torch.stack(each) for part, each in features.items()},
        {part: torch.stack(each) for part, each in targets.items()},
        torch.stack(ranges),
    )


@dataclass(frozen=True)
class Intervals:
    """Predicted intervals, and the Gaussians behind them.

    Attributes
    ----------
    low, high : Tensor, shape (S, C, rows)
        For each seed the candidates of which one will be selected.
    mean, variance : Tensor, same shape
    """

    low: Tensor
    high: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def of_gaussians(cls, mean: Tensor, variance: Tensor) -> Intervals:
        """Central 95 % intervals: mean +- 1.96 standard deviations."""
        half = NORMAL_95 * variance.sqrt()
        return cls(mean - half, mean + half, mean, variance)

    @classmethod
    def of_quantiles(cls, low: Tensor, high: Tensor) -> Intervals:
        """Intervals between predicted quantiles, with the Gaussians of which they would be the central 95 %.

        These give quantile regression a likelihood; the paper prints one and does not say how.

        Returns
        -------
        Intervals
            In the units of the quantiles.
        """
        return cls(low, high, (low + high) / 2, ((high - low) / (2 * NORMAL_95)).square())


@dataclass(frozen=True)
class Scores:
    """What intervals are worth, for each seed and candidate, shape (S, C); `nll` in nats."""

    picp: Tensor
    mpiw: Tensor
    nll: Tensor

    @property
    def all(self) -> tuple[Tensor, Tensor, Tensor]:
        """The three, in their order."""
        return self.picp, self.mpiw, self.nll


def scores(intervals: Intervals, targets: Tensor, ranges: Tensor) -> Scores:
    """Coverage, width and likelihood of intervals for targets of shape (S, rows)."""
    y = targets.unsqueeze(1)
    width = mpiw(intervals.low, intervals.high, 1.0) / ranges.unsqueeze(1)
    likelihood = gaussian_nll(y, intervals.mean, intervals.variance)
    return Scores(picp(y, intervals.low, intervals.high), width, likelihood)


def qualified(coverage: Tensor) -> Tensor:
    """Whether a validation coverage lies in the window."""
    return (coverage > WINDOW[0]) & (coverage < WINDOW[1])


def select(validation: Scores) -> list[int | None]:
    """For each seed the qualified candidate of smallest validation width; none where none qualifies."""
    fits = qualified(validation.picp)
    width = torch.where(fits, validation.mpiw, math.inf)
    best = width.argmin(1).tolist()
    return [place if bool(fits[seed, place]) else None for seed, place in enumerate(best)]


def best_variance(validation: Scores, shape: tuple[int, int]) -> Tensor:
    """Place of the best of V input variances for each seed and setting, shape (S, settings).

    Of those that qualify the one of smallest width; where none does, that of coverage nearest to 95 %.

    Parameters
    ----------
    validation : Scores
        Candidates are settings times variances.
    shape : (int, int)
        Settings and variances.
    """
    coverage, width = (t.unflatten(1, shape) for t in (validation.picp, validation.mpiw))
    fits = qualified(coverage)
    nearest = (coverage - sum(WINDOW) / 2).abs().argmin(-1)
    narrowest = torch.where(fits, width, math.inf).argmin(-1)
    return torch.where(fits.any(-1), narrowest, nearest)


def best_of_first(validation: Scores, variances: int) -> int:
    """Place of the best of V input variances for the first seed, whatever the setting.

    As :func:`best_variance` has it: that of the narrowest that qualifies, or else of the one nearest to 95 %.

    Parameters
    ----------
    validation : Scores
        Candidates are settings times variances.
    variances : int
    """
    first = Scores(*(each[:1] for each in validation.all))
    return int(best_variance(first, (1, first.picp.shape[1]))) % variances
