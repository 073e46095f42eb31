"""What a run may be asked for: suites and tasks together, and what is left out said."""

import dataclasses

import numpy as np
import pytest
import torch
from sdp_bench.bench.experiments.suites import SUITES

from sdp_bench.bench.datasets.base import RegressionTable, TabularRegression
from sdp_bench.bench.datasets.download import DataMissingError
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments.uci import experiment
from sdp_bench.bench.results.record import LeftOut
from sdp_bench.bench.runs import plan as experiments
from sdp_bench.bench.runs.plan import TASKS, Work, chosen, work_of
from tests.bench.conftest import TINY, make_plan

SETTINGS = dataclasses.replace(TINY, nets=2, datasets=("yacht", "boston"))


@pytest.fixture
def _sets(monkeypatch):
    random = np.random.default_rng(0)
    x, y = (torch.from_numpy(random.standard_normal(shape)) for shape in ((60, 3), 60))
    monkeypatch.setattr(
        TabularRegression, "load", lambda self: RegressionTable(self.title, x, y, (self.name,))
    )


def missing(*_):
    raise DataMissingError("it is not there")


def test_suites_and_tasks_are_asked_for_by_name():
    suites, tasks = chosen(["uci", "iris-tv", "uci"])
    assert [s.name for s in suites] == ["iris-tv"]
    assert tasks == [experiment.TASK]
    with pytest.raises(UserError, match=r"unknown suite 'iris'; choose from iris-tv, .*, uci, selective"):
        chosen(["iris"])
    assert not set(SUITES) & set(TASKS)


@pytest.mark.usefixtures("_sets")
def test_the_shards_of_a_run_are_all_of_it():
    plan = make_plan(TINY)
    whole = Work(plan, {"uci": experiment.TASK.expand(experiment.TASK, SETTINGS)})
    shards = [whole.shard(part, 3) for part in (1, 2, 3)]
    titles = [group.title for shard in shards for group in shard.groups]
    assert sorted(titles) == sorted(group.title for group in whole.groups)
    assert {m for shard in shards for m in shard.members} == set(whole.members)
    for shard in shards:
        keys = {subject.key.hex for group in shard.groups for subject in group.subjects}
        assert {key for _, key in shard.members} == keys


@pytest.mark.usefixtures("_sets")
def test_a_set_is_one_experiment_of_several_groups():
    work = work_of([], [experiment.TASK], SETTINGS, [])
    assert len(work.groups) == 2 * 4  # sets and objectives
    assert [(unit.dataset, unit.seed) for unit in work.units] == [
        *(("yacht", 0), ("yacht", 1)),
        *(("boston", 0), ("boston", 1)),
    ]
    assert len(work.members) == len(set(work.members)) == 2 * 2  # sets and seeds


def test_a_task_without_its_data_is_left_out_where_there_is_other_work(monkeypatch):
    task = dataclasses.replace(experiment.TASK, expand=missing)
    monkeypatch.setitem(experiments.TASKS, "uci", task)
    with pytest.raises(DataMissingError):
        work_of([], [task], SETTINGS, [])
    suites, _ = chosen(["iris-std"])
    nets = [group.net for group in make_plan(TINY, ["iris-std"]).groups]
    work = work_of(suites, [task], TINY, list({net.digest: net for net in nets}.values()))
    assert work.left_out == (LeftOut(None, "uci", "uci: it is not there"),)
    assert work.groups
