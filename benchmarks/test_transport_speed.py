"""Speed of the certified W1: `pytest benchmarks/test_transport_speed.py --benchmark-enable -s`.

At 8000 points next to the exact network simplexes of POT, on a matrix of costs (`emd2`) and with costs
computed on the fly (`emd2_lazy`): by turns, with the median of the ratios of neighbours. At 30 000 points,
where the cost matrix alone takes 7.2 GB, alone. Each call has a separate process with one thread, which
reports its peak memory and its time without imports. Nothing is asserted about time.
"""

import resource
import statistics
import sys
import time
from functools import partial

import numpy as np
import pytest

from sdp_bench.bench.executors.local import Limits, in_separate_process

SMALL, LARGE, ROUNDS = 8000, 30_000, 3


def transport(side: str, case: str, n: int) -> list[float]:
    """Lower and upper bound, seconds, and peak memory in GB."""
    import ot

    from sdp_bench.oracles.transport.certified import certified_wasserstein

    generator = np.random.default_rng(0)
    flat = np.array([[1.0, 0.5, -0.7], [0.05, -0.1, 0.02], [0.002, 0.001, 0.004]])
    normals = generator.standard_normal((2, n, 3))
    x, y = normals @ flat if case == "flat" else normals
    if case == "shifted":
        y += [1.0, 0.0, 0.0]
    elif case == "ReLU":
        x, y = np.maximum(x, 0), np.maximum(y + 0.1, 0)
    elif case == "Cauchy":
        x, y = generator.standard_cauchy((2, n, 3))
    start = time.perf_counter()
    if side == "certified":
        bracket = certified_wasserstein(x, y, seconds=300)
        lower, upper = bracket.lower, bracket.upper
    elif side == "lazy":
        lower = upper = ot.lp.emd2_lazy(x, y, metric="euclidean", numItermax=10**8, return_matrix=False)
    else:
        weights = np.full(n, 1 / n)
        lower = upper = ot.emd2(weights, weights, ot.dist(x, y, "euclidean"), numItermax=10**7)
    seconds = time.perf_counter() - start
    unit = 1 if sys.platform == "darwin" else 1024
    return [lower, upper, seconds, unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e9]


measured = partial(in_separate_process, transport, limits=Limits(seconds=3600.0))


def line(name: str, lower: float, upper: float, seconds: float, memory: float) -> str:
    gap = 100 * (1 - lower / upper)
    return f"  {name:24s} [{lower:.6g}, {upper:.6g}] gap {gap:.2f} % {seconds:7.1f} s {memory:5.2f} GB"


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["emd2", "lazy"])
def test_certified_against_an_exact_solver(benchmark, solver: str, capsys: pytest.CaptureFixture) -> None:
    n, rounds = (SMALL, ROUNDS) if benchmark.enabled else (500, 1)
    pairs = [(measured(solver, "flat", n), measured("certified", "flat", n)) for _ in range(rounds)]
    exact, certified = pairs[0]
    assert certified[0] <= exact[0] * (1 + 1e-9)
    assert certified[1] >= exact[1] * (1 - 1e-9)
    faster = statistics.median(e[2] / c[2] for e, c in pairs)
    benchmark.extra_info.update({"times faster than exact": faster, "GB": certified[3]})
    with capsys.disabled():
        print(f"\n{n} points a side, nearly flat, same law: {faster:.1f} times as fast as {solver}")
        print(line(solver, *exact), line("certified", *certified), sep="\n")
    benchmark.pedantic(measured, ("certified", "flat", n), rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["flat", "isotropic", "shifted", "ReLU", "Cauchy"])
def test_certified_at_thirty_thousand(benchmark, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    n = LARGE if benchmark.enabled else 500
    lower, upper, seconds, memory = benchmark.pedantic(measured, ("certified", case, n), rounds=1)
    benchmark.extra_info.update({"lower": lower, "upper": upper, "seconds": seconds, "GB": memory})
    assert lower <= upper
    with capsys.disabled():
        print("\n" + line(f"{n} points, {case}", lower, upper, seconds, memory))
