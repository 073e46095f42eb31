import dataclasses
import math

import numpy as np
import pytest

from sdp_bench.bench.datasets.sets import YACHT
from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.experiments.plan import plan_of
from sdp_bench.bench.results.columns import FAILED, MEASURED
from sdp_bench.bench.runs import driver as run
from sdp_bench.bench.settings import Settings
from sdp_bench.bench.studies.uci import EXPERIMENT as UCI
from sdp_bench.bench.studies.uci import METHODS, READINGS, stacked
from sdp_bench.bench.studies.uci import group as work
from sdp_bench.bench.studies.uci.group import splits
from sdp_bench.bench.studies.uci.stacked import SQUARED_ERROR, Hyperparameters, Problem
from tests.bench.conftest import left, made_up_tables, run_all, statuses

SETTINGS = Settings().but(nets=2, datasets=("yacht",), training={"epochs": 100})
GRID = (Hyperparameters(1e-2, 0.0), Hyperparameters(1e-3, 1e-2))


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Two settings, and in the place of each set one of 200 rows: 34 or 35 of 36 may be covered."""
    monkeypatch.setattr(work, "GRID", GRID)
    made_up_tables(monkeypatch, 200)


def groups_of(settings=SETTINGS):
    return [*plan_of([UCI], settings, []).groups.values()]


def results_of(path, settings=SETTINGS):
    """Measure what is left to measure; gives all measurements and whether anything is left after that."""
    plan = plan_of([UCI], settings, [])
    frame = run_all(path, plan, settings=settings)
    assert FAILED not in set(statuses(path)["status"])
    return frame, bool(left(plan, path))


@pytest.mark.slow
def test_every_method_is_measured_for_every_seed_and_then_done(tmp_path):
    objectives = [group.objective for group in groups_of()]
    assert objectives == ["squared_error", "sdp_nll", "pnn", "sqr_ends", "sqr"]
    frame, is_left = results_of(tmp_path / "r")
    counts = frame[frame.metric == "qualified"].groupby("rule").size()
    readings = {rule: len(READINGS) if METHODS[rule].propagates else 1 for rule in UCI.rules}
    assert counts.to_dict() == {rule: 2 * count for rule, count in readings.items()}
    assert set(frame.dataset) == {"yacht"}
    assert set(frame.seed) == {0, 1}
    assert frame.accuracy.isna().all()
    chosen = frame[frame.metric == "validation_picp"]
    assert chosen.value.between(0.925, 0.975, inclusive="neither").all()
    assert len(chosen) == (frame[frame.metric == "qualified"].value > 0).sum() > 0
    assert not is_left
    again, _ = results_of(tmp_path / "other")
    numbers = ["rule", "metric", "seed", "value"]
    assert again[numbers].equals(frame[numbers])


@pytest.mark.parametrize(
    ("owner", "name", "versions"),
    [(vars(UCI), "version", "method 2, training 1"), (vars(work), "VERSION", "method 1, training 2")],
)
def test_numbers_rest_on_the_versions_of_method_and_training(owner, name, versions, monkeypatch):
    monkeypatch.setitem(owner, name, 2)
    assert {group.versions for group in groups_of()} == {versions}


@pytest.mark.slow
def test_seeds_are_added_to_those_that_are_there(tmp_path):
    results_of(tmp_path / "r", SETTINGS.but(nets=1))
    wider, _ = results_of(tmp_path / "r")
    assert set(wider.seed) == {0, 1}
    numbers = ["rule", "metric", "seed", "value"]
    whole, _ = results_of(tmp_path / "whole")
    together = wider[numbers].sort_values(numbers[:3]).reset_index(drop=True)
    at_once = whole[numbers].sort_values(numbers[:3]).reset_index(drop=True)
    assert together[numbers[:3]].equals(at_once[numbers[:3]])
    assert np.allclose(together["value"], at_once["value"], rtol=1e-3)


def test_measurements_before_a_failure_are_kept(monkeypatch):
    plan = plan_of([UCI], SETTINGS, [])
    name, group = next(iter(plan.groups.items()))
    evaluate = work.evaluate

    def failing(method, *arguments):
        return 1 / 0 if method == "monte_carlo:samples=1000" else evaluate(method, *arguments)

    monkeypatch.setattr(work, "evaluate", failing)
    measured = run.run_group(group, plan.rows[plan.rows["group"] == name])
    rules = measured.groupby("status")["rule"].agg(set)
    assert rules[MEASURED] >= {"monte_carlo:samples=10", "monte_carlo:samples=100"}
    assert "monte_carlo:samples=1000" in rules[FAILED]
    assert not rules[FAILED] & rules[MEASURED]


def problem():
    parts = splits(YACHT.load(), (0, 1))
    return Problem(parts.features["train"], parts.targets["train"], (0, 1))


def nets(epochs=6, **changes):
    made = dataclasses.replace(problem(), **changes)
    return stacked.get_nets("yacht", made, SQUARED_ERROR, GRID, epochs)


def test_a_net_that_diverged_is_one_that_does_not_qualify(cache):
    targets = problem().targets.clone()
    targets[0, 0] = math.inf
    finite = nets(targets=targets).weight.isfinite().flatten(1).all(1)
    assert finite.tolist() == [False, False, True, True]


def test_training_that_diverges_altogether_is_refused(cache):
    targets = problem().targets.clone()
    targets[:, 0] = math.inf
    with pytest.raises(RunFailedError, match=r"training on yacht diverged \(squared_error\)"):
        nets(targets=targets)
    assert not list(cache.glob("*.safetensors"))


def test_keys_are_those_that_earlier_results_files_have():
    """Stored results rest on these words; a change must be a decision."""
    (group, *_) = groups_of()
    group = dataclasses.replace(
        group, label="yacht 6-64", design="the design in words", identity="0123456789abcdef"
    )
    assert [group.key(seed) for seed in range(2)] == ["a00623e9a8db3bc1", "0bd5f90744f9b9b6"]


def test_nets_of_another_version_of_the_training_are_trained_again(cache, monkeypatch):
    for version in (1, 1, 2):
        monkeypatch.setattr(stacked, "VERSION", version)
        nets()
    assert len(list(cache.iterdir())) == 2


def test_a_failure_is_recorded_for_every_seed_and_method(monkeypatch):
    plan = plan_of([UCI], SETTINGS, [])
    name, group = next(iter(plan.groups.items()))
    monkeypatch.setattr(work, "get_nets", lambda *_: 1 / 0)
    rows = plan.rows[plan.rows["group"] == name]
    found = run.run_group(group, rows)
    assert set(found["status"]) == {FAILED}
    assert set(found["reason"]) == {"ZeroDivisionError: division by zero"}
    assert set(zip(found["unit"], found["rule"], strict=True)) == set(
        zip(rows["unit"], rows["rule"], strict=True)
    )


def test_an_unknown_set_is_refused():
    with pytest.raises(UserError, match="data set 'iris' not found; choose from"):
        groups_of(SETTINGS.but(datasets=("iris",)))
