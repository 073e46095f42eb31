"""Speed of a group and of a sweep: `pytest benchmarks/test_group_speed.py --benchmark-enable -s`.

Both sides run by turns and every ratio is the median of ratios of neighbours. Nothing is asserted
about time.
"""

import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import as_completed

import pytest
import torch

from sdp_bench.bench.executors.local import LocalProcesses
from sdp_bench.bench.experiments import chosen
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.experiments.presets import PRESETS
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.total_variation import HeadlineTotalVariation
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import committed
from sdp_bench.bench.nets.recipes import Recipe
from sdp_bench.bench.runs import group as run
from sdp_bench.bench.runs.plan import plan_of

ROUNDS = 5
SETTINGS = PRESETS["paper"].but(nets=1, inputs=2, depths=(4,))


def groups() -> list[LawGroup]:
    nets = committed(Architecture(4), Recipe(), 1)
    return list(plan_of(chosen(["iris-tv"]), SETTINGS, nets).groups)


def oracles_of(group: LawGroup) -> int:
    """The oracles of a group alone: drawn, and counted in the cells of its metrics."""
    net, law = group.net.build(), group.law
    counted = 0
    for place, subject in enumerate(group.subjects):
        oracle = Oracle(net, law[place], subject.key, group.settings.sampling)
        headline = HeadlineTotalVariation(cells=512, pilot_samples=group.settings.sampling.pilot_samples)
        counted += len(oracle.counts(headline.partition(oracle)))
    return counted


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@pytest.mark.usefixtures("threads")
def test_a_group_against_its_oracles(benchmark, capsys: pytest.CaptureFixture[str]) -> None:
    """All rules and total variations of a group at four ReLU layers, against its oracles alone."""
    group = groups()[1]
    oracles_of(group)  # warm
    run.run_group(group, group.cells)
    sides = [
        (seconds(lambda: run.run_group(group, group.cells)), seconds(lambda: oracles_of(group)))
        for _ in range(ROUNDS)
    ]
    whole, oracle = (statistics.median(side) for side in zip(*sides, strict=True))
    ratio = statistics.median(a / b for a, b in sides)
    benchmark.pedantic(run.run_group, (group, group.cells), rounds=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    with capsys.disabled():
        print(
            f"\n{torch.get_num_threads()} thread(s): "
            f"group of {len(group.subjects)} inputs, {len(group.subjects[0].rules)} rules: {whole:.2f} s; "
            f"its oracles alone {oracle:.2f} s; ratio {ratio:.2f}; peak memory {peak:.2f} GiB"
        )


def test_throughput_by_jobs(benchmark, capsys: pytest.CaptureFixture[str]) -> None:
    """The same groups by one worker and by two, one thread each."""
    work = groups()[:4]

    def sweep(jobs: int) -> None:
        with LocalProcesses(jobs, threads=1) as executor:
            for future in as_completed([executor.submit(run.run_group, g, g.cells) for g in work]):
                future.result()

    sides = [(seconds(lambda: sweep(1)), seconds(lambda: sweep(2))) for _ in range(3)]
    benchmark.pedantic(sweep, (2,), rounds=1)
    ratio = statistics.median(one / two for one, two in sides)
    with capsys.disabled():
        print(f"\n{len(work)} groups: two workers are {ratio:.2f} times as fast as one")
