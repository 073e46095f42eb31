"""Distances between quantiles of single outputs, which exist for every law, however heavy its tails."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_bench.bench.metrics.base import Measurements, Metric, RatioMetric

if TYPE_CHECKING:
    from sdp_bench.bench.metrics.oracle import Oracle
    from sdp_bench.bench.metrics.prediction import Prediction
    from sdp_bench.oracles.estimate.estimate import Estimate
    from sdp_bench.oracles.partitions.quantiles import Quantiles


@dataclass(frozen=True)
class QuantileMetric(Metric):
    """A metric that is one number per output, computed from its quantiles."""

    component = "output"
    single = True

    @abstractmethod
    def distance(self, oracle: Quantiles, predicted: Quantiles) -> Sequence[Estimate]:
        """Return one estimate per output."""

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        for output, estimate in enumerate(self.distance(oracle.quantiles, prediction.quantiles)):
            yield str(output), estimate


@dataclass(frozen=True)
class MeanQuantileDistance(QuantileMetric):
    """Mean distance over quantiles."""

    name = "quantile_mean"
    title = "Distance of quantiles"
    label = "quantiles"
    about = (
        "Mean distance of the quantiles at 5 %, 10 % … 95 % of each output, as a multiple of the true "
        "interquartile range: a Wasserstein distance with its tails cut off, where W1 itself is infinite. "
        "“max” is the largest of them, as a rule that at 5 % or 95 %."
    )
    companion = "quantile_max"
    companion_label = "max"
    rank = 130
    seconds_per_sample = 0.3e-6  # for the three metrics of this module: they share the sorted samples

    def distance(self, oracle: Quantiles, predicted: Quantiles) -> Sequence[Estimate]:
        from sdp_bench.oracles.partitions.quantiles import mean_quantile_distance

        return mean_quantile_distance(oracle, predicted)


@dataclass(frozen=True)
class LargestQuantileDistance(QuantileMetric):
    """Largest distance over quantiles."""

    name = "quantile_max"
    title = "Distance of quantiles, largest"
    label = "largest of quantiles"
    about = "The largest distance of a quantile at 5 %, 10 % … 95 %, over the true interquartile range."
    rank = 140

    def distance(self, oracle: Quantiles, predicted: Quantiles) -> Sequence[Estimate]:
        from sdp_bench.oracles.partitions.quantiles import largest_quantile_distance

        return largest_quantile_distance(oracle, predicted)


@dataclass(frozen=True)
class InterquartileRatio(RatioMetric, QuantileMetric):
    """Predicted over true interquartile range: replaces the ratio of standard deviations."""

    name = "iqr_ratio"
    title = "Ratio of interquartile ranges, predicted over true"
    label = "IQR ratio"
    about = (
        "One for each output, in place of the ratio of standard deviations; 1 is right, below 1 is "
        "overconfident about the central half."
    )
    rank = 150

    def distance(self, oracle: Quantiles, predicted: Quantiles) -> Sequence[Estimate]:
        from sdp_bench.oracles.partitions.quantiles import interquartile_ratio

        return interquartile_ratio(oracle, predicted)
