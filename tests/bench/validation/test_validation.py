from dataclasses import replace

import numpy as np
import pytest

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.executors import WorkerError
from sdp_bench.bench.nets.own.net import finder
from sdp_bench.bench.results.folder import read
from sdp_bench.bench.results.joined import joined_measurements
from sdp_bench.bench.runs import conformance as kit
from sdp_bench.bench.validation.run import ValidationRequest, validate
from sdp_bench.progress import Screen
from sdp_ref.conformance import CheckResult, ConformanceReport

PASSED = ConformanceReport("", (CheckResult("affine", "Is it exact?", "passed", "1 case"),))
SMALL = {"depths": (1,), "nets": 1, "sigmas": (1.0,), "samples": 20_000, "w1_points": 100}
REQUEST = ValidationRequest(
    rules=("unscented",),
    compare_with=("sdp",),
    preset="smoke",
    options=SMALL,
    kit_limit=60,
    group_limit=600,
    jobs=1,
)
QUIET = Screen(quiet=True)


@pytest.fixture
def database(tmp_path):
    return tmp_path / "validations"


@pytest.fixture
def known(monkeypatch):
    """Stand-in for the kit, which passes all rules but `sdp`, with which it hangs."""

    def conformance(rule, plugins, limits):
        if rule == "sdp":
            raise WorkerError(f"stopped at the time limit of {limits.seconds:g} s")
        return replace(PASSED, rule=rule)

    monkeypatch.setattr(kit, "conformance", conformance)


def test_each_validation_has_a_run_of_its_rules(database, known):
    first, second = validate(REQUEST, database, QUIET), validate(REQUEST, database, QUIET)
    assert {first.run, second.run} == set(read(database).runs)
    assert first.run < second.run
    (candidate,) = first.candidates
    assert (candidate.name, candidate.address, candidate.trouble) == ("unscented", "", "")
    assert candidate.report.ran
    assert first.is_whole
    assert not first.own_net
    stored = read(database)
    for number in (first.run, second.run):
        assert set(joined_measurements(stored, [stored.run(number)])["rule"]) == {"unscented", "sdp"}


def test_a_rule_with_which_the_kit_hangs_is_not_measured(database, known):
    both = replace(REQUEST, rules=("sdp", "unscented"), compare_with=("marginal_sdp",))
    validation = validate(both, database, QUIET)
    assert "time limit of 60 s" in validation.candidates[0].trouble
    assert not validation.is_whole
    stored = read(database)
    assert set(joined_measurements(stored, [stored.run()])["rule"]) == {"unscented", "marginal_sdp"}


def test_nothing_is_measured_if_the_kit_hangs_with_every_rule(database, known):
    validation = validate(replace(REQUEST, rules=("sdp",)), database, QUIET)
    assert validation.run is None
    assert not database.exists()


def test_a_net_without_rules_is_measured_with_advice(database, tmp_path):
    (tmp_path / "net.py").write_text("import torch\n\ndef build():\n    return torch.nn.Linear(4, 2)\n")
    inputs = {"0": np.zeros((2, 4), dtype=np.float32)}
    net = finder(f"{tmp_path / 'net.py'}:build", inputs, None, None, None)
    options = {"sigmas": (0.5,), "samples": 20_000, "w1_points": 100}
    validation = validate(replace(REQUEST, rules=(), net=net, options=options), database, QUIET)
    assert validation.own_net
    assert validation.candidates == ()
    assert {row["outcome"] for row in validation.advice} == {"accurate"}  # the net is affine
    assert any("2 outputs" in note for note in validation.notes)


def test_an_output_that_cannot_be_written_is_reported_before_the_kit_runs(database, tmp_path, monkeypatch):
    monkeypatch.setattr(kit, "conformance", lambda *_: pytest.fail("the kit ran"))
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailedError):
        validate(replace(REQUEST, options=SMALL), database, QUIET, tmp_path / "file" / "index.html")
    with pytest.raises(UserError, match="name a rule"):
        validate(replace(REQUEST, rules=()), database, QUIET)


def test_a_net_needs_inputs_and_inputs_need_a_net():
    assert finder(None, None, None, None, None) is None
    with pytest.raises(UserError, match="a net needs inputs"):
        finder("net.py:build", None, None, None, None)
    with pytest.raises(UserError, match="need a net"):
        finder(None, None, 3, None, None)
