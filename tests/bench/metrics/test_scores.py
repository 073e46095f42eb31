import math

import pytest
import torch
from torch import distributions as td
from torch import nn

import sdp_ref as sr
from sdp_bench.bench.errors import RefusedError
from sdp_bench.bench.identity import OracleKey, Sampling
from sdp_bench.bench.metrics import metric, metrics
from sdp_bench.bench.metrics.oracle import Oracle, Prediction

NET = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).requires_grad_(False)
MEAN, SCALE = torch.tensor([[0.3, -0.2]]).double(), torch.tensor([[0.4, 0.3]]).double()
LEVELS = torch.linspace(0.005, 0.995, 199).double()


def oracle(samples=2000, name="input"):
    generator = torch.Generator().manual_seed(1)
    for parameter in NET.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    law = sr.DiagonalGaussian(torch.zeros(1, 3), torch.ones(1, 3))
    return Oracle(NET, law, OracleKey("net", name, "gaussian", "mc", samples), Sampling(samples=samples))


class Sampled:
    def sample(self, samples, generator):
        return MEAN + SCALE * torch.randn(samples, 1, 2, generator=generator).double()


def gaussian():
    return sr.Gaussian(MEAN, torch.diag_embed(SCALE.square()))


LAWS = {
    "Gaussian": gaussian,
    "singular": lambda: sr.Gaussian(MEAN, torch.ones(1, 2, 2).double()),
    "mixture": lambda: sr.Mixture.of(torch.full((1, 2), 0.5).double(), [gaussian(), gaussian()]),
    "draws": lambda: sr.Empirical(gaussian().sample(300).transpose(0, 1)),
    "quantiles": lambda: sr.Quantiles(
        LEVELS, MEAN.unsqueeze(1) + SCALE.unsqueeze(1) * torch.special.ndtri(LEVELS)[None, :, None]
    ),
    "Laplace": lambda: sr.law_of(td.Independent(td.Laplace(MEAN, SCALE), 1)),
    "Cauchy": lambda: sr.Cauchy(MEAN, SCALE),
    "stable": lambda: sr.SymmetricStable(MEAN, SCALE, 1.5),
    "transformed": lambda: sr.law_of(
        td.TransformedDistribution(td.Independent(td.Normal(MEAN, SCALE), 1), [td.ExpTransform()])
    ),
    "sampled": lambda: sr.law_of(Sampled()),
}
SMALL = {
    "cells": 16,
    "pilot_samples": 500,
    "w1_points": 100,
    "w1_pairs": 2,
    "certified_points": 100,
    "margin_bins": 10,
    "bins": 4,
    "output_bins": 10,
    "difference_bins": 10,
    "energy_points": 200,
}


@pytest.mark.parametrize("name", LAWS)
def test_every_metric_measures_every_law_or_refuses_it_by_name(name):
    """Never an AttributeError; and laws that lack the same thing are refused in the same words."""
    truth, law = oracle(), LAWS[name]()
    prediction = Prediction(law, truth, passes=lambda: 11.0)
    refused = {}
    for metric_name in metrics():
        definition = metric(metric_name, SMALL)
        try:
            estimates = dict(definition.measure(truth, prediction))
        except RefusedError as error:
            refused.setdefault(str(error), set()).add(metric_name)
            continue
        assert estimates
        assert not any(math.isnan(estimate.value) for estimate in estimates.values())
    assert all(law.described in reason or "Gaussian" in reason for reason in refused)
    assert len(refused) <= {"quantiles": 2, "Cauchy": 2, "stable": 2, "sampled": 3, "transformed": 2}.get(
        name, 1
    )
    density = {"Gaussian", "mixture", "Laplace", "Cauchy", "transformed"}
    assert ("log_score" in set().union(*refused.values())) == (name not in density)


def test_differences_of_log_scores_are_differences_of_divergence():
    """Of samples of a Gaussian, whose divergences are known."""
    truth = oracle(40_000)
    law = gaussian()
    truth.samples = law.sample(40_000, torch.Generator().manual_seed(0))[:, 0]
    wide = sr.Gaussian(MEAN, 2 * law.covariance)
    of_truth = dict(metric("log_score").measure(truth, Prediction(law, truth)))[None]
    other = dict(metric("log_score").measure(truth, Prediction(wide, truth)))[None]
    assert of_truth.value == pytest.approx(float(law.to_torch().entropy()), abs=4 * of_truth.stderr)
    assert other.value - of_truth.value == pytest.approx(math.log(2) - 0.5, abs=0.02)


