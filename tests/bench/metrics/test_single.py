"""Total variation of single outputs: histograms by hand, and normal probabilities between the same edges."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from sdp_bench.bench.identity import OracleKey, Sampling
from sdp_bench.bench.metrics import metric
from sdp_bench.bench.metrics.oracle import Oracle, Prediction
from sdp_ref.laws import DiagonalGaussian, Gaussian

SAMPLES = 2**16


def measured(true_sds, sds, correlation=0.0, bins=10):
    true = torch.tensor([true_sds], dtype=torch.float64)
    law = DiagonalGaussian(torch.zeros_like(true), true**2)
    oracle = Oracle(
        nn.Identity(), law, OracleKey("net", "x", "noise", "mc", SAMPLES), Sampling(samples=SAMPLES)
    )
    sd = torch.tensor(sds, dtype=torch.float64)
    covariance = torch.outer(sd, sd) * (torch.eye(len(sds)) * (1 - correlation) + correlation)
    prediction = Prediction(Gaussian(law.mean, covariance[None]), oracle)
    ((_, estimate),) = metric(f"tv_single:bins={bins}").measure(oracle, prediction)
    return estimate, oracle.samples.numpy(), prediction.samples.numpy()


@pytest.mark.parametrize("bins", [2, 10, 37])
def test_it_is_the_mean_over_outputs_of_histograms_between_joint_extremes(bins):
    estimate, truth, predicted = measured([1.0, 2.0, 0.1], [1.5, 1.0, 0.1], bins=bins)
    by_output = []
    for true, other in zip(truth.T, predicted.T, strict=True):
        both = np.concatenate((true, other))
        counts = [np.histogram(each, bins, (both.min(), both.max()))[0] for each in (true, other)]
        by_output.append(np.abs(counts[0] - counts[1]).sum() / (2 * SAMPLES))
    assert estimate.value == pytest.approx(np.mean(by_output), abs=4 / SAMPLES)


def test_it_agrees_with_normal_probabilities_in_the_same_bins():
    estimate, truth, predicted = measured([1.0, 1.0], [2.0, 2.0])
    exact = []
    for true, other in zip(truth.T, predicted.T, strict=True):
        low, high = min(true.min(), other.min()), max(true.max(), other.max())
        inner = np.linspace(low, high, 11)[1:-1]
        masses = [np.diff(norm.cdf(inner, scale=scale), prepend=0, append=1) for scale in (1, 2)]
        exact.append(np.abs(masses[0] - masses[1]).sum() / 2)
    assert abs(estimate.value - np.mean(exact)) < 4 * estimate.stderr


def test_it_does_not_see_correlations_and_an_exact_rule_shows_the_floor():
    independent, *_ = measured([1.0, 1.0], [1.0, 1.0])
    dependent, *_ = measured([1.0, 1.0], [1.0, 1.0], correlation=0.9)
    for estimate in (independent, dependent):
        assert estimate.value < 2 * estimate.floor95
