"""Fingerprints of measurements: each by its own rule and metric, and all that runs for it counts."""

import contextlib
import functools
import itertools
import json
import os
import subprocess
import sys
import types

import pytest
import torch

import sdp_ref
from sdp_bench.bench.experiments import fingerprints, predict
from sdp_bench.bench.gate.probes import probes
from sdp_bench.bench.identity import keys
from sdp_bench.bench.identity.fingerprint import PACKAGES, closure, reached
from sdp_bench.bench.identity.keys import OracleKey
from sdp_bench.bench.metrics import metric as metric_of
from sdp_bench.bench.metrics import metrics, oracle
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.references import references
from sdp_bench.bench.settings import Settings
from sdp_bench.oracles.moments import moments
from sdp_bench.oracles.transport import wasserstein
from sdp_ref.activations import activation
from sdp_ref.laws import DiagonalGaussian
from sdp_ref.rules import FullCovarianceRule

RULES = (*sdp_ref.rules(), "monte_carlo:samples=10,sampler=sobol")
SMALL = Settings().but(samples=2**10, pilot_samples=2**10, w1_points=100, certified_points=100, cells=16)


@pytest.fixture(scope="module")
def rules_before():
    """Fingerprints of all rules while nothing is changed."""
    return of_rules()


@pytest.fixture(scope="module")
def metrics_before():
    return of_metrics()


def of_rules():
    return {name: reached(*fingerprints.rule_code(name)) for name in (*RULES, *references())}


def of_metrics():
    return {name: reached(*fingerprints.metric_code(name)) for name in metrics()}


def changed(before, after):
    return {name for name in before if before[name] != after[name]}


def test_every_rule_has_its_own(rules_before):
    assert len(set(rules_before.values())) == len(RULES) + len(references())


def test_every_metric_has_its_own(metrics_before):
    assert len(set(metrics_before.values())) == len(metrics())


def test_what_is_said_of_a_metric_does_not_count(monkeypatch, metrics_before):
    kind = type(metric_of("tv_headline"))
    for name, value in (("title", "Another"), ("about", "Other words"), ("decimals", 7), ("check", print)):
        monkeypatch.setattr(kind, name, value)
    assert of_metrics() == metrics_before
    monkeypatch.setattr(kind, "partition", print)
    assert "tv_headline" in changed(metrics_before, of_metrics())


def test_a_measurement_is_known_by_its_rule_and_its_metric():
    pairs = itertools.product(("sdp", "dvia", *references()), ("w1", "tv_paper", "bures"))
    assert len({fingerprints.of_measurement(*pair) for pair in pairs}) == 12


def test_a_change_of_one_rule_leaves_the_others(monkeypatch, rules_before):
    monkeypatch.setattr(type(sdp_ref.rule("unscented")), "prepare", lambda self, net: net)
    assert changed(rules_before, of_rules()) == {"unscented"}


def test_a_change_of_the_sampling_rule_leaves_the_others(monkeypatch, rules_before):
    monkeypatch.setattr(type(sdp_ref.rule("monte_carlo")), "with_seeds", lambda self, seeds: self)
    assert changed(rules_before, of_rules()) == {
        *("monte_carlo", "monte_carlo:samples=10,sampler=sobol"),
        "control_variate",  # which is one
    }


def test_a_handler_of_a_rule_counts_for_those_that_inherit_it(monkeypatch, rules_before):
    monkeypatch.setattr(FullCovarianceRule, "_handlers", dict(FullCovarianceRule._handlers))
    assert changed(rules_before, of_rules()) == set()
    FullCovarianceRule.handles(torch.nn.Linear)(lambda rule, module, law: law)
    assert changed(rules_before, of_rules()) == {"moment_matching", "dvia", "low_rank"}


def test_an_activation_s_integrals_count_for_the_rules_that_take_them(monkeypatch, rules_before):
    monkeypatch.setattr(type(activation("relu")), "_mean_variance", lambda *_: None)
    those = changed(rules_before, of_rules())
    assert {"moment_matching", "marginal_moment_matching"} <= those
    assert not those & {"sdp", "marginal_sdp", "unscented", "monte_carlo", *references()}


