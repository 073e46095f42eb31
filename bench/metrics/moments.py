"""Distances between the predicted and the true mean and covariance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_bench.bench.metrics.base import Measurements, Metric, RatioMetric
from sdp_bench.oracles.estimate.estimate import Estimate

if TYPE_CHECKING:
    from sdp_bench.bench.metrics.oracle import Oracle
    from sdp_bench.bench.metrics.prediction import Prediction


@dataclass(frozen=True)
class StandardDeviationRatio(RatioMetric):
    """Predicted over true standard deviation of each output."""

    name = "std_ratio"
    title = "Ratio of standard deviations, predicted over true"
    label = "std ratio"
    about = "One for each output; 1 is right, below 1 is overconfident."
    published = "std_ratio"
    single = True
    needs = "variance"
    rank = 190

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        from sdp_bench.oracles.moments.moments import std_ratio

        for output, estimate in enumerate(std_ratio(oracle.moments, prediction.marginals)):
            yield str(output), estimate


@dataclass(frozen=True)
class BuresDistance(Metric):
    """Bures distance between mean and covariance, predicted and true."""

    name = "bures"
    title = "Bures distance between the moments"
    label = "Bures"
    about = "W2 distance between the Gaussians with the predicted and with the true mean and covariance."
    unit = "output"
    needs = "variance"
    rank = 200
    primary = True

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        from sdp_bench.oracles.moments.moments import bures

        yield None, bures(oracle.moments, prediction.gaussian)


@dataclass(frozen=True)
class GaussianDivergence(Metric):
    """Kullback-Leibler divergence of the Gaussian with the predicted moments."""

    name = "gaussian_kl"
    title = "Gaussian Kullback-Leibler divergence between the moments"
    label = "Gaussian KL"
    about = "Infinite where the predicted covariance misses a direction that the truth has."
    unit = "nat"
    whitens = True
    needs = "variance"
    rank = 210

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        from sdp_bench.oracles.moments.moments import gaussian_kl

        yield None, gaussian_kl(oracle.moments, prediction.gaussian)


@dataclass(frozen=True)
class SmallestEigenvalue(Metric):
    """Smallest eigenvalue of the predicted covariance, which shows whether it is one; needs no oracle."""

    name = "min_eigenvalue"
    title = "Smallest eigenvalue of the predicted covariance"
    label = "smallest eigenvalue"
    about = "Relative to the largest; below zero the prediction is no covariance."
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
