"""Distances between laws by their moments, by quantiles, and by transport."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ... import oracles  # which imports what is used
from ...oracles.estimate.estimate import Estimate
from ..errors import UserError
from .base import Measurements, Metric, RatioMetric, by_output, count

if TYPE_CHECKING:
    from ..identity import Sampling
    from .oracle import Oracle, Prediction


LEAST_POINTS = 100
"""Fewest points a side for W1."""


class StandardDeviationRatio(RatioMetric):
    """Predicted over true standard deviation of each output, from :func:`sdp_bench.oracles.std_ratio`."""

    name = "std_ratio"
    title = "Ratio of standard deviations, predicted over true"
    label = "std ratio"
    about = "One for each output. 1 is perfect; below 1 the prediction is overconfident."
    published = "std_ratio"
    single = True
    needs = "variance"
    rank = 190

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        return by_output(oracles.std_ratio(oracle.moments, prediction.marginals))


class BuresDistance(Metric):
    """sqrt(|m - m'|^2 + tr(C + C' - 2 (C^1/2 C' C^1/2)^1/2)), with means m, m' and covariances C, C'.

    It has the unit of the outputs.
    """

    name = "bures"
    title = "Bures distance between the moments"
    label = "Bures"
    about = "W2 distance between the Gaussians with the predicted and with the true mean and covariance."
    unit = "output"
    needs = "variance"
    rank = 200
    primary = True

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        yield None, oracles.bures(oracle.moments, prediction.gaussian)


class GaussianDivergence(Metric):
    """KL(N(m, C) || N(m', C')) in nats, with the true moments m, C and the predicted ones m', C'."""

    name = "gaussian_kl"
    title = "Gaussian Kullback-Leibler divergence between the moments"
    label = "Gaussian KL"
    about = "Infinite if the prediction has no variance in a direction in which the truth varies."
    unit = "nat"
    whitens = True
    needs = "variance"
    rank = 210

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        yield None, oracles.gaussian_kl(oracle.moments, prediction.gaussian)


class SmallestEigenvalue(Metric):
    """Smallest over largest eigenvalue of the predicted covariance matrix."""

    name = "min_eigenvalue"
    title = "Smallest eigenvalue of the predicted covariance"
    label = "smallest eigenvalue"
    about = "Relative to the largest eigenvalue. Below zero the prediction is not a covariance matrix."
    better = ""
    perfect = math.nan
    has_floor = False
    needs = "variance"
    rank = 220

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:  # noqa: ARG002
        import torch

        values = torch.linalg.eigvalsh(prediction.gaussian.covariance[0].double())
        largest = float(values[-1])
        smallest = float(values[0]) / largest if largest > 0 else 0.0
        yield None, Estimate(smallest, 0.0, 0.0, 0.0)


class Operations(Metric):
    """Operations of a rule over those of a regular pass, as `sdp_bench.bench.operations` counts both."""

    name = "operations"
    title = "Floating-point operations of the rule"
    label = "regular passes"
    about = "As a multiple of a regular pass, without tracing, other preparation, and work outside PyTorch."
    better = ""
    perfect = math.nan
    has_floor = False
    single = True
    rank = 228

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:  # noqa: ARG002
        yield None, Estimate(prediction.passes(), 0.0, 0.0, 0.0)


class MeanQuantileDistance(Metric):
    """Mean |q(p) - q'(p)| for p = 0.05, 0.1, ..., 0.95, over the true interquartile range, by output."""

    name = "quantile_mean"
    title = "Distance of quantiles"
    label = "quantiles"
    about = (
        "Mean error of the quantiles at 5 %, 10 % … 95 % of each output, in true interquartile ranges. "
        "This is a Wasserstein distance without the tails, for laws with infinite W1. “max” is the largest "
        "error, usually at 5 % or 95 %."
    )
    companion = "quantile_max"
    companion_label = "max"
    component = "output"
    single = True
    rank = 130
    seconds_per_sample = 0.3e-6  # for the three metrics of this module: they share the sorted samples

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        return by_output(oracles.mean_quantile_distance(oracle.quantiles, prediction.quantiles))


class LargestQuantileDistance(Metric):
    """Largest |q(p) - q'(p)| for p = 0.05, 0.1, ..., 0.95, over the true interquartile range, by output."""

    name = "quantile_max"
    title = "Distance of quantiles, largest"
    label = "largest of quantiles"
    about = "Largest error of a quantile at 5 %, 10 % … 95 %, in true interquartile ranges."
    component = "output"
    single = True
    rank = 140

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        return by_output(oracles.largest_quantile_distance(oracle.quantiles, prediction.quantiles))


class InterquartileRatio(RatioMetric):
    """Predicted over true distance between the quantiles at 0.25 and 0.75, by output."""

    name = "iqr_ratio"
    title = "Ratio of interquartile ranges, predicted over true"
    label = "IQR ratio"
    about = (
        "One for each output, for laws without a variance. 1 is perfect; below 1 the prediction is "
        "overconfident about the central half."
    )
    single = True
    rank = 150

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        return by_output(oracles.interquartile_ratio(oracle.quantiles, prediction.quantiles))


class WassersteinMetric(Metric):
    """A distance in the unit of the outputs; its floor is large."""

    label = "W1"
    unit = "output"
    corrects_floor = True
    primary = True
    needs = "mean"

    def check(self, sampling: Sampling, samples: int) -> None:  # noqa: ARG002
        """Require enough samples for the points a side and the floor."""
        pairs = getattr(self, "w1_pairs", 0)
        least = 2 * pairs * self.points
        if samples < least:
            raise UserError(
                f"W1 with {pairs} floor pairs of {self.points} points needs at least {least} samples, got "
                f"{samples}; lower --w1-points or --certified-points"
            )


@dataclass(frozen=True)
class Wasserstein(WassersteinMetric):
    """W1 between `w1_points` samples of each law, with the Euclidean distance, in units of outputs."""

    name = "w1"
    title = "Wasserstein distance W1"
    about = (
        "Smallest mean distance that mass must move to turn the prediction into the truth, between equally "
        "many points of each. Two samples of the same law have a distance near the floor, so values near "
        "the floor are not evidence of an error. “corr.” is √(W1² − floor²). The paper used 30,000 points "
        "per side; with more points the floor is lower."
    )
    published = "w1"
    rank = 160

    w1_points: int = count(2000, LEAST_POINTS)
    w1_pairs: int = count(8, 2)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        floor = oracle.of_samples(oracles.wasserstein_floor, self.w1_points, pairs=self.w1_pairs)
        yield None, oracles.wasserstein(oracle.samples, prediction.samples, self.w1_points, floor=floor)

    def seconds(self, samples: int, rules: int) -> float:  # noqa: ARG002
        """Estimate the time: 1 s at 2000 points a side, growing as n^2.2."""
        return float((rules + self.w1_pairs) * (self.w1_points / 2000) ** 2.2)


@dataclass(frozen=True)
class CertifiedWasserstein(WassersteinMetric):
    """W1 between `certified_points` samples of each law, with a proven lower and upper bound."""

    name = "w1_certified"
    title = "Wasserstein distance W1 with 30,000 samples of each law, as in the paper"
    about = (
        "Exact solvers need too much memory for this many points on a small machine. Each value is the "
        "middle of a proven bracket: a feasible dual is the lower bound, and a matching of all points the "
        "upper bound. The percentage is the largest width of the bracket."
    )
    published = "w1"
    rank = 170

    certified_points: int = count(30_000, 100)
    w1_pairs: int = count(8, 2)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        floor = oracle.of_samples(oracles.certified_floor, self.certified_points, pairs=self.w1_pairs)
        estimate, bracket = oracles.certified(
            oracle.samples, prediction.samples, self.certified_points, floor=floor
        )
        yield None, estimate
        yield "lower", replace(estimate, value=bracket.lower)
        yield "upper", replace(estimate, value=bracket.upper)

    def seconds(self, samples: int, rules: int) -> float:  # noqa: ARG002
        """Estimate the time: 10 s at 30 000 points a side, growing as n^1.5."""
        return float((rules + self.w1_pairs) * 10.0 * (self.certified_points / 30_000) ** 1.5)


class SlicedWasserstein(WassersteinMetric):
    """Mean over random directions u of W1 between u.x and u.y, in units of outputs."""

    name = "w1_sliced"
    title = "Sliced Wasserstein distance"
    label = "sliced W1"
    about = (
        "Mean W1 over 64 random directions, the same for all rules, between 10,000 points per side. It "
        "replaces the exact distance if there are many outputs."
    )
    rank = 180
    seconds_per_sample = 100e-6  # for 10 000 points, whatever the number of samples; includes the floor

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        seed = oracle.key.seed("slices") % 2**32  # using more bits would change the directions
        yield None, oracles.sliced_wasserstein(oracle.samples, prediction.samples, seed=seed)
