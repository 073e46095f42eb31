"""Wasserstein distances between samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.metrics.base import Measurements, Metric, count

if TYPE_CHECKING:
    from sdp_bench.bench.metrics.oracle import Oracle
    from sdp_bench.bench.metrics.prediction import Prediction
    from sdp_bench.bench.sampling import Sampling


@dataclass(frozen=True)
class WassersteinMetric(Metric):
    """A distance in the unit of the outputs; its floor is large."""

    label = "W1"
    unit = "output"
    corrects_floor = True
    primary = True
    needs = "mean"

    def _check_points(self, points: int, pairs: int, samples: int) -> None:
        """Require enough samples for the points a side and the floor."""
        least = 2 * pairs * points
        if samples < least:
            raise UserError(
                f"W1 with {pairs} floor pairs of {points} points needs at least {least} samples, got "
                f"{samples}; lower --w1-points or --certified-points"
            )


@dataclass(frozen=True)
class Wasserstein(WassersteinMetric):
    """Exact distance, between a few thousand points a side."""

    name = "w1"
    title = "Wasserstein distance W1"
    about = (
        "Mean distance that mass has to be moved to turn the prediction into the truth, between equally "
        "many points of each. Two samples of the same law are already a floor apart, and values near that "
        "floor say little. “corr.” is the value with the floor taken out in quadrature, √(W1² − floor²). The "
        "paper took 30 000 points a side: more points, lower floor."
    )
    published = "w1"
    rank = 160

    w1_points: int = count(2000, 100)
    w1_pairs: int = count(8, 2)

    @property
    def points(self) -> int:
        return self.w1_points

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        from sdp_bench.oracles.transport.wasserstein import wasserstein, wasserstein_floor

        floor = oracle.of_samples(wasserstein_floor, self.w1_points, pairs=self.w1_pairs)
        yield None, wasserstein(oracle.samples, prediction.samples, self.w1_points, floor=floor)

    def check(self, sampling: Sampling, samples: int) -> None:  # noqa: ARG002
        self._check_points(self.w1_points, self.w1_pairs, samples)

    def seconds(self, samples: int, rules: int) -> float:  # noqa: ARG002
        """Estimate the time: 1 s at 2000 points a side, growing as n^2.2."""
        return float((rules + self.w1_pairs) * (self.w1_points / 2000) ** 2.2)


@dataclass(frozen=True)
class CertifiedWasserstein(WassersteinMetric):
    """Distance between proven bounds, with as many points as in the paper."""

    name = "w1_certified"
    title = "Wasserstein distance W1 at the paper’s 30 000 points a side"
    about = (
        "No exact solver fits at this size on a small machine. Each value is the middle of a bracket that is "
        "proven: a feasible dual from below, a matching of all points from above. The percentage says how "
        "far apart the two are at most."
    )
    published = "w1"
    rank = 170

    certified_points: int = count(30_000, 100)
    w1_pairs: int = count(8, 2)

    @property
    def points(self) -> int:
        return self.certified_points

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        """Yield the middle of the bracket, with its bounds."""
        from sdp_bench.oracles.transport.large import certified, certified_floor

        floor = oracle.of_samples(certified_floor, self.certified_points, pairs=self.w1_pairs)
        estimate, bracket = certified(oracle.samples, prediction.samples, self.certified_points, floor=floor)
        yield None, estimate
        yield "lower", replace(estimate, value=bracket.lower)
        yield "upper", replace(estimate, value=bracket.upper)

    def check(self, sampling: Sampling, samples: int) -> None:  # noqa: ARG002
        self._check_points(self.certified_points, self.w1_pairs, samples)

    def seconds(self, samples: int, rules: int) -> float:  # noqa: ARG002
        """Estimate the time: 10 s at 30 000 points a side, growing as n^1.5."""
        return float((rules + self.w1_pairs) * 10.0 * (self.certified_points / 30_000) ** 1.5)


@dataclass(frozen=True)
class SlicedWasserstein(WassersteinMetric):
    """Mean distance over random directions."""

    name = "w1_sliced"
    title = "Sliced Wasserstein distance"
    label = "sliced W1"
    about = (
        "Mean W1 over 64 random directions, the same for all rules, between 10 000 points a side: for more "
        "outputs than the exact distance can be estimated in."
    )
    rank = 180
    seconds_per_sample = 100e-6  # for 10 000 points, whatever the number of samples; includes the floor

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        from sdp_bench.oracles.transport.wasserstein import sliced_wasserstein

        seed = oracle.key.seed("slices") % 2**32  # using more bits would change the directions
        yield None, sliced_wasserstein(oracle.samples, prediction.samples, seed=seed)
