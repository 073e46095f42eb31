import dataclasses
import itertools
import re

import numpy as np
import pytest
import torch
from torch import nn

from sdp_bench.bench import metrics as registry
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.identity import OracleKey, Sampling
from sdp_bench.bench.metrics import metric, metrics, options
from sdp_bench.bench.metrics.oracle import Oracle, Prediction
from sdp_bench.bench.settings import Settings
from sdp_ref.laws import Cauchy, DiagonalGaussian, SymmetricStable

SPECS = tuple(metric(name).spec for name in metrics())


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_reads_back(spec):
    assert metric(spec).spec == spec
    assert metric(spec) == metric(spec)


def test_what_a_text_does_not_fix_comes_from_the_options_of_a_run():
    options = {"cells": 64, "pilot_samples": 1000, "w1_points": 300}
    assert metric("tv_headline", options).spec == "tv_headline:cells=64,pilot_samples=1000"
    assert metric("tv_headline:cells=128", options).spec == "tv_headline:cells=128,pilot_samples=1000"
    assert metric("w1", options).spec == "w1:w1_points=300,w1_pairs=8"
    assert metric("bures", options).spec == "bures"


def test_settings_take_the_options_of_all_metrics_and_no_others():
    defaults = {f.name: f.default for kind in metrics().values() for f in dataclasses.fields(kind)}
    assert options() == set(defaults)
    settings = Settings().but(**defaults)
    assert settings.metric_options == defaults
    assert [metric(name, settings.metric_options).spec for name in metrics()] == [
        metric(name, Settings().metric_options).spec for name in metrics()
    ]
    with pytest.raises(TypeError, match="no such settings: colour"):
        Settings().but(colour="red")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tv_headlines", "metric 'tv_headlines' not found; did you mean 'tv_headline'?"),
        ("w1:points=3", "metric 'w1' has no option 'points'; it takes w1_points, w1_pairs"),
        ("energy:seed=3", "metric 'energy' has no option 'seed'; it takes none"),
        ("w1:w1_points=many", "metric 'w1': 'many' is no value of w1_points"),
        ("w1:w1_pairs=1", "w1_pairs must be at least 2, got 1"),
        ("tv_headline:cells=500", "cells must be a power of two >= 2, got 500"),
        ("tv_paper:bin_range=sd", "unknown bin range 'sd'; choose from quantiles, minmax, joint"),
    ],
)
def test_an_invalid_metric_spec_is_refused_in_one_line(text, message):
    with pytest.raises(UserError, match=message):
        metric(text)


@pytest.mark.parametrize(
    ("text", "samples", "message"),
    [
        ("tv_headline:cells=1024", 1000, "a pilot of 1000 samples cannot fix 1024 cells"),
        ("tv_joint:pilot_samples=100", 10**6, "a pilot of 100 samples cannot fix 512 cells"),
        ("w1", 31_999, "needs at least 32000 samples, got 31999"),
        ("w1_certified:certified_points=2000", 31_999, "needs at least 32000 samples"),
        ("tv_sliced", 119, "30 bins of a slice need at least 120 samples, got 119"),
    ],
)
def test_too_few_samples_are_refused_beforehand(text, samples, message):
    with pytest.raises(UserError, match=message):
        metric(text).check(Sampling(samples=samples), samples)


def test_a_ratio_is_as_wrong_half_as_twice():
    ratio, distance = metric("std_ratio"), metric("w1")
    values = np.array([0.5, 1.0, 2.0, 0.0])
    assert ratio.score(values, np.ones(4)) == pytest.approx([np.log(2), 0, np.log(2), np.inf])
    assert distance.score(values, np.ones(4)) is values
    assert ratio.score_error(values[:3], np.full(3, 0.1)) == pytest.approx([0.2, 0.1, 0.05])
    floor = np.ones(4), np.full(4, 1.1)
    assert ratio.indistinguishable(np.array([0.89, 0.91, 1.09, 1.11]), *floor).tolist() == [0, 1, 1, 0]
    assert distance.indistinguishable(np.array([0.89, 0.91, 1.09, 1.11]), *floor).tolist() == [1, 1, 1, 0]


LAWS = {
    "gaussian": DiagonalGaussian(torch.zeros(1, 2), torch.ones(1, 2)),
    "stable": SymmetricStable(torch.zeros(1, 2), torch.ones(1, 2), 1.5),
    "cauchy": Cauchy(torch.zeros(1, 2), torch.ones(1, 2)),
}
HEAVY = {"": (), "mean": ("cauchy",), "variance": ("stable", "cauchy")}


@pytest.mark.parametrize("name", SPECS)
def test_a_metric_refuses_the_laws_that_lack_what_it_needs_and_no_others(name):
    definition = metric(name)
    for true, predicted in itertools.product(LAWS, LAWS):
        if definition.name == "log_score" and predicted == "stable":
            continue  # which has no density: see test_scores.py
        key = OracleKey("net", "input", true, "mc", 1000)
        oracle = Oracle(nn.Identity(), LAWS[true], key, Sampling(samples=1000))
        prediction = Prediction(LAWS[predicted], oracle)
        heavy = [law for law in (true, predicted) if law in HEAVY[definition.needs]]
        reason = definition.refusal(oracle, prediction)
        assert bool(reason) == bool(heavy)
        if heavy:
            law = {"cauchy": "a Cauchy law", "stable": "a stable law with alpha 1.5"}[heavy[0]]
            assert reason.startswith(f"a finite {definition.needs} is needed, which {law} has not")
            with pytest.raises(ValueError, match=re.escape(reason)):
                list(definition.measure(oracle, prediction))


class Point:
    """An entry point as an installed package has one."""

    name = "mine"
    group = "sdp_bench.metrics"
    value = "package.module:Mine"
    dist = None

    def __init__(self, made):
        self.load = made


def test_an_installed_package_may_bring_a_metric(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Mine(metrics()["bures"]):
        name = "mine"
        bins: int = 3

    monkeypatch.setattr(registry, "installed", lambda group, taken=(): {"mine": Point(lambda: Mine)})
    assert metric("mine:bins=4").bins == 4
    assert metric(metric("mine:bins=4").spec) == Mine(4)  # a record leads back to it
    with pytest.raises(UserError, match=r"choose from tv_headline.*, mine$"):
        metric("other")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: 1 / 0, "cannot be loaded: ZeroDivisionError"),
        (lambda: object, "package.module:Mine is not a subclass of Metric"),
        (lambda: metrics()["bures"], "package.module:Mine is not a subclass of Metric with the name 'mine'"),
    ],
)
def test_an_entry_point_that_is_not_a_metric_is_refused_in_one_line(monkeypatch, made, message):
    monkeypatch.setattr(registry, "installed", lambda group, taken=(): {"mine": Point(made)})
    with pytest.raises(UserError, match=message) as raised:
        metric("mine")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("spec", SPECS)
def test_a_million_samples_are_enough_for_every_metric(spec):
    metric(spec).check(Sampling(), 10**6)


def test_tables_have_one_order():
    ranks = [kind.rank for kind in metrics().values()]
    assert ranks == sorted(set(ranks))


def test_a_metric_may_have_a_separate_reason_to_refuse():
    class Picky(metrics()["tv_class"]):
        def refusal(self, oracle, prediction):
            return "not on a Monday"

    with pytest.raises(ValueError, match=r"^not defined: not on a Monday$"):
        list(Picky().measure(None, None))
