"""A run small enough for tests: a net of 8 units, few samples."""

from pathlib import Path

import pytest

from sdp_bench.bench import environment
from sdp_bench.bench.experiments import suites
from sdp_bench.bench.nets.fully_connected import get_nets
from sdp_bench.bench.nets.net import stored
from sdp_bench.bench.results.record import RunDescription
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.runs import group as run
from sdp_bench.bench.runs.plan import Work
from sdp_bench.bench.settings import Settings

TINY = Settings(
    depths=(1,),
    width=8,
    sizes={"iris-tv": (2, 2), "iris-std": (2, 2), "iris-w1": (2, 1)},
    samples=2048,
    pilot_samples=1024,
    cells=16,
    w1_points=100,
    sigmas=(1e-3, 10.0),
    rules=("sdp", "monte_carlo:samples=10", "marginal_moment_matching"),
    training={"epochs": 100},
)


@pytest.fixture
def plan():
    return make_plan(TINY)


def make_plan(settings, names=("iris-tv", "iris-w1", "iris-std")):
    chosen = suites.get_suites(list(names))
    wanted = suites.nets_wanted(chosen, settings)
    nets = [net for kind, seeds in wanted.items() for net in get_nets(*kind, range(seeds))]
    return suites.expand(chosen, settings, nets)


def begin(store, plan, settings=TINY):
    """Register a run as the command does."""
    return begin_work(store, Work(plan, left_out=plan.left_out), settings)


def begin_work(store, work, settings):
    """Register a run of suites and tasks."""
    nets = {group.net.digest: stored(group.net) for group in work.plan.groups}
    request = RunDescription(
        command="sdp-bench run",
        preset="quick",
        settings=settings.as_dict(),
        experiments=work.experiments,
        left_out=work.left_out,
        environment=environment.describe("cpu", 1, 1),
    )
    return store.begin_run(
        request, nets=nets.values(), units=work.units, rules=work.rules, members=work.members
    )


def run_all(path: Path, plan, settings=TINY, groups=None):
    """Run groups in this process and store them; returns what `frame` then gives."""
    with Store(path, writing=True) as store:
        number = begin(store, plan, settings)
        done = run.fresh(store, plan)
        for group in plan.groups if groups is None else groups:
            result = run.run_group(group, done)
            run.store_result(store, number, group, result, done)
        store.finish_run(number, 1.0)
        return store.frame(store.run(number))