def test_tails_are_exact_where_the_law_tells_them():
    truth = oracle(20_000)
    far = sr.DiagonalGaussian(MEAN - 100 * SCALE, SCALE.square())
    ratios = dict(metric("tails", {"pilot_samples": 10_000}).measure(truth, Prediction(far, truth)))
    assert set(ratios) == {f"{output} p={p}" for output in (0, 1) for p in (0.1, 0.01, 0.001)}
    assert all(estimate.value < 1e-300 for estimate in ratios.values())
    again = Prediction(None, truth, lambda: truth.redrawn("again").double())
    counted = dict(metric("tails", {"pilot_samples": 10_000}).measure(truth, again))
    assert all(estimate.stderr > ratios["0 p=0.1"].stderr for estimate in counted.values())


DRAWS = 200
ALL = (
    "coverage",
    "bures",
    "energy_score",
    "crps",
    "std_ratio",
    "gaussian_kl",
    "tv_class",
    "quantile_mean",
    "interval_width",
)


def floors(name, shift, repeats):
    """Values of one component of rules of few draws, and whether they are told from an exact one."""
    distinguished = []
    for repeat in range(repeats):
        truth = oracle(1000, f"input {repeat}")
        drawn = truth.redrawn("a rule", "mc", DRAWS).double() + shift
        estimates = dict(metric(name, SMALL).measure(truth, Prediction(sr.Empirical(drawn[None]), truth)))
        estimate = next(iter(estimates.values()))
        distinguished.append(
            not metric(name).indistinguishable(estimate.value, estimate.floor, estimate.floor95)
        )
    return sum(distinguished)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_an_exact_rule_with_few_draws_is_above_the_limit_in_one_of_twenty(name):
    """As often as three standard deviations of the count allow, and a half: values are not quite normal."""
    repeats = 150
    expected = 0.05 * repeats
    assert floors(name, 0.0, repeats) <= 1.5 * expected + 3 * math.sqrt(0.0475 * repeats)


@pytest.mark.parametrize("name", ["crps", "bures", "quantile_mean"])
def test_a_wrong_rule_with_few_draws_is_reported(name):
    assert floors(name, 0.5, 5) == 5


def test_weights_count_and_other_laws_keep_their_floor():
    truth = oracle(1000)
    drawn = truth.redrawn("a rule", "mc", DRAWS).double()[None]
    weights = torch.ones(1, DRAWS).double()
    weights[:, : DRAWS // 2] = 1e-6
    few = sr.Empirical(drawn, weights / weights.sum())

    def floor(law):
        return dict(metric("crps").measure(truth, Prediction(law, truth)))["0"].floor

    plain = floor(gaussian())
    assert plain == next(iter(metric("crps").estimates(truth, Prediction(gaussian(), truth))))[1].floor
    assert 3 * plain < floor(sr.Empirical(drawn)) < 0.8 * floor(few)


def test_the_class_of_a_location_is_held_against_the_plain_pass():
    truth = oracle(1000)
    with torch.no_grad():
        plain = truth.net(truth.law.location)[0]
    best = int(plain.argmax())
    for largest in range(len(plain)):
        mean = torch.zeros(1, len(plain)).index_fill(1, torch.tensor([largest]), 1e-6)
        predicted = Prediction(sr.DiagonalGaussian(mean, torch.ones_like(mean)), truth)
        ((component, moved),) = metric("moved_class").measure(truth, predicted)
        assert component is None
        assert moved.value == (largest != best)
    heavy = Prediction(sr.Cauchy(plain[None], torch.ones(1, len(plain))), truth)  # it has no mean
    ((_, moved),) = metric("moved_class").measure(truth, heavy)
    assert moved.value == 0.0


def test_the_brier_score_uses_integrated_probabilities_and_counts_those_of_other_laws():
    truth = oracle(20_000)
    exact = Prediction(gaussian(), truth)
    probabilities, draws = exact.class_probabilities
    assert draws is None
    assert probabilities.sum() == pytest.approx(1)
    moments = Prediction(None, truth, lambda: truth.redrawn("again").double())
    counted, draws = moments.class_probabilities
    assert draws == 20_000
    ((component, score),) = metric("brier").measure(truth, moments)
    assert component is None
    assert score.indistinguishable
    p = torch.bincount(truth.samples.argmax(1), minlength=len(counted)) / 20_000
    certain = sr.DiagonalGaussian(
        1e9 * torch.eye(len(counted))[:1].double(), torch.ones(1, len(counted)).double()
    )
    ((_, wrong),) = metric("brier").measure(truth, Prediction(certain, truth))
    expected = (1 - p[0]) ** 2 + p[1:].square().sum()
    assert wrong.value == pytest.approx(float(expected), abs=1e-3)
    assert not wrong.indistinguishable
