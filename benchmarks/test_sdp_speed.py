"""Speed of full SDP beside the paper's package: `pytest benchmarks/test_sdp_speed.py --benchmark-enable -s`.

Needs ``pip install --no-deps distprop==0.1.0`` (it uses torch and numpy). One thread, then two; methods take
turns and every ratio is the median of ratios of one round, with quartiles. On one thread times are of the
process, which other load on the machine changes less than the wall clock. Results are asserted to agree,
nothing is asserted about time.
"""

import statistics
from collections.abc import Callable
from functools import partial

import pytest
import torch

from sdp_bench.bench.runtime.timing import REGULAR, Ratio, by_turns
from sdp_bench.bench.runtime.workloads import DISTPROP, RULES, SHORT, Workload

pytest.importorskip(DISTPROP)

CASES = {"cnn3": (64, 11), "resnet18": (8, 5)}
WITH_GRAPH = "distprop as it comes"  # keeps the Jacobian's graph in a forward pass too
pytestmark = pytest.mark.usefixtures("threads")


def prepared(make: Callable[[str], Callable[[], object]], methods: tuple[str, ...]) -> dict[str, Callable]:
    works = {}
    for method in methods:
        try:
            works[method] = make(method)
        except NotImplementedError as error:
            print(f"  left out: {error}")
    return works


def report(title: str, times: dict[str, list[float]]) -> dict[str, float]:
    print(f"\n{title}, {torch.get_num_threads()} thread(s)")
    against = {}
    for name, seconds in times.items():
        regular, theirs = Ratio.of(seconds, times[REGULAR]), Ratio.of(times[DISTPROP], seconds)
        against[name] = theirs.median
        print(
            f"  {name:40s} {1e3 * statistics.median(seconds):9.1f} ms"
            f" {regular.median:7.2f} x regular [{regular.lower:.2f}, {regular.upper:.2f}]"
            f" {theirs.median:6.2f} times as fast as distprop [{theirs.lower:.2f}, {theirs.upper:.2f}]"
        )
    return against


@pytest.mark.parametrize("name", CASES)
def test_forward(benchmark, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    batch, rounds = CASES[name] if benchmark.enabled else (2, 1)
    workload = Workload.of(name, batch)
    with capsys.disabled():
        works = prepared(workload.forward, (REGULAR, *RULES, SHORT, DISTPROP))
        works[WITH_GRAPH] = workload._distprop(create_graph=True)
        times = by_turns(works, rounds)
        against = report(f"{name}, batch {batch}, forward", times)
    value, covariance = works["sdp"]()
    their_value, theirs = works[DISTPROP]()
    assert (covariance - theirs).abs().max() < 1e-4 * theirs.abs().max()
    assert torch.allclose(value, their_value, atol=1e-5)
    benchmark.extra_info["times as fast as distprop"] = against["sdp"]
    benchmark.pedantic(works["sdp"], rounds=1)


@pytest.mark.parametrize("name", CASES)
def test_training_step(benchmark, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    batch, rounds = CASES[name] if benchmark.enabled else (2, 1)
    workload = Workload.of(name, batch)
    with capsys.disabled():
        works = prepared(workload.training_step, (REGULAR, *RULES, SHORT, DISTPROP))
        against = report(f"{name}, batch {batch}, training step", by_turns(works, max(1, rounds // 2)))
    gradients = {}
    for method in ("sdp", DISTPROP):
        works[method]()
        gradients[method] = [p.grad.clone() for p in workload.net.parameters()]
    for ours, theirs in zip(*gradients.values(), strict=True):
        assert (ours - theirs).abs().max() <= 1e-3 * theirs.abs().max()
    benchmark.extra_info["times as fast as distprop"] = against["sdp"]
    benchmark.pedantic(partial(works["sdp"]), rounds=1)
