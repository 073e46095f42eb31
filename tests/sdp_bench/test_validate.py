import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sdp_bench.bench.executors import WorkerError
from sdp_bench.bench.results.folder import read
from sdp_bench.bench.results.joined import failures, joined_measurements
from sdp_bench.bench.runs import conformance as kit_of_runs
from sdp_ref.conformance import CheckResult, ConformanceReport
from sdp_ref.conformance.report import VERSION
from tests.attacks.calls import called

RULES = '''
import time

import torch
from torch import distributions as td

import sdp_ref as sr


class Good:
    """SDP under another name."""

    name = "good"

    def propagate(self, net, x):
        print("called" * 100)
        return sr.propagate(net, x, "sdp")


class Raising(Good):
    name = "raising"

    def propagate(self, net, x):
        if x.mean.shape[1:] == (4,):
            raise ArithmeticError("no\\nsuch net")
        return sr.propagate(net, x, "sdp")


class Undefined(Good):
    name = "undefined"

    def propagate(self, net, x):
        law = sr.propagate(net, x, "sdp")
        return sr.DiagonalGaussian(law.mean, law.variance * float("nan"))


class Hanging(Good):
    name = "hanging"

    def propagate(self, net, x):
        time.sleep(3600)


class Refusing(Good):
    name = "refusing"

    def propagate(self, net, x):
        raise sr.UnsupportedError(self.name, "anything")


class Starting(Good):
    def __init__(self):
        raise ValueError("not today")


class Base:
    def propagate(self, net, x):
        law = sr.propagate(net, x, "sdp")
        return self.law(law.mean, law.variance.sqrt())


class Mixed(Base):
    name = "mixed"

    def law(self, mean, deviation):
        two = td.Normal(torch.stack([mean, mean + deviation], 1), torch.stack([deviation, deviation], 1))
        weights = td.Categorical(torch.full((len(mean), 2), 0.5, dtype=mean.dtype))
        return td.MixtureSameFamily(weights, td.Independent(two, 1))


class Quantiles(Base):
    name = "quantiles"

    def law(self, mean, deviation):
        levels = torch.linspace(0.01, 0.99, 99).to(mean)
        steps = torch.special.ndtri(levels)[None, :, None]
        return sr.Quantiles(levels, mean.unsqueeze(1) + deviation.unsqueeze(1) * steps)
'''


def tiny(depth, rules):
    return (
        "--preset",
        "smoke",
        "--depth",
        depth,
        "--sigma",
        "1",
        "--samples",
        "20000",
        "--jobs",
        "1",
        "--w1-points",
        "100",
        "--rules",
        rules,
        "--database",
        "v",
        "--output",
        "card",
    )


TINY = tiny(1, "sdp,monte_carlo:samples=10,monte_carlo:samples=100")


