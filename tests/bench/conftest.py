"""A run small enough for tests: a net of 8 units, few samples."""

from pathlib import Path

import pytest

from bench import environment, run, suites
from bench.settings import Settings
from bench.store import Store
from bench.training import get_nets

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
    return store.begin_run(
        command="test",
        preset="quick",
        settings=settings.as_dict(),
        suites={name: [list(part) for part in parts] for name, parts in plan.suites.items()},
        left_out=plan.left_out,
        environment=environment.describe("cpu", 1, 1),
        nets={group.net.digest: group.net for group in plan.groups}.values(),
        subjects=[
            (s.key.hex, group.net.digest, s.row, group.sigma, s.key.sampler, s.key.samples)
            for group in plan.groups
            for s in group.subjects
        ],
        members=plan.members,
    )


def run_all(path: Path, plan, settings=TINY, groups=None):
    """Run groups in this process and store them; returns what `frame` then gives."""
    with Store(path, writing=True) as store:
        number = begin(store, plan, settings)
        done = run.fresh(store, plan)
        for group in plan.groups if groups is None else groups:
            result = run.run_group(group, done)
            store.write_group(number, result.records, result.failures, run.wanted(group, done))
        store.finish_run(number, 1.0)
        return store.frame(store.run(number))
