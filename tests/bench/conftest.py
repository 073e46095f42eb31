"""A run small enough for tests: a net of 8 units, few samples."""

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch

from sdp_bench.bench import environment
from sdp_bench.bench.datasets.base import RegressionTable, TabularRegression
from sdp_bench.bench.experiments import experiment
from sdp_bench.bench.nets.fully_connected import get_nets
from sdp_bench.bench.nets.net import stored
from sdp_bench.bench.results import schema
from sdp_bench.bench.results.queries import keys
from sdp_bench.bench.results.record import RunDescription
from sdp_bench.bench.results.schema import TABLES
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.runs import driver as run
from sdp_bench.bench.runs.driver import kinds_of
from sdp_bench.bench.runs.plan import plan_of
from sdp_bench.bench.settings import Settings, Size

SIZES = {"iris-tv": Size(2, 2), "iris-std": Size(2, 2), "iris-w1": Size(2, 1)}
RULES = ("sdp", "monte_carlo:samples=10", "marginal_moment_matching")
SMALL = Settings().but(depths=(1,), width=8, sizes=SIZES, sigmas=(1e-3, 10.0), training={"epochs": 100})
TINY = SMALL.but(samples=2048, pilot_samples=1024, cells=16, bins=3, difference_bins=8, w1_points=100)
TINY = TINY.but(rules=RULES)


@pytest.fixture
def plan():
    return make_plan(TINY)


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory):
    """A results file of a run of TINY, for tests that do not change it."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.sqlite"
    run_all(path, make_plan(TINY))
    return path


@pytest.fixture
def tiny_copy(tiny_file, tmp_path):
    """A copy of it that a test may change."""
    return shutil.copy(tiny_file, tmp_path / "copy.sqlite")


def make_plan(settings, names=("iris-tv", "iris-w1", "iris-std")):
    """Plan of experiments, by name or as such, on the nets that they ask for."""
    experiments = [experiment(each) if isinstance(each, str) else each for each in names]
    kinds = kinds_of(experiments, settings)
    nets = [net for kind, seeds in kinds.items() for net in get_nets(*kind, range(seeds))]
    return plan_of(experiments, settings, nets)


def made_up_tables(patch, rows):
    """Replace the content of each regression set by a noisy function of three features."""
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.standard_normal((rows, 3)))
    y = x[:, 0].tanh() + torch.from_numpy(random.standard_normal(rows)) / 10
    load = lambda own: RegressionTable(own.title, x, y, (f"{own.name}.txt",))  # noqa: E731
    patch.setattr(TabularRegression, "load", load)


def change(path, statement, values=()):
    """Change a results file behind the back of the package, as if it had been written so."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)
        schema.seal(db, dict.fromkeys(TABLES))


def begin(store, plan):
    nets = {group.net.digest: stored(group.net) for group in plan.groups if hasattr(group, "net")}
    request = RunDescription(
        command="sdp-bench run",
        preset="quick",
        settings=plan.settings.as_dict(),
        experiments=plan.experiments,
        left_out=plan.left_out,
        environment=environment.describe("cpu", 1, 1),
    )
    return store.begin_run(
        request, nets=nets.values(), units=plan.units, rules=plan.rules, members=plan.members
    )


def run_all(path, plan, groups=None, executor=None):
    """Run groups, in this process or by an executor, and store them; returns what `frame` then gives."""
    groups = plan.groups if groups is None else groups
    with Store(path, writing=True) as store:
        number = begin(store, plan)
        done = run.current(store, plan.groups)
        if executor is not None:
            assert len(list(run.execute(groups, done, store, number, executor))) == len(groups)
        else:
            for group in groups:
                cells = group.left(done)
                run.store_result(store, number, group, run.run_group(group, cells), cells)
        store.finish_run(number, 1.0)
    return frame_of(path)


def frame_of(path):
    with Store(path) as store:
        return store.frame(store.run()).assign(key=keys)