def test_what_a_rule_is_called_and_drawn_like_does_not_count(monkeypatch, rules_before):
    monkeypatch.setattr(type(sdp_ref.rule("sdp")), "title", "Another name")
    monkeypatch.setattr(type(sdp_ref.rule("sdp")), "colour", "#000000")
    assert of_rules() == rules_before


@pytest.mark.parametrize(
    ("place", "name", "those"),
    [
        (moments, "gaussian_kl", {"gaussian_kl"}),
        (wasserstein, "sliced_wasserstein", {"w1_sliced"}),
        (wasserstein, "floor_of", {"w1", "w1_certified", "w1_sliced"}),
    ],
)
def test_the_numerics_of_a_metric_leave_the_others(place, name, those, monkeypatch, metrics_before):
    monkeypatch.setattr(place, name, lambda *_: None)
    assert changed(metrics_before, of_metrics()) == those


def test_samples_of_the_oracle_count_for_every_metric_and_no_rule(monkeypatch, rules_before, metrics_before):
    monkeypatch.setattr(oracle, "sample_outputs", lambda *_: None)
    assert changed(metrics_before, of_metrics()) == set(metrics())
    assert not changed(rules_before, of_rules()) & set(RULES)


def test_seeds_count_for_all(monkeypatch, rules_before, metrics_before):
    monkeypatch.setattr(keys.OracleKey, "seed", lambda *_: 0)
    assert changed(rules_before | metrics_before, of_rules() | of_metrics()) >= {*RULES, "w1", "tv_headline"}


SCRIPT = """
import json
from tests.bench.experiments.test_fingerprints import of_metrics, of_rules
print(json.dumps(of_rules() | of_metrics()))
"""


def test_another_process_has_the_same(rules_before, metrics_before):
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    printed = subprocess.check_output(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], env=os.environ | {"PYTHONHASHSEED": seed}, text=True
    )
    assert json.loads(printed) == rules_before | metrics_before


def codes(objects):
    """Code objects of functions and of what is defined in them, as places in files."""
    pending = [thing.__code__ for thing in objects if isinstance(thing, types.FunctionType)]
    for code in pending:  # which grows meanwhile
        pending += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return {(code.co_filename, code.co_firstlineno, code.co_name) for code in pending}


def run_by(function):
    """The same of this project's code that is run by a function, but for what dataclasses make."""
    seen = set()

    def note(frame, event, _argument):
        module, code = str(frame.f_globals.get("__name__")), frame.f_code
        if event == "call" and module.partition(".")[0] in PACKAGES and code.co_filename != "<string>":
            seen.add((code.co_filename, code.co_firstlineno, code.co_name))

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return seen


KEYS = [OracleKey("net", "input", "noise", "mc", SMALL.sampling.samples)]


@pytest.mark.filterwarnings("ignore:rule '.*' is marginal")
@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=[pytest.mark.slow] if rule == "exact" else []) for rule in RULES]
)
def test_all_that_runs_for_a_rule_is_reached(rule):
    """A rule whose code takes a method by a name that is made at run time fails here."""
    known = codes(closure(*fingerprints.rule_code(rule)))
    made, seen = sdp_ref.rule(rule), set()
    for probe in probes():
        with contextlib.suppress(sdp_ref.UnsupportedError):
            seen |= run_by(functools.partial(predict.predict, made, probe.build(), probe.law, KEYS))
    assert {code for code in seen if code[0] != probes.__code__.co_filename} - known == set()
    assert len(seen) > 10


@pytest.mark.parametrize("metric", metrics())
def test_all_that_runs_for_a_metric_is_reached(metric):
    known = codes(closure(*fingerprints.rule_code("sdp"), *fingerprints.metric_code(metric)))
    probe = next(probe for probe in probes() if isinstance(probe.law, DiagonalGaussian))
    net = probe.build()
    rule, chosen = sdp_ref.rule("sdp"), metric_of(metric, SMALL.metric_options)
    (law, _), sampling = predict.predict(rule, net, probe.law, KEYS), SMALL.sampling

    def measure():
        true = Oracle(net, probe.law, KEYS[0], sampling)
        prediction = predict.prediction_of(rule, law, true)
        return list(chosen.measure(true, prediction))

    assert {code for code in run_by(measure) if code[0] != probes.__code__.co_filename} - known == set()
