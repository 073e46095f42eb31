"""Coverage of floors of W1 for an exact rule, and of intervals of the summary of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdp_bench.oracles.estimate.estimate import Estimate
from sdp_bench.oracles.partitions.logits import pairwise_summary
from sdp_bench.oracles.partitions.partition import ScoreDifferences
from sdp_bench.oracles.transport.large import certified
from sdp_bench.oracles.transport.wasserstein import sliced_wasserstein, wasserstein
from sdp_bench.reports.selfcheck.rate import NOTHING, Rate

Array = NDArray[np.float64]

_PAIRS = 8
_COVERS = 0.93, 0.97
_WITHIN = 0.93, 0.99  # for errors within a fifth of the true ones, and rather too large
_NORMAL_975 = 1.959964
_OUTPUTS, _SAMPLES, _BINS = 4, 1000, 20  # of the summary of pairs; its pilot has twenty times the samples
_REDRAWS = 40
_FEWEST = 20  # trials of it: each is compared with the mean of the others, whose error must be small


@dataclass(frozen=True)
class _Distance:
    """A distance between two samples as the suite computes it, and its number of points per side here."""

    name: str
    estimate: Callable[[Array, Array, int], Estimate]
    points: int


@dataclass(frozen=True)
class _Outputs:
    """Normal outputs with some standard deviations."""

    name: str
    deviations: tuple[float, ...]

    def draw(self, rng: np.random.Generator, samples: int) -> Array:
        return rng.standard_normal((samples, len(self.deviations))) * self.deviations


_EXACT = _Distance("exact W1", wasserstein, 100)
_SLICED = _Distance("sliced W1", lambda a, b, n: sliced_wasserstein(a, b, n, directions=16), 100)
_CERTIFIED = _Distance("certified W1", lambda a, b, n: certified(a, b, n)[0], 60)
_ALIKE = _Outputs("three outputs alike", (1.0, 1.0, 1.0))
_FLAT = _Outputs("three outputs 1 : 0.1 : 0.001", (1.0, 0.1, 0.001))


def rates(trials: int, seed: int = 0) -> Iterator[Rate]:
    """Yield the coverage of floors of W1, and of intervals and floors of the summary of pairs.

    The summary of pairs has at least twenty trials.
    """
    rng = np.random.default_rng(seed)
    for distance, outputs in (
        (_EXACT, _ALIKE),
        (_EXACT, _FLAT),
        (_SLICED, _ALIKE),
        (_SLICED, _FLAT),
        (_CERTIFIED, _FLAT),
    ):
        yield _floor_of(distance, outputs, 2 * _PAIRS, _COVERS, trials, rng)
    # A quarter of the samples of disjoint pairs: these pairs overlap and are too similar.
    yield _floor_of(_EXACT, _FLAT, _PAIRS // 2, NOTHING, trials, rng)
    for scale in (1.0, 1.15, 2.0):
        yield from _summaries_of(scale, max(_FEWEST, trials), rng)


def _floor_of(
    distance: _Distance,
    outputs: _Outputs,
    multiple: int,
    promised: tuple[float, float],
    trials: int,
    rng: np.random.Generator,
) -> Rate:
    """How often an exact rule is within the floor's 95 % point, with `multiple` times the points drawn."""
    n, hits = distance.points, 0
    for _ in range(trials):
        oracle, rule = outputs.draw(rng, multiple * n), outputs.draw(rng, n)
        hits += distance.estimate(oracle, rule, n).indistinguishable
    what = f"the 95 % point of the floor of {distance.name} covers an exact rule"
    condition = f"{outputs.name}, {n} points a side of {multiple * n}, {_PAIRS} pairs"
    return Rate("floors", what, condition, promised, hits, trials)


def _summaries_of(scale: float, trials: int, rng: np.random.Generator) -> Iterator[Rate]:
    """How often an interval of the summary of pairs covers the mean of other trials, for a rule's scale."""
    outputs = _Outputs("", (1.0,) * _OUTPUTS)
    partition = ScoreDifferences.from_samples(outputs.draw(rng, 20 * _SAMPLES), _BINS)
    found = []
    for seed in range(trials):
        oracle, rule = outputs.draw(rng, _SAMPLES), scale * outputs.draw(rng, _SAMPLES)
        found.append(pairwise_summary(oracle, rule, partition, redraws=_REDRAWS, seed=seed))
    rule_is = "an exact rule" if scale == 1 else f"standard deviations times {scale:g}"
    condition = f"{_OUTPUTS} outputs, {_SAMPLES} samples, {rule_is}"
    for name, estimates in (
        ("largest", [each.largest for each in found]),
        ("mean", [each.mean for each in found]),
    ):
        values = np.array([estimate.value for estimate in estimates])
        others = (values.sum() - values) / (trials - 1)
        reach = _NORMAL_975 * np.array([estimate.stderr for estimate in estimates])
        what = f"value ± 1.96 stderr of the {name} TV of pairs covers the mean of repeated draws"
        yield Rate(
            "intervals", what, condition, _WITHIN, int((np.abs(values - others) <= reach).sum()), trials
        )
        if scale == 1:
            within = sum(estimate.indistinguishable for estimate in estimates)
            what = f"the 95 % point of the floor of the {name} TV of pairs covers an exact rule"
            yield Rate("floors", what, condition, _COVERS, within, trials)
