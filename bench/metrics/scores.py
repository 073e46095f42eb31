"""Proper scores of a predicted law at draws of the true one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_bench.bench.metrics.base import Measurements, Metric, count
from sdp_ref.errors import UndefinedError

if TYPE_CHECKING:
    from sdp_bench.bench.metrics.oracle import Oracle
    from sdp_bench.bench.metrics.prediction import Prediction


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
        from sdp_bench.oracles.scores.proper import log_score

        yield None, log_score(prediction.log_prob(oracle.samples[: self.score_samples]))


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
        from sdp_bench.oracles.scores.proper import crps_excess

        seed = oracle.key.seed("floor crps")
        for output, estimate in enumerate(crps_excess(oracle.quantiles, prediction.quantiles, seed=seed)):
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
        from sdp_bench.oracles.scores.proper import energy_excess

        seed = oracle.key.seed("floor energy")
        yield None, energy_excess(oracle.samples, prediction.samples, self.energy_points, seed=seed)

    def seconds(self, samples: int, rules: int) -> float:  # noqa: ARG002
        """Estimate the time: 0.3 s at 2000 points a side, growing as n^2."""
        return 0.3 * rules * (self.energy_points / 2000) ** 2
