"""The asv suite: cost of each rule relative to the regular pass, in time and in counted operations."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import ClassVar

import torch
from torch.utils.flop_counter import FlopCounterMode

from . import shown
from .propagation import BATCHES, MLP_BATCH
from .timing import REGULAR, TimeRatio, by_turns
from .workloads import RULES, Workload

SECONDS, ROUNDS = 1, (5, 100)
"""Time spent on a ratio, and the least and largest number of rounds."""
PHASES = {"forward": "forward", "training step": "training_step"}
Cost = tuple[TimeRatio, float]
"""Relative time, and relative number of operations."""


def operations(work: Callable[[], object]) -> int:
    """Floating-point operations of matrix products and convolutions, of a function's second call."""
    work()  # the first call also prepares what later ones reuse
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def cost(net: str, method: str, phase: str) -> Cost:
    """Return the cost of a method on a named net, as a multiple of the regular pass.

    Both are timed by turns in one process, on one thread, so that other load affects both.
    """
    torch.set_num_threads(1)
    make = getattr(Workload.of(net, BATCHES.get(net, MLP_BATCH)), PHASES[phase])
    works = {REGULAR: make(REGULAR), method: make(method)}
    once = sum(seconds for (seconds,) in by_turns(works, 1, warmup=2).values())
    times = by_turns(works, min(max(round(SECONDS / once), ROUNDS[0]), ROUNDS[1]), warmup=0)
    counted = operations(works[method]) / operations(works[REGULAR])
    return TimeRatio.of(times[method], times[REGULAR]), counted


class RelativeCost:
    """The paper's numbers: a pass or training step of a rule, as a multiple of the net's own."""

    param_names: ClassVar = ["net", "method", "phase"]
    params: ClassVar = [["mlp-4x100", "cnn3", "resnet18"], [*RULES, "moment_matching"], [*PHASES]]
    version = 1  # the committed results have it; raise it if the measurement changes

    def setup_cache(self) -> dict[tuple[str, str, str], Cost]:
        """Measure all ratios, once per commit, without nets and rules that the commit lacks."""
        costs = {}
        for net, method, phase in itertools.product(*self.params):
            if method == "moment_matching" and net != "mlp-4x100":
                continue  # the covariances of cnn3 need 16384 x 16384 numbers per input
            with contextlib.suppress(NotImplementedError, LookupError):
                costs[net, method, phase] = cost(net, method, phase)
        return costs

    setup_cache.timeout = 3600  # type: ignore[attr-defined]

    def setup(self, costs: dict[tuple[str, str, str], Cost], *key: str) -> None:
        """NotImplementedError skips a combination."""
        if key not in costs:
            raise NotImplementedError("not measured")
        self.ratio, self.operations = costs[key]

    @shown("time relative to the regular pass", "ratio")
    def track_ratio(self, *_: object) -> float:
        return self.ratio.median

    @shown("upper over lower quartile of the relative time", "ratio")
    def track_spread_of_ratio(self, *_: object) -> float:
        return self.ratio.upper / self.ratio.lower

    @shown("matrix products and convolutions relative to the regular pass", "ratio")
    def track_operations(self, *_: object) -> float:
        return self.operations
