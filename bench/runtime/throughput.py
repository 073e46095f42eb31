"""The asv suite: rates of the oracle and of the certified Wasserstein distance, on one thread."""

from __future__ import annotations

import statistics
from typing import Any, ClassVar

import numpy as np
import torch

import sdp_ref as sr

from . import shown
from .timing import Ratio, by_turns, clock, sized
from .workloads import mlp

NET, SAMPLES, GEMM, ROUNDS = "mlp-4x100", 2**19, 2048, 5


class Oracle:
    """Draws of noise, their forward pass, and counts in cells, next to products of large matrices."""

    timeout = 300

    def setup_cache(self) -> tuple[float, float]:
        """Return the time (ms) of a million samples, and its ratio to sgemm's for as many operations."""
        from sdp_bench import oracles

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
        ratio = Ratio.of(times["oracle"], times["sgemm"]).median * GEMM**3 / (SAMPLES * weights)
        return 1e9 * statistics.median(times["oracle"]) / SAMPLES, ratio

    @shown("time of a million samples of the oracle", "ms")
    def track_time(self, costs: tuple[float, float]) -> float:
        return costs[0]

    @shown("time of the oracle relative to that of sgemm for as many operations", "ratio")
    def track_ratio_to_sgemm(self, costs: tuple[float, float]) -> float:
        return costs[1]


class CertifiedW1:
    """Bounds of the 1-Wasserstein distance between two samples in three dimensions."""

    param_names: ClassVar = ["points"]
    params: ClassVar = [[1000, 8000]]
    timeout = 300

    def setup(self, points: int) -> None:
        """Draw both samples; NotImplementedError skips commits without this distance."""
        try:
            from sdp_bench.oracles.transport import certified
        except ImportError as error:
            raise NotImplementedError("no certified W1 in this version") from error
        torch.set_num_threads(1)
        self.bracket: Any = certified.certified_wasserstein
        self.samples = np.random.default_rng(0).standard_normal((2, points, 3))

    timer = staticmethod(clock)
    number, warmup_time = 1, 0

    @shown("certified W1")
    def time_bracket(self, _points: int) -> None:
        self.bracket(*self.samples, seconds=300)

    @shown("width of the bracket of W1", "share of its upper end")
    def track_width(self, _points: int) -> float:
        bracket = self.bracket(*self.samples, seconds=300)
        return float(1 - bracket.lower / bracket.upper)
