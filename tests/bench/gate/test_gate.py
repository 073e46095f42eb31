import json
import math
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.gate import report
from sdp_bench.bench.gate.baseline import read, write
from sdp_bench.bench.gate.check import CheckOutcome, Options, check, make, rules_of, update
from sdp_bench.bench.gate.predictions import THRESHOLD, GatePrediction, common_factor, drift, repeats
from sdp_bench.bench.gate.verdict import ALL_CASES, Finding, GateVerdict, Status, exit_code
from sdp_bench.bench.identity import digest
from tests.bench.gate.gate_rules import baseline_of, few_cells, write_rule, write_sampler

SEED = 7
ACCURACY = Options(seed=SEED)
SCOPE = few_cells()
(NET,) = SCOPE.nets


def statuses(verdict):
    return {finding.status for finding in verdict.findings}


def cells(verdict):
    return [finding for finding in verdict.findings if finding.cell != ALL_CASES]


def moments(mean, spread):
    return GatePrediction("Gaussian", mean, spread)


def test_a_change_has_to_be_accepted_and_its_divergences_are_reported(tmp_path):
    """SDP's covariance replaced by that of moment matching, which is exact after one layer, and back."""
    file = tmp_path / "mine.py"
    for before, now, nearer in (("sdp", "moment_matching", True), ("moment_matching", "sdp", False)):
        known = baseline_of(tmp_path / "ci.json", SCOPE, write_rule(file, before))
        outcome = check(known, replace(ACCURACY, rules=(write_rule(file, now),)), SCOPE)
        (verdict,) = outcome.verdicts
        assert statuses(verdict) == {Status.CHANGED}
        assert (verdict.status, outcome.exit_code) == ("changed", 1)
        assert json.loads(report.as_json(outcome))["regressions"] == []
        for finding in cells(verdict):
            assert (finding.numbers["KL"] < finding.numbers["KL before"]) is nearer
            assert f"KL to a fresh oracle {finding.numbers['KL']:.3g}, before" in finding.text


def test_unchanged_code_has_exactly_no_drift(tmp_path):
    update(tmp_path / "ci.json", None, SCOPE)
    outcome = check(read(tmp_path / "ci.json"), Options(), SCOPE)
    verdict = outcome.verdicts[0]
    assert statuses(verdict) == {Status.UNCHANGED}
    assert len(verdict.findings) == 9 * 2
    assert {n for f in verdict.findings for n in f.numbers.values()} == {0.0}
    assert outcome.exit_code == 0


def test_a_rule_with_hidden_draws_fails_and_has_no_baseline(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch, sdp_ref as sr\n"
        "class Mine:\n"
        "    name = 'mine'\n"
        "    def propagate(self, net, x):\n"
        "        law = sr.propagate(net, x, rule='sdp')\n"
        "        return sr.Gaussian(law.mean + 1e-6 * torch.rand(3), law.covariance)\n"
    )
    with pytest.raises(RunFailedError, match=r"not deterministic.*seed"):
        make((f"{file}:Mine",), SCOPE)


