"""The table of ratios in docs/runtime.md: `python benchmarks/ratios.py`, some minutes on a quiet machine.

Rules beside the regular pass and the paper's package (where it is installed), and the oracle beside sgemm, on
one thread and on two. Each row is a process of its own, since what an allocator keeps depends on what ran
before. There all sides take turns, and a ratio is the median over rounds of the ratios within a round.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
from collections.abc import Callable

import torch
from torch import nn

from sdp_bench import oracles
from sdp_bench.bench.environment import cpu_name
from sdp_bench.bench.runtime.timing import REGULAR, Ratio, by_turns
from sdp_bench.bench.runtime.workloads import DISTPROP, RULES, SHORT, Workload
from sdp_ref.laws import DiagonalGaussian

NETS = {"cnn3": 64, "resnet18": 8}
METHODS = ("sdp", "marginal_sdp", "marginal_moment_matching", SHORT)
ORACLE = "oracle"
WIDTHS, SAMPLES, GEMM = (4, 100, 100, 100, 100, 3), 10**6, 2048
COLUMNS = ("one thread", "two threads")


def rows() -> list[tuple[str, str, str]]:
    """Net, phase and method of each row."""
    passes = [(net, phase, method) for net in NETS for phase in ("forward", "training") for method in METHODS]
    return [*passes, (ORACLE, "10^6 samples", "share of sgemm's rate")]


def measured(net: str, phase: str, method: str, threads: int, rounds: int) -> str:
    """One cell of the table."""
    torch.set_num_threads(threads)
    if net == ORACLE:
        return _oracle(rounds)
    workload = Workload.of(net, NETS[net])
    make = workload.forward if phase == "forward" else workload.training_step
    sides = [REGULAR, method]
    if method == "sdp" and DISTPROP in workload.methods():
        sides.append(DISTPROP)
    times = by_turns({side: make(side) for side in sides}, rounds)
    text = _told(Ratio.of(times[method], times[REGULAR]))
    if DISTPROP in times:
        text += f"; {_told(Ratio.of(times[DISTPROP], times[method]))} times as fast as distprop"
    return text


def _oracle(rounds: int) -> str:
    torch.manual_seed(0)
    layers = [(nn.Linear(n, m), nn.ReLU()) for n, m in itertools.pairwise(WIDTHS)]
    net = nn.Sequential(*list(itertools.chain(*layers))[:-1])
    x = DiagonalGaussian(torch.tensor([[5.8, 3.1, 3.8, 1.2]]), torch.ones(1, 4))
    bins = oracles.AxisBins.from_samples(oracles.sample_outputs(net, x, 2**16, seed=1))
    matrix = torch.randn(GEMM, GEMM)
    product = torch.empty_like(matrix)
    works: dict[str, Callable[[], object]] = {
        "draws": lambda: bins.counts(oracles.sample_outputs(net, x, SAMPLES, seed=2)),
        "sgemm": lambda: torch.mm(matrix, matrix, out=product),
    }
    times = by_turns(works, rounds)
    work = 2 * SAMPLES * sum(n * m for n, m in itertools.pairwise(WIDTHS)) / (2 * GEMM**3)
    return _told(Ratio.of([work * seconds for seconds in times["sgemm"]], times["draws"]))


def _told(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} ({ratio.lower:.2f} to {ratio.upper:.2f})"


def main() -> None:
    """Print the table."""
    assert set(RULES) <= set(METHODS)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    again = [sys.executable, __file__, "--rounds", str(options.rounds), "--cell"]
    if options.cell:
        *row, threads = options.cell
        print(measured(*row, int(threads), options.rounds))
        return
    print(f"{cpu_name()}, torch {torch.__version__}, {options.rounds} rounds\n")
    print(f"| | {' | '.join(COLUMNS)} |\n| --- | --- | --- |")
    for row in rows():
        cells = []
        for threads in range(1, len(COLUMNS) + 1):
            found = subprocess.run([*again, *row, str(threads)], check=True, capture_output=True, text=True)
            cells.append(found.stdout.strip())
        net, phase, method = row
        print(f"| {net}, {phase}, `{method}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
