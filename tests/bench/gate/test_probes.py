import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import sdp_ref as sr
from sdp_bench.bench.gate.cases import GateScope, probes
from sdp_bench.bench.gate.check import Options, check
from sdp_bench.bench.gate.predictions import GatePrediction, answers, drift
from sdp_bench.bench.gate.verdict import ALL_CASES, Status
from tests.bench.gate.gate_rules import baseline_of, few_cells

ALL = probes()
CHECK = Options(seed=7)
SCOPE = few_cells(inputs=1, probes=True)

PLUGIN = """
import torch
import sdp_ref as sr
from torch import nn

class Mine:
    name = "mine"

    def propagate(self, net, x):
        law = sr.propagate(net, x, rule={rule!r})
        if {when}:
            {then}
        return law
"""


@pytest.fixture
def changed(tmp_path):
    """GateVerdict on a rule that equals a built-in one except for a later change in some probes."""
    file = tmp_path / "mine.py"

    def judge(when, then, before="pass", rule="sdp"):
        file.write_text(PLUGIN.format(rule=rule, when=when, then=before))
        known = baseline_of(tmp_path / "ci.json", SCOPE, f"{file}:Mine")
        file.write_text(PLUGIN.format(rule=rule, when=when, then=then))
        return check(known, replace(CHECK, rules=(f"{file}:Mine",)), SCOPE).verdicts[0]

    return judge


def test_probes_cover_features_that_the_committed_nets_lack():
    modules = {type(module).__name__ for probe in ALL for module in probe.build().modules()}
    assert modules >= {"LeakyReLU", "GELU", "Sigmoid", "SiLU", "Tanh", "Conv2d", "MaxPool2d", "AvgPool2d"}
    laws = {type(probe.law) for probe in ALL}
    assert laws == {sr.Gaussian, sr.DiagonalGaussian, sr.Cauchy, sr.SymmetricStable}
    assert len({probe.key for probe in ALL}) == len({probe.name for probe in ALL}) == len(ALL)
    assert [probe.key for probe in GateScope.of_ci().probes] == [probe.key for probe in ALL]


def test_no_probe_is_degenerate():
    """Each has spread in both outputs, by simulation of the net itself where there are moments."""
    for probe in ALL:
        if isinstance(probe.law, sr.Gaussian | sr.DiagonalGaussian):
            law = sr.propagate(probe.build(), probe.law, rule="monte_carlo:samples=4000")
            correlation = law.covariance[0, 0, 1] / law.variance[0].prod().sqrt()
            assert (law.variance > 1e-5).all()
            assert abs(float(correlation)) < 0.999


@pytest.mark.rounding
def test_answers_are_those_of_the_rules():
    found = answers(sr.rule("sdp"), ALL)
    for probe in ALL:
        law = sr.propagate(probe.build(), probe.law, rule="sdp")
        answer = found[probe.key]
        assert np.array_equal(answer.mean, law.location[0].numpy())
        spread = law.covariance[0] if hasattr(law, "covariance") else law.scale[0] ** 2
        assert np.array_equal(answer.spread, spread.numpy())
    families = {probe.name: found[probe.key].family for probe in ALL}
    assert families["relu chain, Cauchy input"] == "Cauchy"
    assert families["relu chain, stable input"] == "stable, alpha 1.5"


def test_an_unsupported_net_is_reported():
    found = answers(sr.rule("dvia"), ALL)
    refused = {probe.name: found[probe.key].error for probe in ALL}
    assert refused["tanh chain"].startswith("UnsupportedError: rule 'dvia' does not support Tanh")
    assert refused["relu chain, Cauchy input"].startswith("UnsupportedError")
    assert refused["residual net"] == ""


def test_another_family_or_an_error_is_an_infinite_drift():
    law = sr.Cauchy(torch.zeros(1, 2).double(), torch.ones(1, 2).double())
    cauchy, stable = (
        GatePrediction.of(law),
        GatePrediction.of(sr.SymmetricStable(law.location, law.scale, 1.5)),
    )
    refused = GatePrediction(error="UnsupportedError: no")
    assert drift(cauchy, stable).size == math.inf
    assert drift(cauchy, refused).size == drift(refused, cauchy).size == math.inf
    assert drift(refused, GatePrediction(error="UnsupportedError: not so")).size == 0
    assert drift(refused, GatePrediction(error="ValueError: no")).size == math.inf
    wider = GatePrediction.of(sr.Cauchy(law.location, 1.01 * law.scale))
    assert drift(cauchy, wider).covariance == pytest.approx(1.01**2 - 1)


@pytest.mark.parametrize(
    ("when", "then", "cell"),
    [
        (
            "any(isinstance(m, nn.GELU) for m in net.modules())",
            "law = sr.Gaussian(law.mean, 1.005 * law.covariance)",
            "gelu chain",
        ),
        (
            "x.event_shape == (1, 4, 4)",
            "law = sr.Gaussian(law.mean + 0.01 * law.variance.sqrt(), law.covariance)",
            "convolutions and pools, image",
        ),
        (
            "isinstance(law, sr.Cauchy)",
            "law = sr.Cauchy(law.location, 1.01 * law.scale)",
            "relu chain, Cauchy input",
        ),
        (
            "isinstance(x, sr.SymmetricStable)",
            "raise sr.UnsupportedError('mine', 'stable input')",
            "relu chain, stable input",
        ),
    ],
)
def test_what_changes_in_one_probe_alone_stops(changed, when, then, cell):
    verdict = changed(when, then)
    found = [f for f in verdict.findings if f.status is not Status.UNCHANGED]
    assert {(f.cell, f.status) for f in found} == {(cell, Status.CHANGED), (ALL_CASES, Status.CHANGED)}
    assert verdict.status == "changed"


def test_a_rule_that_supports_more_than_before_stops_too(changed):
    refuse = "raise sr.UnsupportedError('mine', 'Cauchy input')"
    verdict = changed("isinstance(x, sr.Cauchy)", "pass", before=refuse)
    found, _ = verdict.having(Status.CHANGED)
    assert found.cell == "relu chain, Cauchy input"
    assert "does not support Cauchy input before, now a Cauchy law" in found.text


def test_a_rule_that_breaks_in_a_probe_is_a_failure(changed):
    verdict = changed("isinstance(x, sr.Cauchy)", "1 / 0")
    assert verdict.status == "failed"
    assert [f.text for f in verdict.having(Status.FAILED)] == ["ZeroDivisionError: division by zero"]


def test_weights_of_probes_do_not_depend_on_torchs_generator():
    before = torch.random.get_rng_state()
    first = [probe.key for probe in probes()]
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(99)
    assert [probe.key for probe in probes()] == first
    for probe in ALL:
        for value in probe.build().state_dict().values():
            assert torch.equal(value * 64, (value * 64).round())  # binary fractions