def test_exit_codes_put_regressions_first():
    def verdict(*found):
        return GateVerdict("accuracy", tuple(Finding("sdp", "", status) for status in found))

    assert exit_code([verdict(Status.NEW), verdict(Status.UNCHANGED)]) == 0
    assert exit_code([verdict(Status.NEW), verdict(Status.NEW)]) == 3
    assert exit_code([verdict(Status.ACCEPTED)]) == 0
    assert exit_code([verdict(Status.UNCHANGED), verdict(Status.FASTER, Status.NEW)]) == 0
    assert exit_code([verdict(Status.UNCHANGED, Status.GONE)]) == 1
    assert exit_code([verdict(Status.UNCHANGED), verdict(Status.CHANGED)]) == 1
    assert exit_code([verdict(Status.FAILED), verdict(Status.UNCHANGED)]) == 3
    assert exit_code([verdict(Status.FAILED), verdict(Status.SLOWER)]) == 1


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"scale": 1 + 0.9e-3}, Status.ROUNDING),
        ({"scale": 1 - 1.1e-3}, Status.CHANGED),
        ({"scale": 1 + 1.1e-3}, Status.CHANGED),
        ({"shift": 0.002}, Status.CHANGED),
    ],
)
def test_the_table_for_rules_without_seeds(tmp_path, change, status):
    file = tmp_path / "mine.py"
    known = baseline_of(tmp_path / "ci.json", SCOPE, write_rule(file))
    (verdict,) = check(known, replace(ACCURACY, rules=(write_rule(file, **change),)), SCOPE).verdicts
    assert statuses(verdict) == {status}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({}, set()),
        ({"offset": 1}, {"cells", "probes"}),  # other draws of the same distribution
        ({"samples": 12}, {"cells", "probes"}),
        ({"change": "mean = mean + 0.01 * law.variance.sqrt()", "when": "x.dimension != 4"}, {"probes"}),
    ],
)
def test_a_sampling_rule_must_reproduce_its_predictions(tmp_path, change, where):
    file, scope = tmp_path / "sampler.py", few_cells(inputs=1, samples=2**13, probes=True)
    known = baseline_of(tmp_path / "ci.json", scope, write_sampler(file))
    options = replace(ACCURACY, rules=(write_sampler(file, **change),))
    verdict = check(known, options, scope).verdicts[0]
    names = {probe.name for probe in scope.probes}
    assert {"probes" if f.cell in names else "cells" for f in cells(verdict) if f.stops} == where
    assert verdict.status == ("changed" if where else "passed")


def test_drift_of_known_changes():
    covariance = np.array([[4.0, 1.0], [1.0, 2.0]])
    old = moments(np.array([1.0, -2.0]), covariance)
    assert drift(old, old).size == 0
    scaled = drift(old, moments(old.mean, 1.005 * covariance))
    assert (scaled.mean, scaled.covariance) == (0.0, pytest.approx(0.005))
    moved = np.array([0.3, 0.1])
    by = drift(old, moments(old.mean + moved, covariance))
    assert by.mean == pytest.approx(math.sqrt(moved @ np.linalg.inv(covariance) @ moved))
    assert by.covariance == 0


def test_drift_does_not_depend_on_coordinates():
    rng = np.random.default_rng(0)
    factor, change, map_ = rng.standard_normal((3, 3, 3))
    old = moments(rng.standard_normal(3), factor @ factor.T)
    new = moments(old.mean + 0.1, old.covariance + 0.01 * (change + change.T))
    mapped = [moments(map_ @ m.mean, map_ @ m.covariance @ map_.T) for m in (old, new)]
    assert drift(*mapped).mean == pytest.approx(drift(old, new).mean)
    assert drift(*mapped).covariance == pytest.approx(drift(old, new).covariance)


def test_null_directions_tell_spread_from_rounding():
    old = moments(np.array([1.0, 1.0]), np.array([[1.0, 1.0], [1.0, 1.0]]))  # of rank one
    rounding = moments(old.mean, old.covariance + np.diag([1e-16, 2e-16]))
    assert 0 < drift(old, rounding).size < THRESHOLD
    assert drift(old, moments(old.mean, old.covariance + 1e-8 * np.eye(2))).size > THRESHOLD
    point = moments(np.array([3.0]), np.zeros((1, 1)))
    assert drift(point, moments(point.mean * (1 + 1e-16), point.spread)).size < THRESHOLD
    assert drift(point, moments(point.mean, np.full((1, 1), 1e-12))).size > THRESHOLD


def test_a_baseline_comes_back_to_the_last_bit(tmp_path):
    rules = ("sdp", "marginal_sdp", "monte_carlo:samples=10")
    made = make(rules, SCOPE)
    write(tmp_path / "ci.json", made)
    again = read(tmp_path / "ci.json")
    assert again.cases == made.cases
    for name in rules:
        old, new = made.rules[name], again.rules[name]
        assert all(old.answers[key].to_json() == new.answers[key].to_json() for key in made.cases)


