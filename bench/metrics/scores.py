"""Predictions in use: proper scores, intervals, tail probabilities, and the predicted class."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sdp_bench.bench.metrics.base import Measurements, Metric, RatioMetric, TwoSidedMetric, count
from sdp_bench.oracles.estimate.estimate import Estimate
from sdp_ref.errors import UndefinedError
from sdp_ref.lazy import deferred

if TYPE_CHECKING:
    from sdp_bench.bench.metrics.oracle import Oracle, Prediction

intervals = deferred("sdp_bench.oracles.scores.intervals")
proper = deferred("sdp_bench.oracles.scores.proper")
quantiles = deferred("sdp_bench.oracles.partitions.quantiles")


@dataclass(frozen=True)
class MovedClass(Metric):
    """Whether the arg max of the predicted location differs from that of the net's output; needs no oracle.

    Shows how propagation changes the accuracy of a net that was trained without noise (Section 2 of the
    paper: moment matching changes the mean).
    """

    name = "moved_class"
    title = "Inputs put into another class than by a plain pass"
    label = "moved to another class"
    about = (
        "Share of inputs whose largest predicted location is not that of the net’s own largest output, "
        "without noise. A rule may be right about the noisy output, whose mean moves too, and still move it."
    )
    has_floor = False
    single = True
    rank = 225

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        import torch

        if prediction.law is None:
            raise UndefinedError("the prediction is a law known by samples alone, which has no location")
        device = oracle.sampling.device
        with torch.no_grad():
            plain = oracle.net(oracle.law.location.to(device))
        moved = int(plain[0].argmax()) != int(prediction.law.location[0].argmax())
        yield None, Estimate(float(moved), math.nan, math.nan, math.nan)


LEVELS = (0.5, 0.9, 0.95)


@dataclass(frozen=True)
class Coverage(TwoSidedMetric):
    """True mass of the predicted central intervals."""

    name = "coverage"
    title = "Coverage of predicted intervals"
    label = "coverage"
    about = (
        "How much of the truth lies in the central 50 %, 90 % and 95 % interval of the prediction, for each "
        "output. The level itself is right; less is overconfident."
    )
    single = True
    rank = 260
    seconds_per_sample = 0.3e-6  # for all metrics of this module: they share the sorted samples

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        """Yield one estimate per level and output, labelled ``0 90%``."""
        yield from _by_level(intervals.coverage, oracle, prediction)


@dataclass(frozen=True)
class IntervalWidth(RatioMetric):
    """Predicted over true width of the central intervals."""

    name = "interval_width"
    title = "Width of intervals, predicted over true"
    label = "interval width"
    about = (
        "Of the central 50 %, 90 % and 95 % interval of each output; 1 is right. An interval may be as wide "
        "as the true one and yet in the wrong place, which its coverage shows."
    )
    single = True
    rank = 270

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        """Yield one estimate per level and output, labelled ``0 90%``."""
        yield from _by_level(quantiles.interval_width_ratio, oracle, prediction)


def _by_level(compared: Callable[..., Any], oracle: Oracle, prediction: Prediction) -> Measurements:
    for level in LEVELS:
        for output, estimate in enumerate(compared(oracle.quantiles, prediction.quantiles, level)):
            yield f"{output} {level:.0%}", estimate


@dataclass(frozen=True)
class TailProbabilities(RatioMetric):
    """P(y > t), predicted over true."""

    name = "tails"
    version = 2
    title = "Tail probabilities, predicted over true"
    label = "tails"
    about = (
        "P(yⱼ > t) at the thresholds t that the truth exceeds with probability 0.1, 0.01, 0.001 and 0.0001 "
        "(a pilot’s quantiles), for each output, if at least ten samples lie beyond. 1 is right, 0.5 a "
        "tail that is predicted half as likely as it is, and the distance from 1 is the relative error. "
        "Predicted probabilities are exact for distributions with a formula, otherwise counted among samples."
    )
    single = True
    rank = 280

    pilot_samples: int = count(2**17, 100)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        """Yield one estimate per probability and output, labelled ``0 p=0.001``."""
        tails = oracle.of_pilot(intervals.Tails.from_samples, self.pilot_samples, samples=oracle.key.samples)
        predicted, draws = prediction.survival(tails.thresholds)
        ratios = tails.ratios(oracle.quantiles, predicted, draws, seed=oracle.key.seed("floor tails"))
        for probability, each in zip(tails.probabilities, ratios, strict=True):
            for output, estimate in enumerate(each):
                yield f"{output} p={probability:g}", estimate


@dataclass(frozen=True)
class LogScore(Metric):
    """Log score of the joint density of all outputs."""

    name = "log_score"
    title = "Log score"
    label = "log score"
    about = (
        "Mean of − log q(y) over true draws y, q the predicted density: the entropy of the truth, which "
        "is not known, plus the Kullback–Leibler divergence of the prediction from it. So there is neither a "
        "perfect value nor a floor; differences between rules are differences of that divergence. Laws "
        "without a density (draws, quantiles, a singular covariance) have none."
    )
    unit = "nat"
    perfect = math.nan
    has_floor = False
    whitens = True
    rank = 230
    seconds_per_sample = 0.2e-6

    score_samples: int = count(2**16, 2)

    def refusal(self, oracle: Oracle, prediction: Prediction) -> str:
        try:
            prediction.log_prob(oracle.samples[:1])
        except UndefinedError as error:
            return super().refusal(oracle, prediction) or f"a density is needed: {error}"
        return super().refusal(oracle, prediction)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        yield None, proper.log_score(prediction.log_prob(oracle.samples[: self.score_samples]))


@dataclass(frozen=True)
class ContinuousRankedProbabilityScore(Metric):
    """Continuous ranked probability score of each output."""

    name = "crps"
    title = "Excess CRPS"
    label = "CRPS"
    about = (
        "By how much the mean continuous ranked probability score is above that of the truth, for "
        "each output: the integral of (F − G)², F and G the true and the predicted distribution function "
        "(Cramér’s distance). 0 is perfect. Both are known by samples, hence the floor."
    )
    unit = "output"
    component = "output"
    single = True
    needs = "mean"
    rank = 240
    seconds_per_sample = 1e-6

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        seed = oracle.key.seed("floor crps")
        excess = proper.crps_excess(oracle.quantiles, prediction.quantiles, seed=seed)
        for output, estimate in enumerate(excess):
            yield str(output), estimate


@dataclass(frozen=True)
class EnergyScore(Metric):
    """Energy score of all outputs jointly."""

    name = "energy_score"
    title = "Excess energy score"
    label = "energy score"
    about = (
        "The same of all outputs together: E|X − Y| − ½ E|X − X′| − ½ E|Y − Y′|, by how much the mean energy "
        "score is above that of the truth, half of the energy distance. 0 is perfect, and an exact rule may "
        "show a little less."
    )
    unit = "output"
    needs = "mean"
    rank = 250

    energy_points: int = count(2000, 4)

    @property
    def points(self) -> int:
        return self.energy_points

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        seed = oracle.key.seed("floor energy")
        yield None, proper.energy_excess(oracle.samples, prediction.samples, self.energy_points, seed=seed)

    def seconds(self, samples: int, rules: int) -> float:  # noqa: ARG002
        """Estimate the time: 0.3 s at 2000 points a side, growing as n^2."""
        return 0.3 * rules * (self.energy_points / 2000) ** 2
