"""The asv suite: the rate of the oracle, on one thread."""

from __future__ import annotations

import statistics

import torch

import sdp_ref as sr

from . import shown
from .timing import TimeRatio, by_turns, sized
from .workloads import mlp

NET, SAMPLES, GEMM, ROUNDS = "mlp-4x100", 2**19, 2048, 5


class Oracle:
    """Draws of noise, their forward pass, and counts in cells, next to products of large matrices."""

    timeout = 300

    def setup_cache(self) -> tuple[float, float]:
        """Return the time (ms) of a million samples, and its ratio to sgemm's for as many operations."""
        from ... import oracles

        torch.set_num_threads(1)
        torch.manual_seed(0)
        net = mlp(sized(NET))  # type: ignore[arg-type]
        law = sr.DiagonalGaussian(torch.tensor([[5.8, 3.1, 3.8, 1.2]]), torch.ones(1, 4))
        cells = oracles.AxisBins.from_samples(oracles.sample_outputs(net, law, 2**16, seed=1))
        matrix, product = torch.randn(GEMM, GEMM), torch.empty(GEMM, GEMM)
        sides = {
            "oracle": lambda: cells.counts(oracles.sample_outputs(net, law, SAMPLES, seed=2)),
            "sgemm": lambda: torch.mm(matrix, matrix, out=product),
        }
        times = by_turns(sides, ROUNDS)
        weights = sum(p.numel() for p in net.parameters() if p.ndim == 2)
        ratio = TimeRatio.of(times["oracle"], times["sgemm"]).median * GEMM**3 / (SAMPLES * weights)
        return 1e9 * statistics.median(times["oracle"]) / SAMPLES, ratio

    @shown("time of a million samples of the oracle", "ms")
    def track_time(self, costs: tuple[float, float]) -> float:
        return costs[0]

    @shown("time of the oracle relative to that of sgemm for as many operations", "ratio")
    def track_ratio_to_sgemm(self, costs: tuple[float, float]) -> float:
        return costs[1]