@pytest.fixture
def call(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.py").write_text(RULES)
    return lambda *words: called(["validate", *words], seconds=600)


def conformed(monkeypatch, report):
    """Stand-in for the kit, which has tests of its own."""
    monkeypatch.setattr(kit_of_runs, "conformance", lambda rule, chosen, limit: replace(report, rule=rule))


PASSED = ConformanceReport("", (CheckResult("affine", "Is it exact?", "passed", "1 case"),))
FAILED = ConformanceReport("", (CheckResult("affine", "Is it exact?", "failed", "mean[0] is 1, must be 0"),))
NOTHING = ConformanceReport("", (CheckResult("affine", "Is it exact?", "skipped", "it refuses all"),))


def test_a_rule_is_measured_once_and_shown(call, monkeypatch, tmp_path):
    conformed(monkeypatch, PASSED)
    code, out, err = call("theirs.py:Good", *TINY)
    assert code == 0, err
    first, *details, page, last = out.splitlines()
    assert first == "good"
    assert details[0] == f"  checks: kit {VERSION}, 1 of 1 checks ran: 1 passed, 0 failed, 0 not applicable"
    compared = "  iris-tv: compared with rules of its kind: SDP better in 0"
    assert any(line.startswith(compared) for line in details)
    assert "  iris-tv: worse than SDP in no setting" in details
    assert any(line.startswith("  cost: ") and "for one input" in line for line in details)
    assert page == "scorecard: card/index.html"
    assert last.startswith("verdict: good passes the one check that applies; ")
    assert "statistically tied with SDP (the best deterministic rule) in 1 setting" in last
    assert "1 of 1 checks ran" in err
    text = (tmp_path / "card" / "index.html").read_text()
    assert "SDP under another name." not in text  # the docstring: pages show no code
    assert "theirs.py:Good" in text
    assert "sdp-bench validate theirs.py:Good" in text
    frame = pd.read_csv(tmp_path / "card" / "results.csv")
    assert set(frame.rule) == {"good", "sdp", "monte_carlo:samples=10", "monte_carlo:samples=100"}
    values = frame[frame.metric == "std_ratio"].pivot_table("value", ["unit", "component"], "rule")
    assert values["good"].tolist() == values["sdp"].tolist()
    again, _, err = call("theirs.py:Good", *TINY)
    assert again == 0
    assert "groups are measured already" in err
    assert re.search(r"run \S+: 0 groups in", err)


def test_errors_of_rules_are_shown_and_end_with_exit_code_3(call, tmp_path):
    broken = [f"theirs.py:{rule}" for rule in ("Raising", "Undefined")]
    code, out, _ = call(*broken, "--no-conformance", *TINY)
    assert code == 3
    assert "scorecard: " in out
    text = (tmp_path / "card" / "index.html").read_text()
    results = read(tmp_path / "v")
    frame = joined_measurements(results, [results.run()])
    assert set(failures(results, [results.run()]).rule) == {"raising", "undefined"}
    assert set(frame.rule) >= {"sdp", "monte_carlo:samples=10"}  # the others went on
    for told in ("ArithmeticError: no such net", "variance must be finite"):
        assert told in text
    assert text.count("the conformance kit was not run") == 2
    assert "failures: it failed in " in out
    assert out.splitlines()[-2].startswith("verdict: raising was not checked; it was not measured")


def test_a_failed_check_is_exit_code_1_whatever_else_failed(call, monkeypatch, tmp_path):
    conformed(monkeypatch, FAILED)
    code, out, _ = call("theirs.py:Raising", *TINY)
    assert code == 1
    assert "  checks: failed affine: mean[0] is 1, must be 0" in out
    last = out.splitlines()[-1]
    assert last.startswith(
        "verdict: raising fails the one check that applies (affine); run sdp-bench check-rule"
    )
    assert f"{last.removeprefix('verdict: ')}." in (tmp_path / "card" / "index.html").read_text()


def test_a_rule_that_hangs_in_the_kit_stops_no_other(call, monkeypatch, tmp_path):
    def kit(rule, chosen, limits):
        if rule == "hanging":
            raise WorkerError(f"stopped at the time limit of {limits.seconds:g} s")
        return replace(PASSED, rule=rule)

    monkeypatch.setattr(kit_of_runs, "conformance", kit)
    code, out, _ = call("theirs.py:Hanging", "--kit-limit", "2", *TINY)
    assert code == 3
    assert "did not finish: WorkerError: stopped at the time limit of 2 s" in out
    assert "did not finish: WorkerError" in (tmp_path / "card" / "index.html").read_text()
    assert not (tmp_path / "v").exists()
    code, out, _ = call("theirs.py:Good", "theirs.py:Hanging", *TINY)
    assert code == 3
    assert "the conformance kit did not finish: WorkerError" in out
    good, hung = out.splitlines()[-2:]
    assert good.startswith("verdict: good passes")
    assert hung.startswith("verdict: hanging is not verified")
    rules = set(pd.read_csv(tmp_path / "card" / "results.csv").rule)
    assert ("good" in rules, "hanging" in rules) == (True, False)


@pytest.mark.parametrize(("words", "exit_code"), [((), 1), (("--no-conformance",), 3)])
def test_a_rule_without_checks_or_measurements_does_not_pass(call, monkeypatch, tmp_path, words, exit_code):
    conformed(monkeypatch, NOTHING)
    code, out, _ = call("theirs.py:Refusing", *words, *TINY)
    assert code == exit_code
    last = out.splitlines()[-1]
    assert "it was not measured" in last
    assert ("no check applies to it" in last) == (exit_code == 1)
    text = (tmp_path / "card" / "index.html").read_text()
    assert "nothing was measured" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name a rule, path/to/my_rule.py:MyRule, or a net"),
        (("absent.py:Rule",), "cannot read absent.py"),
        (("theirs.py:Starting",), "cannot make the rule: ValueError: not today"),
        (("theirs.py:Good", "--sigma", "0"), "sigma must be positive"),
        (
            ("theirs.py:Good", "--preset", "smoke", "--activation", "tanh"),
            "no net of these experiments is",
        ),
        (("theirs.py:Good", "--experiment", "absent"), "experiment 'absent' not found"),
        (("theirs.py:Good", "--inputs", "x.npy"), "need a net (--net"),
        (("--net", "theirs.py:Good"), "a net needs inputs (--inputs x.npy"),
        (("--net", "theirs.py:Good", "--inputs", "absent.npy", "--sigma", "1"), "cannot read absent.npy"),
        (
            ("--net", "theirs.py:Good", "--inputs", "absent.npy", "--depth", "2"),
            "are for the experiments' own nets",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(call, tmp_path, words, message):
    code, out, err = call(*words)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not out
    assert not (tmp_path / "validate-results").exists()


@pytest.mark.slow
def test_rules_are_compared_on_a_users_net(call, tmp_path):
    (tmp_path / "nets.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef build():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))\n"
    )
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(2, 4)))
    words = ("--net", "nets.py:build", "--inputs", "x.npy", "--sigma", "0.1,1", "--samples", "20000")
    words += ("--w1-points", "100", "--jobs", "1", "--database", "o", "--output", "card")
    code, out, err = call(*words, "--rules", "sdp,dvia,monte_carlo:samples=10,oracle_again")
    assert code == 0, err
    title, *lines, _, assumption, advice, page, last = out.splitlines()
    assert assumption.startswith("  assumption: the error of an input is at most")
    assert advice.startswith("  advice without an oracle")
    assert title == "which rule for nets.py:build"
    assert {line.split(",")[0].strip() for line in lines} == {
        "standard deviations and intervals",
        "whole distribution",
        "tails",
    }
    assert all(re.search(r" \(\S+ to \S+\)[ ,]", line) and "per input" in line for line in lines)
    assert page == "scorecard: card/index.html"
    assert last.startswith("verdict: for nets.py:build, linearisation (SDP, ")
    assert "rely on it" in last
    assert "One output: total variation" in err
    text = (tmp_path / "card" / "index.html").read_text()
    for part in ("Which rule for this net", "One output: total variation", "nets.py:build", "DVIA: rule"):
        assert part in text, part
    frame = pd.read_csv(tmp_path / "card" / "results.csv")
    assert set(frame.experiment) == {"own-net"}
    assert set(frame.rule) == {"sdp", "monte_carlo:samples=10", "oracle_again"}
    assert frame.accuracy.isna().all()
    code, out, err = call("theirs.py:Good", *words, "--rules", "sdp", "--no-conformance")
    assert code == 0, err
    assert "  own-net: worse than SDP in no setting" in out
    judged, chosen = out.splitlines()[-2:]
    assert judged.startswith("verdict: good was not checked; statistically tied with SDP")
    assert chosen.startswith("verdict: for nets.py:build, ")
    assert "good compared with other rules" in (tmp_path / "card" / "index.html").read_text()


@pytest.mark.slow
def test_rules_of_every_law_are_measured_and_undefined_metrics_are_reported_once(call, tmp_path):
    words = (*tiny(4, "sdp"), "--no-conformance", "--experiment", "iris-scores")
    code, out, err = call("theirs.py:Mixed", "theirs.py:Quantiles", *words)
    assert code == 0, err
    assert "failed" not in out + err
    (told,) = [line for line in err.splitlines() if line.startswith("not defined: ")]
    reason = "all outputs together are needed, of which a law of quantiles of single outputs says nothing"
    assert reason in told
    assert out.count(reason) == 1  # of the rule's own lines
    assert "Not defined for the laws" in (tmp_path / "card" / "index.html").read_text(encoding="utf-8")
