"""Speed of the oracle: `pytest benchmarks/test_oracle_speed.py --benchmark-enable -s`.

All sides run by turns in the same process and every ratio is the median of ratios of neighbours, since
a shared machine's speed drifts by more than what is measured. Nothing is asserted about time.
"""

import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sdp_bench import oracles
from sdp_ref.laws import DiagonalGaussian

SAMPLES = 10**6
WIDTHS = (4, 100, 100, 100, 100, 3)
ROUNDS = 9
GEMM = 2048


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(WIDTHS):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def law() -> DiagonalGaussian:
    return DiagonalGaussian(torch.tensor([[5.8, 3.1, 3.8, 1.2]]), torch.ones(1, 4))


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@pytest.mark.usefixtures("threads")
def test_oracle_against_sequential_and_histogramdd(benchmark, capsys: pytest.CaptureFixture[str]) -> None:
    """Draw, forward and bin 10^6 samples, against one call on all of them and histogramdd."""
    net, x = network(), law()
    bins = oracles.AxisBins.from_samples(oracles.sample_outputs(net, x, 2**16, seed=1))
    edges = [np.linspace(low, high, bins.bins + 1) for low, high in zip(bins.low, bins.high, strict=True)]
    matrix = torch.randn(GEMM, GEMM)
    product = torch.empty(GEMM, GEMM)

    def oracle() -> object:
        return bins.counts(oracles.sample_outputs(net, x, SAMPLES, seed=2))

    @torch.no_grad()
    def plain() -> object:
        inputs: Tensor = x.mean + x.variance.sqrt() * torch.randn(SAMPLES, 4)
        return np.histogramdd(net(inputs).numpy(), bins=edges)

    def gemm() -> object:
        return torch.mm(matrix, matrix, out=product)

    plain_seconds: list[float] = []
    gemm_seconds: list[float] = []

    def other_sides() -> None:
        plain_seconds.append(seconds(plain))
        gemm_seconds.append(min(seconds(gemm) for _ in range(3)))

    oracle(), plain(), gemm()
    rounds = ROUNDS if benchmark.enabled else 1
    oracle_seconds: list[float] = []
    benchmark.pedantic(
        lambda: oracle_seconds.append(seconds(oracle)), setup=other_sides, rounds=rounds, iterations=1
    )

    flops = 2 * SAMPLES * sum(a * b for a, b in pairwise(WIDTHS))
    faster = [p / o for p, o in zip(plain_seconds, oracle_seconds, strict=True)]
    share = [(flops / o) / (2 * GEMM**3 / g) for o, g in zip(oracle_seconds, gemm_seconds, strict=True)]
    figures = {
        "times faster than plain": statistics.median(faster),
        "share of sgemm rate": statistics.median(share),
        "oracle seconds": statistics.median(oracle_seconds),
        "plain seconds": statistics.median(plain_seconds),
        "sgemm GFLOP/s": 2 * GEMM**3 / statistics.median(gemm_seconds) / 1e9,
    }
    benchmark.extra_info.update(figures)
    with capsys.disabled():
        print(f"\n{SAMPLES} samples, {'-'.join(map(str, WIDTHS))}, {torch.get_num_threads()} threads")
        for name, figure in figures.items():
            print(f"  {name:24s} {figure:8.2f}")
