"""Predictions in use: proper scores, intervals, tail probabilities, and the predicted class."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sdp_ref.errors import UndefinedError
from sdp_ref.lazy import deferred

from ...oracles.estimate.estimate import Estimate
from .base import Measurements, Metric, RatioMetric, TwoSidedMetric, by_output, count

if TYPE_CHECKING:
    from .oracle import Oracle, Prediction

intervals = deferred("sdp_bench.oracles.scores.intervals")
proper = deferred("sdp_bench.oracles.scores.proper")
quantiles = deferred("sdp_bench.oracles.partitions.quantiles")


class MovedClass(Metric):
    """1 if the largest predicted location is another output than the largest without noise, otherwise 0.

    It shows how propagation changes the accuracy of a net that was trained without noise (Section 2 of the
    paper: moment matching changes the mean).
    """

    name = "moved_class"
    title = "Inputs put into another class than by a plain pass"
    label = "moved to another class"
    about = (
        "Share of inputs for which the output with the largest predicted location differs from the largest "
        "output of the net without noise. A correct prediction can differ too, because noise changes the "
        "mean."
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


class Coverage(TwoSidedMetric):
    """True probability between the predicted quantiles at (1 - level) / 2 and (1 + level) / 2."""

    name = "coverage"
    title = "Coverage of predicted intervals"
    label = "coverage"
    about = (
        "True probability of the central 50 %, 90 % and 95 % interval of the prediction, for each output. "
        "The level itself is perfect; below it the prediction is overconfident."
    )
    single = True
    rank = 260
    seconds_per_sample = 0.3e-6  # for all metrics of this module: they share the sorted samples

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        return _by_level(intervals.coverage, oracle, prediction)


class IntervalWidth(RatioMetric):
    """Predicted over true distance between the quantiles at (1 - level) / 2 and (1 + level) / 2."""

    name = "interval_width"
    title = "Width of intervals, predicted over true"
    label = "interval width"
    about = (
        "Predicted over true width of the central 50 %, 90 % and 95 % interval of each output; 1 is "
        "perfect. An interval of the true width can be shifted, which its coverage shows."
    )
    single = True
    rank = 270

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        return _by_level(quantiles.interval_width_ratio, oracle, prediction)


def _by_level(compared: Callable[..., Any], oracle: Oracle, prediction: Prediction) -> Measurements:
    """Yield one estimate per level and output, labelled ``0 90%``."""
    for level in LEVELS:
        for output, estimate in enumerate(compared(oracle.quantiles, prediction.quantiles, level)):
            yield f"{output} {level:.0%}", estimate


@dataclass(frozen=True)
class TailProbabilities(RatioMetric):
    """P'(y > t) / P(y > t) for each output and threshold t, with P' predicted and P true."""

    name = "tails"
    version = 2
    title = "Tail probabilities, predicted over true"
    label = "tails"
    about = (
        "Predicted over true P(yⱼ > t), for each output, at the thresholds t with true tail probabilities "
        "of 0.1, 0.01, 0.001 and 0.0001 (quantiles of a pilot sample), if at least ten samples exceed "
        "them. 1 is perfect, 0.5 is half of the true probability, and the distance from 1 is the relative "
        "error. Predicted probabilities are exact for distributions with a formula, otherwise estimated "
        "from samples."
    )
    single = True
    rank = 280

    pilot_samples: int = count(2**17, 100)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        """Yield one estimate per probability and output, labelled ``0 p=0.001``."""
        tails = oracle.of_pilot(intervals.Tails.from_samples, self.pilot_samples, samples=oracle.key.samples)
        predicted, draws = prediction.survival(tails.thresholds)
        ratios = tails.ratios(oracle.quantiles, predicted, draws, seed=oracle.key.seed("floor tails"))
        for probability, of_outputs in zip(tails.probabilities, ratios, strict=True):
            for output, estimate in enumerate(of_outputs):
                yield f"{output} p={probability:g}", estimate


@dataclass(frozen=True)
class LogScore(Metric):
    """Mean of -log q(y) in nats, over the first `score_samples` true samples y."""

    name = "log_score"
    title = "Log score"
    label = "log score"
    about = (
        "Mean of − log q(y) over true samples y, with the predicted density q. This is the unknown entropy "
        "of the truth plus the Kullback–Leibler divergence, so there is no perfect value and no floor. "
        "Differences between rules are differences of the divergence. Laws without a density (samples, "
        "quantiles, a singular covariance) have no log score."
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


class BrierScore(Metric):
    """|p - q|^2 with the true and the predicted probabilities p and q of the classes."""

    name = "brier"
    title = "Excess Brier score of the class"
    label = "Brier score"
    about = (
        "Excess of the Brier score of the predicted class probabilities q over that of the true ones p: "
        "|p − q|². 0 is perfect, and the unbiased estimate can be slightly negative. n Monte Carlo samples "
        "have the mean (1 − |p|²) / n. Predicted probabilities are integrated if the distribution is "
        "Gaussian or a mixture of Gaussians, and otherwise estimated from samples."
    )
    decimals = 6
    rank = 55
    seconds_per_sample = 0.01e-6

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        import numpy as np

        counts = np.bincount(oracle.samples.argmax(1).numpy(), minlength=oracle.samples.shape[1])
        predicted, draws = prediction.class_probabilities
        yield None, proper.brier_excess(counts, predicted, draws, seed=oracle.key.seed("floor brier"))


class ContinuousRankedProbabilityScore(Metric):
    """Integral of (F - F')^2 in units of outputs, with true F and predicted F', by output."""

    name = "crps"
    title = "Excess CRPS"
    label = "CRPS"
    about = (
        "Excess of the mean continuous ranked probability score over that of the truth, for each output: "
        "the integral of (F − G)², with the true and the predicted distribution functions F and G "
        "(Cramér’s distance). 0 is perfect. The floor is positive because both laws are sampled."
    )
    unit = "output"
    component = "output"
    single = True
    needs = "mean"
    rank = 240
    seconds_per_sample = 1e-6

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        seed = oracle.key.seed("floor crps")
        return by_output(proper.crps_excess(oracle.quantiles, prediction.quantiles, seed=seed))


@dataclass(frozen=True)
class EnergyScore(Metric):
    """E|X - Y| - E|X - X'| / 2 - E|Y - Y'| / 2 from `energy_points` samples of each law."""

    name = "energy_score"
    title = "Excess energy score"
    label = "energy score"
    about = (
        "Excess of the mean energy score over that of the truth, for all outputs jointly: E|X − Y| − ½ E|X "
        "− X′| − ½ E|Y − Y′|, half of the energy distance. 0 is perfect, and the estimate of an exact rule "
        "can be slightly negative."
    )
    unit = "output"
    needs = "mean"
    rank = 250

    energy_points: int = count(2000, 4)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        seed = oracle.key.seed("floor energy")
        yield None, proper.energy_excess(oracle.samples, prediction.samples, self.energy_points, seed=seed)

    def seconds(self, samples: int, rules: int) -> float:  # noqa: ARG002
        """Estimate the time: 0.3 s at 2000 points a side, growing as n^2."""
        return 0.3 * rules * (self.energy_points / 2000) ** 2
