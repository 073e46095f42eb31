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
from sdp_bench.bench.studies.uci.scores import NORMAL_95, gaussian_nll, mpiw, picp
from sdp_bench.bench.studies.uci.stacked import Setting

TEST_SHARE, VALIDATION_SHARE = 0.1, 0.2
"""Share of test rows among all rows, and of validation rows among the rest."""
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
    """Rows of a set for several seeds: training, validation and test, in standardised units."""

    features: dict[str, Tensor]  # shape (S, rows, n); by "train", "validation" and "test"
    targets: dict[str, Tensor]  # shape (S, rows)
    ranges: Tensor  # shape (S,); range of the targets of the whole set, in each seed's units


def rows_of(count: int, seed: int) -> dict[str, np.ndarray]:
    """Return the row numbers of the parts ``train``, ``validation`` and ``test`` for a seed."""
    if count < _LEAST_ROWS:
        raise UserError(f"a set of {count} rows is too small to split; at least {_LEAST_ROWS} are needed")
    # RandomState rather than a Generator: these are the published splits.
    order = np.random.RandomState(seed).permutation(count)
    test, rest = np.split(order, [math.ceil(TEST_SHARE * count)])
    rest = rest[np.random.RandomState(seed).permutation(len(rest))]
    validation, train = np.split(rest, [math.ceil(VALIDATION_SHARE * len(rest))])
    return {"train": train, "validation": validation, "test": test}


def splits(data: RegressionTable, seeds: Sequence[int], dtype: torch.dtype = torch.float32) -> Splits:
    """Split and standardise a set for each seed, by the mean and population sd of its training rows.

    A feature without variance keeps its scale. A UserError is raised if the set has too few rows, values that
    are not finite, or constant targets.
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
    """Predicted intervals, and the corresponding Gaussians."""

    # shape (S, C, rows); for each seed, the candidates for selection
    low: Tensor
    high: Tensor
    mean: Tensor  # same shape
    variance: Tensor  # same shape

    @classmethod
    def of_gaussians(cls, mean: Tensor, variance: Tensor) -> Intervals:
        """Return central 95 % intervals: mean +- 1.96 standard deviations."""
        half = NORMAL_95 * variance.sqrt()
        return cls(mean - half, mean + half, mean, variance)

    @classmethod
    def of_quantiles(cls, low: Tensor, high: Tensor) -> Intervals:
        """Return intervals between predicted quantiles, with the Gaussians that have them as central 95 %.

        These Gaussians give quantile regression a likelihood. The paper prints one without stating its
        definition.
        """
        return cls(low, high, (low + high) / 2, ((high - low) / (2 * NORMAL_95)).square())


@dataclass(frozen=True)
class Scores:
    """Scores of intervals, for each seed and candidate, shape (S, C); `nll` in nats."""

    picp: Tensor
    mpiw: Tensor
    nll: Tensor

    @property
    def all(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.picp, self.mpiw, self.nll


def scores(intervals: Intervals, targets: Tensor, ranges: Tensor) -> Scores:
    """Return coverage, width and likelihood of intervals for targets of shape (S, rows)."""
    y = targets.unsqueeze(1)
    width = mpiw(intervals.low, intervals.high, 1.0) / ranges.unsqueeze(1)
    likelihood = gaussian_nll(y, intervals.mean, intervals.variance)
    return Scores(picp(y, intervals.low, intervals.high), width, likelihood)


def qualified(coverage: Tensor) -> Tensor:
    """Return whether a validation coverage lies in the window."""
    return (coverage > WINDOW[0]) & (coverage < WINDOW[1])


def select(validation: Scores) -> list[int | None]:
    """Return, for each seed, the qualified candidate of smallest validation width, or None."""
    fits = qualified(validation.picp)
    width = torch.where(fits, validation.mpiw, math.inf)
    best = width.argmin(1).tolist()
    return [place if bool(fits[seed, place]) else None for seed, place in enumerate(best)]


def best_variance(validation: Scores, shape: tuple[int, int]) -> Tensor:
    """Return the index of the best of V input variances per seed and setting, shape (S, settings).

    The best is the narrowest that qualifies; if none does, the one with coverage nearest to 95 %. Candidates
    are settings times variances, with their numbers in `shape`.
    """
    coverage, width = (t.unflatten(1, shape) for t in (validation.picp, validation.mpiw))
    fits = qualified(coverage)
    nearest = (coverage - sum(WINDOW) / 2).abs().argmin(-1)
    narrowest = torch.where(fits, width, math.inf).argmin(-1)
    return torch.where(fits.any(-1), narrowest, nearest)


def best_of_first(validation: Scores, variances: int) -> int:
    """Return the index of the best of V input variances for the first seed, over all settings.

    The criterion is that of `best_variance`. Candidates are settings times variances.
    """
    first = Scores(*(each[:1] for each in validation.all))
    return int(best_variance(first, (1, first.picp.shape[1]))) % variances
