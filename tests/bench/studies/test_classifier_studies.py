import dataclasses
import pickle

import pytest

from sdp_bench.bench.datasets.base import ImageClassification
from sdp_bench.bench.datasets.download import DataMissingError
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import experiment
from sdp_bench.bench.experiments.plan import plan_of
from sdp_bench.bench.results.columns import CELL, FAILED, MEASURED
from sdp_bench.bench.runs import driver as run
from sdp_bench.bench.settings import Settings, Size
from sdp_bench.bench.studies import classifiers
from sdp_ref.rules import SDP, MarginalMomentMatching
from tests.bench.studies.conftest import TEST, TRAIN

SIZE = Size(nets=2, epochs=1, datasets=("mnist",), sigmas=(1e-3, 1.0), steps=2)
SELECTIVE = ["softmax", "dirichlet", "pairwise_gaussian", "pairwise_marginal", "pairwise_cauchy"]
UNITS = {
    "introduction": {(f"layer_{layer}", scale) for layer in range(6) for scale in (1e-3, 1.0)},
    "robustness": {("softmax", None)} | {(name, scale) for name in SELECTIVE[1:] for scale in (1e-3, 1.0)},
    "selective": {(name, None) for name in SELECTIVE} | {("dirichlet", scale) for scale in (1e-3, 0.1, 1.0)},
}
each_study = pytest.mark.parametrize("name", UNITS)


def settings_of(name, **changes):
    size = dataclasses.replace(SIZE, datasets=None, sigmas=None) if name == "selective" else SIZE
    return Settings(sizes={name: dataclasses.replace(size, **changes)})


def groups_of(name, **changes):
    return [*plan_for(name, **changes).groups.values()]


def plan_for(name, **changes):
    return plan_of([experiment(name)], settings_of(name, **changes), [])


def units_of(name, **changes):
    return plan_for(name, **changes).rows.drop_duplicates("unit")


@each_study
def test_units_are_objectives_by_scales_by_seeds_known_by_all_that_matters(name, made_up):
    units = units_of(name)
    scales = units["sigma"].astype(object).where(units["sigma"].notna(), None)
    assert set(zip(units["objective"], scales, strict=True)) == UNITS[name]
    assert len(units) == 2 * len(UNITS[name])
    for change in ({"epochs": 2}, {"samples": 20}):
        assert set(units["unit"]).isdisjoint(units_of(name, **change)["unit"])


@each_study
def test_groups_travel_to_workers_and_measure_all_that_they_want(name, made_up, cache):
    plan = plan_for(name, nets=1)
    for group_name, group in plan.groups.items():
        rows = plan.rows[plan.rows["group"] == group_name]
        again = pickle.loads(pickle.dumps(group))
        assert (again.title, again.versions) == (group.title, group.versions)
        assert again.rows.equals(group.rows)
        assert group.seconds(rows) > 0
    measured = run.run_group(again, rows)
    assert FAILED not in set(measured["status"])
    accuracy = measured[measured["metric_spec"] == "accuracy"]
    assert set(accuracy["status"]) == {MEASURED}
    assert set(accuracy["rule"]) == set(rows["rule"])


@each_study
def test_a_set_that_is_gone_is_a_failure_of_the_group(name, made_up, cache, monkeypatch):
    plan = plan_for(name)
    group_name, group = next(iter(plan.groups.items()))
    rows = plan.rows[plan.rows["group"] == group_name]

    def gone(*_):
        raise DataMissingError("MNIST is not there")

    monkeypatch.setattr(ImageClassification, "load", gone)
    measured = run.run_group(group, rows)
    assert set(measured["status"]) == {FAILED}
    assert set(measured["reason"]) == {"MNIST is not there"}
    assert len(measured) == len(rows.drop_duplicates(CELL))


@each_study
def test_missing_files_of_a_data_set_are_named_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SDP_BENCH_DATA", str(tmp_path))
    with pytest.raises(DataMissingError, match=r"(MNIST train|EMNIST letters test) is not in") as caught:
        groups_of(name)
    assert "\n" not in str(caught.value)


@each_study
@pytest.mark.parametrize(
    ("owner", "attribute", "changed"),
    [
        (
            SDP,
            "version",
            {"selective": {"pairwise_gaussian", "pairwise_cauchy"}, "robustness": {"pairwise_gaussian"}},
        ),
        (MarginalMomentMatching, "version", {"selective": {"dirichlet"}, "robustness": {"dirichlet"}}),
        (classifiers, "VERSION", None),
    ],
)
def test_numbers_rest_on_the_versions_of_experiment_training_and_rule(
    name, owner, attribute, changed, made_up, monkeypatch
):
    def versions():
        return {group.objective: group.versions for group in groups_of(name)}

    before = versions()
    monkeypatch.setattr(owner, attribute, 2)
    after = versions()
    other = {objective for objective in before if before[objective] != after[objective]}
    assert other == (set(before) if changed is None else changed.get(name, set()))


@pytest.mark.parametrize(
    ("change", "trained", "message"),
    [
        ({}, 1, "one class"),
        ({"train": dataclasses.replace(TRAIN, labels=TRAIN.labels + 1)}, None, "got 10"),
        ({"test": dataclasses.replace(TEST, labels=TEST.labels - 1)}, None, "lie in 0..9"),
    ],
)
def test_bad_images_are_refused_in_one_line(change, trained, message, monkeypatch):
    splits = {"train": TRAIN, "test": TEST} | change
    monkeypatch.setattr(ImageClassification, "load", lambda _, split: splits[split])
    with pytest.raises(UserError, match=message) as caught:
        classifiers.load_images("mnist", trained)
    assert "\n" not in str(caught.value)
