"""Coverage of 95 % intervals, and of floors for metrics of moments and quantiles.

An interval is ``value ± 1.96 stderr`` of an estimate. Distributions are drawn by NumPy in each trial, and the
truth is known in closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sdp_bench.oracles.estimate.estimate import Estimate
from sdp_bench.oracles.moments.moments import Moments, bures, gaussian_kl, mean_error, std_ratio
from sdp_bench.oracles.partitions.floors import total_variation_floor
from sdp_bench.oracles.partitions.partition import total_variation_of_counts
from sdp_bench.oracles.partitions.quantiles import (
    Quantiles,
    interquartile_ratio,
    largest_quantile_distance,
    mean_quantile_distance,
)
from sdp_bench.reports.selfcheck.rate import NOTHING, Rate
from sdp_ref.laws import Gaussian

_NORMAL_975 = 1.959964
_COVERS = 0.93, 0.97
_DEVIATIONS = np.array([1.0, 0.1, 0.001])  # principal, as those of a classifier's outputs
_SAMPLES = 10_000

Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.float64]]


@dataclass(frozen=True)
class _Shape:
    """A distribution with mean 0 and variance 1; coordinates are independent copies."""

    name: str
    draw: Draw


_SHAPES = (
    _Shape("Gaussian", lambda rng, shape: rng.standard_normal(shape)),
    _Shape("exponential", lambda rng, shape: rng.standard_exponential(shape) - 1),
)


def rates(trials: int, seed: int = 0) -> Iterator[Rate]:
    yield from _total_variations(trials, np.random.default_rng([seed, 1]))
    yield from _moments(trials, np.random.default_rng([seed, 2]))
    yield from _quantiles(trials, np.random.default_rng([seed, 3]))


def _total_variations(trials: int, rng: np.random.Generator) -> Iterator[Rate]:
    for cells, samples in ((10, 10_000), (512, 10_000), (512, 1_000_000)):
        for wanted in (0.05, 0.3):
            p = np.full(cells, 1 / cells)
            q = p * (1 + 2 * wanted * np.where(np.arange(cells) % 2, 1, -1))
            floor = total_variation_floor(rng.multinomial(samples, p), samples, seed=1)
            hits = sum(
                _covers(
                    total_variation_of_counts(
                        rng.multinomial(samples, p), rng.multinomial(samples, q), floor
                    ),
                    wanted,
                )
                for _ in range(trials)
            )
            # Below some five floors noise adds to the value itself, which no interval around it corrects.
            near = wanted < 5 * floor.mean
            condition = f"TV {wanted:g} on {cells} cells, {samples:,} samples, floor {floor.mean:.2g}"
            promised = NOTHING if near else _COVERS
            yield Rate("intervals", "TV ± 1.96 se covers the true TV", condition, promised, hits, trials)


def _moments(trials: int, rng: np.random.Generator) -> Iterator[Rate]:
    right, wrong = _gaussian(1.0), _gaussian(1.1)
    for shape in _SHAPES:
        condition = f"{shape.name}, 3 outputs, {_SAMPLES:,} samples"
        found = []
        for _ in range(trials):
            samples = shape.draw(rng, (_SAMPLES, len(_DEVIATIONS))) * _DEVIATIONS
            oracle = Moments.from_samples(torch.from_numpy(samples))
            found.append(
                (
                    _covers(std_ratio(oracle, wrong)[0], 1.1),
                    *(
                        metric.indistinguishable
                        for metric in (
                            std_ratio(oracle, right)[0],
                            mean_error(oracle, right),
                            bures(oracle, right),
                            gaussian_kl(oracle, right),
                        )
                    ),
                )
            )
        hits = [int(column.sum()) for column in np.array(found).T]
        yield Rate(
            "intervals", "std ratio ± 1.96 se covers the true ratio 1.1", condition, _COVERS, hits[0], trials
        )
        for what, count in zip(("std ratio", "mean error", "Bures", "Gaussian KL"), hits[1:], strict=True):
            words = f"the 95 % point of {what} covers an exact rule"
            yield Rate("floors", words, condition, _COVERS, count, trials)


def _quantiles(trials: int, rng: np.random.Generator) -> Iterator[Rate]:
    metrics = {
        "the ratio of interquartile ranges": interquartile_ratio,
        "the mean quantile distance": mean_quantile_distance,
        "the largest quantile distance": largest_quantile_distance,
    }
    shapes = (*_SHAPES, _Shape("Cauchy", lambda rng, shape: rng.standard_cauchy(shape)))
    for shape in shapes:
        found = []
        for _ in range(trials):
            sides = [
                Quantiles.from_samples(torch.from_numpy(shape.draw(rng, (_SAMPLES, 1)))) for _ in range(2)
            ]
            found.append([metric(*sides)[0].indistinguishable for metric in metrics.values()])
        for what, count in zip(metrics, np.array(found).sum(0), strict=True):
            words = f"the 95 % point of {what} covers an exact rule"
            condition = f"{shape.name}, {_SAMPLES:,} samples"
            yield Rate("floors", words, condition, _COVERS, int(count), trials)


def _covers(estimate: Estimate, truth: float) -> bool:
    return abs(estimate.value - truth) <= _NORMAL_975 * estimate.stderr


def _gaussian(scale: float) -> Gaussian:
    covariance = torch.from_numpy(np.diag((scale * _DEVIATIONS) ** 2))
    return Gaussian(torch.zeros(1, len(_DEVIATIONS), dtype=torch.float64), covariance[None])
