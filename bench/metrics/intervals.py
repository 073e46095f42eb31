"""Central intervals and tail probabilities of single outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_bench.bench.metrics.base import Measurements, RatioMetric, TwoSidedMetric, count

if TYPE_CHECKING:
    from sdp_bench.bench.metrics.oracle import Oracle
    from sdp_bench.bench.metrics.prediction import Prediction

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
        from sdp_bench.oracles.scores.intervals import coverage

        for level in LEVELS:
            for output, estimate in enumerate(coverage(oracle.quantiles, prediction.quantiles, level)):
                yield f"{output} {level:.0%}", estimate


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
        from sdp_bench.oracles.partitions.quantiles import interval_width_ratio

        for level in LEVELS:
            for output, estimate in enumerate(
                interval_width_ratio(oracle.quantiles, prediction.quantiles, level)
            ):
                yield f"{output} {level:.0%}", estimate


@dataclass(frozen=True)
class TailProbabilities(RatioMetric):
    """P(y > t), predicted over true."""

    name = "tails"
    title = "Tail probabilities, predicted over true"
    label = "tails"
    about = (
        "P(yⱼ > t) at the thresholds t that the truth exceeds with probability 0.1, 0.01, 0.001 and 0.0001 "
        "(a pilot’s quantiles), for each output, as far as there are ten samples beyond. 1 is right, 0.5 a "
        "tail that is predicted half as likely as it is, and the distance from 1 is the relative error. "
        "Predicted probabilities are exact where the law tells them, and counted among its draws elsewhere."
    )
    single = True
    rank = 280

    pilot_samples: int = count(2**17, 100)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        """Yield one estimate per probability and output, labelled ``0 p=0.001``."""
        from sdp_bench.oracles.scores.intervals import Tails

        tails = oracle.of_pilot(Tails.from_samples, self.pilot_samples, samples=oracle.key.samples)
        predicted, draws = prediction.survival(tails.thresholds)
        ratios = tails.ratios(oracle.quantiles, predicted, draws, seed=oracle.key.seed("floor tails"))
        for probability, each in zip(tails.probabilities, ratios, strict=True):
            for output, estimate in enumerate(each):
                yield f"{output} p={probability:g}", estimate
