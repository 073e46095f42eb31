"""A run small enough for tests: a net of 8 units, few samples."""

import shutil

import numpy as np
import pytest
import torch

from sdp_bench.bench import environment
from sdp_bench.bench.datasets.base import RegressionTable, TabularRegression
from sdp_bench.bench.experiments import experiment
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.experiments.plan import plan_of
from sdp_bench.bench.identity import software
from sdp_bench.bench.nets.fully_connected import get_nets
from sdp_bench.bench.results.columns import keys
from sdp_bench.bench.results.folder import MEASURED, Writer, new_run, read, write_measurements
from sdp_bench.bench.results.joined import joined_measurements
from sdp_bench.bench.runs.driver import execute, kinds_of, left_to_measure, run_group
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
def tiny_results(tmp_path_factory):
    """Results of a run of TINY, for tests that do not change them."""
    folder = tmp_path_factory.mktemp("tiny") / "results"
    run_all(folder, make_plan(TINY))
    return folder


@pytest.fixture
def tiny_copy(tiny_results, tmp_path):
    """A copy of them that a test may change."""
    return shutil.copytree(tiny_results, tmp_path / "copy")


def make_plan(settings, names=("iris-tv", "iris-w1", "iris-std")):
    """Plan of experiments, by name or as such, on the nets that they ask for."""
    experiments = [experiment(name) if isinstance(name, str) else name for name in names]
    kinds = kinds_of(experiments, settings)
    nets = [net for kind, seeds in kinds.items() for net in get_nets(*kind, range(seeds))]
    return plan_of(experiments, settings, nets)


def nets_of(plan):
    """Return the distinct nets of a plan."""
    groups = [group for group in plan.groups.values() if isinstance(group, LawGroup)]
    return list({group.net.digest: group.net for group in groups}.values())


def made_up_tables(patch, rows):
    """Replace the content of each regression set by a noisy function of three features."""
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.standard_normal((rows, 3)))
    y = x[:, 0].tanh() + torch.from_numpy(random.standard_normal(rows)) / 10
    load = lambda table: RegressionTable(table.title, x, y, (f"{table.name}.txt",))  # noqa: E731
    patch.setattr(TabularRegression, "load", load)


def change(folder, edit):
    """Replace stored measurements by what `edit` makes of them, as if they had been written so."""
    stored = read(folder).measurements
    measured = edit(stored.astype(dict.fromkeys(stored.select_dtypes("category"), object)))
    shutil.rmtree(folder / MEASURED)
    write_measurements(folder, "changed", measured)


def begin(folder, plan, settings=TINY):
    """Record a run of a plan."""
    return new_run(
        folder,
        plan.rows,
        {net.digest: net.to_bytes() for net in nets_of(plan)},
        command="sdp-bench run",
        preset="quick",
        settings=settings.as_dict(),
        experiments=tuple(plan.rows["experiment"].unique()),
        left_out=plan.left_out,
        environment=environment.describe("cpu", 1, 1),
        code=software()["code"],
    )


def left(plan, folder):
    """Return the rows that are left to measure, by the names of their groups in the order of the plan."""
    rows, _ = left_to_measure(plan.rows, folder)
    return {str(name): part for name, part in rows.groupby("group", sort=False)}


def run_all(folder, plan, groups=None, executor=None, settings=TINY):
    """Measure groups, given by name, in this process or by an executor, and store what was not stored.

    Returns what the newest run then has.
    """
    todo = left(plan, folder)
    todo = {name: todo[name] for name in groups or todo if name in todo}
    writer = Writer(begin(folder, plan, settings))
    if executor is None:
        for name, rows in todo.items():
            writer.write(name, run_group(plan.groups[name], rows))
    else:
        for name, measured in execute(plan, todo, executor):
            writer.write(name, measured)
    writer.finish(1.0)
    return frame_of(folder)


def frame_of(folder):
    """Return the measurements of the newest run."""
    stored = read(folder)
    frame = joined_measurements(stored, [stored.run()])
    return frame.assign(key=keys(frame))


def statuses(folder):
    """Return the stored measurements of each cell, failed ones too, with text as such."""
    rows = read(folder).measurements
    return rows.astype(dict.fromkeys(rows.select_dtypes("category"), object))