def test_other_cells_and_nets_are_refused_and_taken_up(tmp_path):
    path = tmp_path / "ci.json"
    baseline_of(path, SCOPE, "sdp")
    other = few_cells(sigmas=(2.0,), rules=("sdp",))
    with pytest.raises(UserError, match=r"2 removed, 2 new .*4-100-3 seed 0 sigma 1, row 42"):
        check(read(path), Options(("sdp",)), other)
    with pytest.raises(UserError, match="have changed"):
        update(path, ("sdp",), other)
    update(path, None, other)
    assert check(read(path), replace(ACCURACY, rules=("sdp",)), other).exit_code == 0


def test_update_changes_the_requested_rules_only(tmp_path):
    path, file = tmp_path / "ci.json", tmp_path / "mine.py"
    address = write_rule(file)
    baseline_of(path, SCOPE, address, "sdp")
    before = read(path).rules["sdp"]
    content = path.read_bytes()
    write_rule(file, scale=1.1)
    assert check(read(path), replace(ACCURACY, rules=(address,)), SCOPE).exit_code == 1
    assert path.read_bytes() == content
    update(path, (address,), SCOPE)
    assert check(read(path), replace(ACCURACY, rules=(address, "sdp")), SCOPE).exit_code == 0
    assert {k: a.to_json() for k, a in read(path).rules["sdp"].answers.items()} == {
        k: a.to_json() for k, a in before.answers.items()
    }


def test_a_missing_baseline_is_reported_with_the_command_that_creates_it(tmp_path):
    with pytest.raises(UserError, match=r"sdp-bench check --baseline .*ci.json --update"):
        read(tmp_path / "ci.json")


def test_references_are_no_rules_of_the_gate():
    with pytest.raises(UserError, match="is a reference"):
        rules_of(("oracle_moments",))


def test_fresh_oracles_have_one_law_and_are_determined_by_their_draw():
    cell = next(iter(SCOPE.cells.values()))
    first = cell.fresh_moments(1)
    again = cell.fresh_moments(1)
    second = cell.fresh_moments(2)
    assert np.array_equal(first.mean, again.mean)
    assert not np.array_equal(first.mean, second.mean)
    sds = np.sqrt(np.diag(first.covariance))
    assert (np.abs(first.mean - second.mean) < 5 * sds * np.sqrt(2 / 2**14)).all()


def test_rules_that_are_new_or_gone_stop(tmp_path):
    known = baseline_of(tmp_path / "ci.json", SCOPE, "sdp", "unscented")
    scope = replace(SCOPE, rules=("sdp", "marginal_sdp"))
    outcome = check(known, replace(ACCURACY, allow_new=True), scope)
    found = {f.subject: f.status for f in outcome.verdicts[0].findings}
    assert found == {"sdp": Status.UNCHANGED, "marginal_sdp": Status.NEW, "unscented": Status.GONE}
    assert (outcome.verdicts[0].status, outcome.exit_code) == ("changed", 1)
    scope = replace(SCOPE, rules=("sdp", "unscented", "marginal_sdp"))
    assert check(known, replace(ACCURACY, allow_new=True), scope).exit_code == 0


def test_a_fixed_seed_gives_the_same_verdict(tmp_path):
    file = tmp_path / "mine.py"
    known = baseline_of(tmp_path / "ci.json", SCOPE, write_rule(file))
    options = replace(ACCURACY, rules=(write_rule(file, scale=1.01),))
    first, second = check(known, options, SCOPE), check(known, options, SCOPE)
    assert first.verdicts == second.verdicts
    assert first.seed == SEED
    other = check(known, replace(options, seed=SEED + 1), SCOPE)
    assert first.verdicts != other.verdicts


