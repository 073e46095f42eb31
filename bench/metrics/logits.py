"""Distances for many logits, where a joint histogram would need too many samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.metrics.base import Measurements, Metric, count
from sdp_ref.laws import Gaussian, unchecked

if TYPE_CHECKING:
    from sdp_bench.bench.metrics.oracle import Oracle
    from sdp_bench.bench.metrics.prediction import Prediction
    from sdp_bench.bench.sampling import Sampling


@dataclass(frozen=True)
class MarginTotalVariation(Metric):
    """Total variation of the margin: highest score minus second highest."""

    name = "tv_margin"
    title = "Total variation of the margin"
    label = "TV of the margin"
    about = "Of the highest score less the second highest, in bins of equal mass."
    decimals = 4
    whitens = True
    rank = 70

    margin_bins: int = count(30)
    pilot_samples: int = count(2**17, 100)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        from sdp_bench.oracles.partitions.logits import Margin

        cells = oracle.of_pilot(Margin.from_samples, self.pilot_samples, bins=self.margin_bins)
        yield None, oracle.total_variation(cells, prediction.samples)


@dataclass(frozen=True)
class PairTotalVariation(Metric):
    """Total variation of the differences of two scores: the largest and the mean over pairs."""

    name = "tv_pairs"
    title = "Total variation of the differences of two scores"
    label = "TV of score differences"
    about = "Over all 45 pairs of classes: the largest, and the mean."
    component = "pairs"
    decimals = 4
    whitens = True
    rank = 80
    seconds_per_sample = 50e-6  # for ten outputs, including the redrawn samples of the floor

    margin_bins: int = count(30)
    pilot_samples: int = count(2**17, 100)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        from sdp_bench.oracles.partitions.logits import pairwise_summary
        from sdp_bench.oracles.partitions.partition import ScoreDifferences

        cells = oracle.of_pilot(ScoreDifferences.from_samples, self.pilot_samples, bins=self.margin_bins)
        seed = oracle.key.seed("floor pairs")
        summary = pairwise_summary(oracle.samples, prediction.samples, cells, seed=seed)
        yield "largest", summary.largest
        yield "mean", summary.mean


@dataclass(frozen=True)
class SlicedTotalVariation(Metric):
    """Total variation along the worst direction of the whitened scores."""

    name = "tv_sliced"
    title = "Total variation along the worst direction"
    label = "sliced TV"
    about = (
        "Of whitened scores, less their common shift: the direction is chosen on one half of the samples and "
        "measured on the other."
    )
    decimals = 4
    whitens = True
    rank = 90

    margin_bins: int = count(30)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        from sdp_bench.oracles.partitions.logits import sliced_total_variation

        seed = oracle.key.seed("directions")
        yield (
            None,
            sliced_total_variation(oracle.samples, prediction.samples, bins=self.margin_bins, seed=seed),
        )

    def check(self, sampling: Sampling, samples: int) -> None:  # noqa: ARG002
        """Require at least four samples per bin."""
        if samples < 4 * self.margin_bins:
            raise UserError(
                f"{self.margin_bins} bins of a slice need at least {4 * self.margin_bins} samples, "
                f"got {samples}; raise --samples or lower --margin-bins"
            )


@dataclass(frozen=True)
class EnergyDistance(Metric):
    """Energy distance between scores without their common shift."""

    name = "energy"
    title = label = "Energy distance"
    about = (
        "2 E|X − Y| − E|X − X′| − E|Y − Y′| of the scores less their common shift: about 0 for one law only, "
        "but nearly blind to skewness."
    )
    unit = "output"
    needs = "mean"
    rank = 100

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        from sdp_bench.oracles.partitions.logits import energy_distance

        seed = oracle.key.seed("floor energy")
        yield None, energy_distance(oracle.samples, prediction.samples, seed=seed)


@dataclass(frozen=True)
class LogitBures(Metric):
    """Bures distance without the direction that a softmax ignores."""

    name = "bures_logits"
    title = "Bures distance between the moments"
    label = "Bures"
    about = (
        "W2 distance between the Gaussians with the predicted and with the true mean and covariance of the "
        "scores less their common shift, which a softmax does not see."
    )
    unit = "output"
    needs = "variance"
    rank = 110

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        import torch

        from sdp_bench.oracles.moments.moments import bures

        law = prediction.gaussian
        mean, covariance = law.mean.double(), law.covariance.double()
        centring = torch.eye(mean.shape[1], dtype=mean.dtype) - 1 / mean.shape[1]
        centred = unchecked(Gaussian, mean @ centring, centring @ covariance @ centring)
        yield None, bures(oracle.centred_moments, centred)
