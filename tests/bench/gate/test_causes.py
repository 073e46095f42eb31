"""Why a rule does not pass, in one line."""

import json
from dataclasses import replace

import pytest

from sdp_bench.bench.gate import render
from sdp_bench.bench.gate.causes.traits import shared, traits
from sdp_bench.bench.gate.check import Options, check
from sdp_bench.bench.gate.comparisons.speed import Timing
from sdp_bench.bench.gate.verdict import What
from tests.bench.gate.gate_rules import Operations, baseline_of, few_cells, write_rule

CHECK = Options(seed=7, speed=False)
SCOPE = few_cells(sigmas=(0.1, 10.0), inputs=1, samples=2**13, probes=True)
NUMBER = len(SCOPE.places)

PLUGIN = """
import torch
import sdp_ref as sr
from torch import nn

class Mine:
    name = "mine"

    def propagate(self, net, x):
        law = sr.propagate(net, x, rule="sdp")
        if isinstance(law, sr.Gaussian):
            mean, covariance, deviation = law.mean, law.covariance, law.variance.sqrt()
            kinds = {{type(module) for module in net.modules()}}
            if {when}:
                {change}
            law = sr.Gaussian(mean, covariance)
        return law
"""


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Baseline of the rule as it should be."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(PLUGIN.format(when="True", change="pass"))
    return baseline_of(folder / "ci.json", SCOPE, f"{folder / 'mine.py'}:Mine")


@pytest.fixture
def cause(tmp_path, known):
    """Why a rule does not pass that was changed."""

    def judge(change, when="True"):
        (tmp_path / "mine.py").write_text(PLUGIN.format(when=when, change=change))
        (verdict,) = check(known, replace(CHECK, rules=(f"{tmp_path / 'mine.py'}:Mine",)), SCOPE).verdicts
        (found,) = verdict.causes
        assert found.subject == "mine"
        return found

    return judge


EVERYWHERE = f"in {NUMBER - 2} of {NUMBER} cells"  # but for the laws without moments


@pytest.mark.parametrize(
    ("change", "what", "text"),
    [
        (
            "covariance = 1.02 * covariance",
            What.COVARIANCE,
            f"covariance x 1.02 {EVERYWHERE}, mean unchanged",
        ),
        ("covariance = 0.5 * covariance", What.COVARIANCE, f"covariance x 0.5 {EVERYWHERE}, mean unchanged"),
        (
            "mean = 1.05 * mean",
            What.MEAN,
            f"mean x 1.05 in {NUMBER - 3} of {NUMBER} cells, covariance unchanged",  # nor at sigma 1000
        ),
        ("mean = mean + 0.5", What.MEAN, f"mean +0.5 {EVERYWHERE}, covariance unchanged"),
        (
            "mean = mean - 0.2 * deviation",
            What.MEAN,
            f"mean -0.2 standard deviations {EVERYWHERE}, covariance unchanged",
        ),
        (
            "mean, covariance = 3 * mean, 25 * covariance",
            What.COVARIANCE,
            f"mean x 3, covariance x 25 {EVERYWHERE}",
        ),
        (
            "covariance = torch.diag_embed(law.variance)",
            What.DIAGONAL,
            f"off-diagonals of the covariance lost {EVERYWHERE}, mean unchanged",
        ),
        (
            "covariance = torch.diag_embed(1.1 * law.variance)",
            What.DIAGONAL,
            f"off-diagonals of the covariance lost, variances x 1.1 {EVERYWHERE}, mean unchanged",
        ),
    ],
)
def test_a_simple_change_is_told_by_its_kind_and_size(cause, change, what, text):
    found = cause(change)
    assert (found.what, found.text) == (what, text)


def test_a_change_without_a_common_form_is_told_by_its_size(cause):
    found = cause("mean, covariance = mean.square(), covariance @ covariance")
    assert found.what is What.EVERYTHING
    assert "by no common factor or constant, covariance changed by up to" in found.text