def test_a_junit_file_accepts_any_text_of_a_rule():
    told = Finding("sdp", "a cell", Status.FAILED, "RuntimeError: \x1b[31mred\x00 <&> \ufffe")
    outcome = CheckOutcome((GateVerdict("accuracy", (told,)),), 1, {})
    (error,) = ElementTree.fromstring(report.junit(outcome)).iter("error")
    assert "RuntimeError: ?[31mred? <&> ?" in error.text


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("sr.laws.unchecked(sr.Gaussian, law.mean, -law.covariance)", "negative"),
    ],
)
def test_a_rule_that_fails_leaves_the_others_their_verdict(tmp_path, law, message):
    file = tmp_path / "mine.py"
    address = write_rule(file)
    known = baseline_of(tmp_path / "ci.json", SCOPE, address, "sdp")
    file.write_text(
        "import sdp_ref as sr\n"
        "class Mine:\n"
        "    name = 'mine'\n"
        "    def propagate(self, net, x):\n"
        "        law = sr.propagate(net, x, 'sdp')\n"
        f"        return {law}\n"
    )
    outcome = check(known, replace(ACCURACY, rules=(address, "sdp")), SCOPE)
    assert outcome.exit_code == 3
    (failed,) = outcome.verdicts[0].having(Status.FAILED)
    assert failed.subject == "mine"
    assert message in failed.text
    assert len(outcome.verdicts[0].having(Status.UNCHANGED)) == 2


def test_predictions_of_another_shape_have_an_infinite_drift():
    old = moments(np.zeros(2), np.array([1.0, 2.0]))
    assert drift(old, moments(np.zeros(2), np.diag([1.0, 2.0]))).size == 0
    assert drift(old, moments(np.zeros(3), np.ones(3))).size == math.inf


def test_rounding_between_two_calls_is_not_a_hidden_draw():
    one = moments(np.array([1.0, -3.0]), np.array([[2.0, 0.5], [0.5, 1.0]]))
    assert repeats(one, moments(one.mean * (1 + 1e-12), one.spread * (1 - 1e-12)))
    assert not repeats(one, moments(one.mean + 1e-9, one.spread))
    assert not repeats(one, moments(one.mean, one.spread * (1 + 1e-9)))
    assert not repeats(one, moments(one.mean, np.diag(one.spread)))
    tiny = moments(np.array([1e-20]), np.array([1.0]))  # a mean of 0 in units of its deviation
    assert repeats(tiny, moments(np.array([-1e-20]), np.array([1.0])))
    assert repeats(moments(np.zeros(1), np.zeros(1)), moments(np.zeros(1), np.zeros(1)))


def test_a_factor_that_all_numbers_have_in_common_is_found():
    olds = [np.array([1.0, -2.0, 0.0]), np.array([[3.0]])]
    assert common_factor(olds, olds) == 1
    assert common_factor(olds, [1.02 * old for old in olds]) == pytest.approx(1.02)
    assert common_factor(olds, [1.02 * olds[0], 1.03 * olds[1]]) is None
    assert common_factor(olds, [old + 0.1 for old in olds]) is None
    assert common_factor([np.zeros(2)], [np.zeros(2)]) is None


@pytest.mark.parametrize(
    ("version", "times"), [(5, {"4-100-3 seed 0": 3.0}), (6, {"4-100-3 seed 0": [3.0, 2.9]})]
)
def test_times_in_older_baselines_are_ignored(tmp_path, version, times):
    path = tmp_path / "ci.json"
    write(path, make(("sdp",), SCOPE))
    content = json.loads(path.read_text())
    rule = content["rules"]["sdp"] | {"cpu": "abacus", "speed": times}
    del rule["digest"]
    rules = {"sdp": {"digest": digest(rule)[:16], **rule}}
    path.write_text(json.dumps(content | {"version": version, "rules": rules}))
    assert check(read(path), replace(ACCURACY, rules=("sdp",)), SCOPE).exit_code == 0
    update(path, ("sdp",), SCOPE)
    assert "abacus" not in path.read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version 99 of the format"),
        ({"format": "other"}, "not a baseline"),
        ({"rules": {}}, "no rules"),
        ({"cases": {}}, "of other cells"),
    ],
)
def test_invalid_baselines_are_refused_in_one_line(tmp_path, change, message):
    path = tmp_path / "ci.json"
    write(path, make(("sdp",), SCOPE))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError):
        update(path, ("sdp",), SCOPE)
