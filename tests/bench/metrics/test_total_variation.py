import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from sdp_bench.bench.experiments.own_net import measures_for
from sdp_bench.bench.identity import OracleKey, Sampling
from sdp_bench.bench.metrics import metric
from sdp_bench.bench.metrics.oracle import Oracle, Prediction
from sdp_ref.laws import DiagonalGaussian, Gaussian

SAMPLES = 20_000


def oracle_of(sds):
    law = DiagonalGaussian(torch.zeros(1, len(sds)).double(), (sds**2)[None])
    key = OracleKey("net", f"{len(sds)}", "noise", "mc", SAMPLES)
    return Oracle(nn.Identity(), law, key, Sampling(samples=SAMPLES))


def principal(name, oracle, covariance):
    prediction = Prediction(Gaussian(oracle.law.mean, covariance[None]), oracle)
    ((_, estimate),) = metric(name, {"pilot_samples": SAMPLES}).measure(oracle, prediction)
    return estimate


@pytest.mark.slow
@pytest.mark.parametrize(("outputs", "least"), [(3, 0.65), (4, 0.9), (6, 0.9), (12, 0.9)])
def test_scales_wrong_by_ten_in_half_of_the_directions_are_seen(outputs, least):
    sds = torch.logspace(0, -3, outputs).double()
    oracle, name = oracle_of(sds), measures_for(outputs)[0][0]
    exact = principal(name, oracle, torch.diag(sds**2))
    assert exact.value < 1.1 * exact.floor
    wrong = sds.clone()
    wrong[-(outputs // 2) :] *= 10  # TV is .80 of three outputs, where it is one direction, and .984 of six
    assert principal(name, oracle, torch.diag(wrong**2)).value > least


def test_tv_headline_and_tv_principal_agree_for_up_to_three_outputs():
    for outputs in (1, 2, 3):
        sds = torch.logspace(0, -3, outputs).double()
        oracle, wrong = oracle_of(sds), torch.diag(1.2 * sds**2)
        tree = principal("tv_headline", oracle, wrong)
        along = principal("tv_principal", oracle, wrong)
        assert along.value == tree.value
        assert along.stderr == tree.stderr
        assert along.floor == pytest.approx(tree.floor, rel=0.02)  # each has draws of its own


SINGLE_SAMPLES = 2**16


def of_single_outputs(true_sds, sds, correlation=0.0, bins=10):
    true = torch.tensor([true_sds], dtype=torch.float64)
    law = DiagonalGaussian(torch.zeros_like(true), true**2)
    key = OracleKey("net", "x", "noise", "mc", SINGLE_SAMPLES)
    oracle = Oracle(nn.Identity(), law, key, Sampling(samples=SINGLE_SAMPLES))
    sd = torch.tensor(sds, dtype=torch.float64)
    covariance = torch.outer(sd, sd) * (torch.eye(len(sds)) * (1 - correlation) + correlation)
    prediction = Prediction(Gaussian(law.mean, covariance[None]), oracle)
    ((_, estimate),) = metric(f"tv_single:bins={bins}").measure(oracle, prediction)
    return estimate, oracle.samples.numpy(), prediction.samples.numpy()


@pytest.mark.parametrize("bins", [2, 10, 37])
def test_it_is_the_mean_over_outputs_of_histograms_between_joint_extremes(bins):
    estimate, truth, predicted = of_single_outputs([1.0, 2.0, 0.1], [1.5, 1.0, 0.1], bins=bins)
    by_output = []
    for true, other in zip(truth.T, predicted.T, strict=True):
        both = np.concatenate((true, other))
        counts = [np.histogram(values, bins, (both.min(), both.max()))[0] for values in (true, other)]
        by_output.append(np.abs(counts[0] - counts[1]).sum() / (2 * SINGLE_SAMPLES))
    assert estimate.value == pytest.approx(np.mean(by_output), abs=4 / SINGLE_SAMPLES)


def test_it_agrees_with_normal_probabilities_in_the_same_bins():
    estimate, truth, predicted = of_single_outputs([1.0, 1.0], [2.0, 2.0])
    exact = []
    for true, other in zip(truth.T, predicted.T, strict=True):
        low, high = min(true.min(), other.min()), max(true.max(), other.max())
        inner = np.linspace(low, high, 11)[1:-1]
        masses = [np.diff(norm.cdf(inner, scale=scale), prepend=0, append=1) for scale in (1, 2)]
        exact.append(np.abs(masses[0] - masses[1]).sum() / 2)
    assert abs(estimate.value - np.mean(exact)) < 4 * estimate.stderr


def test_it_does_not_see_correlations_and_an_exact_rule_shows_the_floor():
    independent, *_ = of_single_outputs([1.0, 1.0], [1.0, 1.0])
    dependent, *_ = of_single_outputs([1.0, 1.0], [1.0, 1.0], correlation=0.9)
    for estimate in (independent, dependent):
        assert estimate.value < 2 * estimate.floor95