@pytest.mark.parametrize(
    ("when", "where"),
    [
        ("nn.GELU in kinds", f"in 1 of {NUMBER} cells, those with GELU"),
        ("nn.Tanh in kinds", f"in 2 of {NUMBER} cells, those with Tanh"),
        (
            "nn.MaxPool2d in kinds",
            "those with max pooling, average pooling",
        ),
        ("isinstance(x, sr.Gaussian)", f"in 8 of {NUMBER} cells, those with correlated input"),
        ("50 < x.variance.max() < 1e4", f"in 1 of {NUMBER} cells, those with sigma 10"),
        ("x.dimension == 4", f"in 2 of {NUMBER} cells, those with 1 hidden layer, committed net"),
        ("nn.ReLU not in kinds", f"in 7 of {NUMBER} cells, those with no ReLU"),
        ("isinstance(x, sr.Gaussian) and nn.Tanh in kinds", "those with Tanh and correlated input"),
        ("nn.GELU in kinds or nn.MaxPool2d in kinds", "(gelu chain; convolutions and pools, image)"),
    ],
)
def test_what_the_changed_cells_share_is_named(cause, when, where):
    found = cause("covariance = 1.02 * covariance", when)
    assert where in found.text


def test_a_refusal_is_told(cause):
    found = cause("raise sr.UnsupportedError('mine', 'GELU')", "nn.GELU in kinds")
    assert (found.what, found.text) == (What.LAW, f"refuses now in 1 of {NUMBER} cells, those with GELU")


def test_traits_are_those_of_the_net_and_its_input():
    cell = next(iter(SCOPE.cells.values()))
    assert traits(cell) == ("ReLU", "sigma 0.1", "1 hidden layer", "committed net")
    probe = {probe.name: probe for probe in SCOPE.probes}["tanh chain, correlated input"]
    assert traits(probe) == ("Tanh", "correlated input", "probe net")
    assert shared([], [cell]) == shared([cell], []) == ""


def test_all_outputs_tell_the_cause_in_the_same_words(tmp_path, known):
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN.format(when="True", change="covariance = 1.02 * covariance"))
    outcome = check(known, replace(CHECK, rules=(f"{file}:Mine",)), SCOPE, file=tmp_path / "ci.json")
    text = f"covariance x 1.02 {EVERYWHERE}, mean unchanged"
    accept = f"sdp-bench check --baseline {tmp_path / 'ci.json'} --rules {file}:Mine --update --no-speed"
    lines = render.text(outcome).splitlines()
    told = lines.index(f"mine: {text}; accept with: {accept}")
    assert told < lines.index("accuracy:")
    summary = render.markdown(outcome)
    shared_with_others = accept.replace(f"{tmp_path}/", "")  # no folder of this machine
    assert summary.index(f"- `mine`: {text}; accept with: `{shared_with_others}`") < summary.index("| rule |")
    (plain,) = json.loads(json.dumps(outcome.as_dict()))["causes"]
    assert (plain["subject"], plain["what"]) == ("mine", ["covariance"])
    assert (plain["text"], plain["accept"]) == (text, accept)
    assert plain["numbers"] == {"covariance factor": pytest.approx(1.02)}


@pytest.mark.slow
def test_speed_alone_is_told_as_such(tmp_path):
    scope, file = few_cells(inputs=1), tmp_path / "mine.py"

    def timing(now):
        return Timing(now, rounds=2, rounds_again=2, cpu="abacus")

    with Operations() as now:
        address = write_rule(file, "marginal_sdp", times=2)
        known = baseline_of(tmp_path / "ci.json", scope, address, timing=timing(now))
        write_rule(file, "marginal_sdp", times=3)
        slower = check(known, Options((address,), seed=7), scope, timing=timing(now))
        write_rule(file, "marginal_sdp", times=3, scale=1.1)
        both = check(known, Options((address,), seed=7), scope, timing=timing(now))
    (told,) = slower.told
    assert told.text == "speed only: slower, 1.50 times the ratio, on 1 of 1 net"
    assert told.accept.endswith("mine.py:Mine --update --no-accuracy")
    (told,) = both.told
    changed = "covariance x 1.1 in 1 of 1 cell, mean unchanged"
    assert told.text == f"{changed}; slower, 1.50 times the ratio, on 1 of 1 net"
    assert told.accept.endswith("mine.py:Mine --update")
