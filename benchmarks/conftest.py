"""Shared by the benchmarks: one thread and two, and the times of several sides by turns."""

import statistics

import pytest
import torch

from sdp_bench.bench import environment
from sdp_bench.bench.runtime.timing import TimeRatio, by_turns


def pytest_benchmark_generate_machine_info() -> dict[str, object]:
    return {"cpu": environment.cpu_name(), "cores": environment.cores(), **environment.libraries()}


def pytest_benchmark_compare_machine_info(machine_info: dict, compared_benchmark: dict) -> None:
    saved = compared_benchmark["machine_info"]
    if saved != machine_info:
        raise pytest.UsageError(f"times of another machine: saved on {saved}, this is {machine_info}")


@pytest.fixture(params=(1, 2), ids=("one thread", "two threads"))
def threads(request: pytest.FixtureRequest):
    """Threads of torch during a test: one, then two."""
    with environment.threads(request.param):
        yield request.param


@pytest.fixture
def compare(benchmark, capsys: pytest.CaptureFixture[str]):
    """Function that times sides, given by name, by turns, and prints times and ratios to the first side.

    A ratio is the median, with quartiles, of the ratios within a round, since a shared machine's speed
    drifts. `work` is the amount of work in a call of each side, if they differ: times are then for each unit.
    """

    def compared(title, sides, rounds=9, work=None):
        benchmark.group = f"{title}, {torch.get_num_threads()} thread(s)"
        times = by_turns(sides, rounds if benchmark.enabled else 1)
        if work:
            times = {side: [each / work[side] for each in seconds] for side, seconds in times.items()}
        first = next(iter(sides))
        with capsys.disabled():
            print(f"\n{benchmark.group}")
            for side, seconds in times.items():
                ratio = TimeRatio.of(seconds, times[first])
                benchmark.extra_info[f"{side} / {first}"] = ratio.median
                median = 1e3 * statistics.median(seconds)
                relative = f"{ratio.median:8.2f} x {first} [{ratio.lower:.2f}, {ratio.upper:.2f}]"
                print(f"  {side:42s} {median:11.4g} ms {relative}")
        benchmark.pedantic(sides[first], rounds=1)
        return times

    return compared
