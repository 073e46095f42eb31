"""The asv suite: cost of each rule relative to the regular pass, in time and in counted operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch.utils.flop_counter import FlopCounterMode

from .propagation import BATCHES, MLP_BATCH
from .timing import REGULAR, Ratio, by_turns
from .workloads import RULES, Workload

ROUNDS = 15


def operations(work: Callable[[], object]) -> int:
    """Floating-point operations of matrix products and convolutions, of a function's second call."""
    work()  # the first call also prepares what later ones reuse
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


class RelativeCost:
    """The paper's numbers: a pass or training step of a rule, as a multiple of the net's own.

    Both are timed by turns in one process, on one thread, so that other load affects both.
    """

    param_names: ClassVar = ["net", "method", "phase"]
    params: ClassVar = [
        ["mlp-4x100", "cnn3"],
        [*RULES, "moment_matching"],
        ["forward", "training step"],
    ]
    timeout = 300

    def setup(self, net: str, method: str, phase: str) -> None:
        """Build both works; NotImplementedError skips a combination."""
        if (net, method) == ("cnn3", "moment_matching"):
            raise NotImplementedError("its covariances need 16384 x 16384 numbers per input")
        torch.set_num_threads(1)
        workload = Workload.of(net, BATCHES.get(net, MLP_BATCH), "cpu")
        work = workload.forward if phase == "forward" else workload.training_step
        self.works = {REGULAR: work(REGULAR), method: work(method)}

    def track_ratio(self, _net: str, method: str, _phase: str) -> float:
        seconds = by_turns(self.works, ROUNDS, warmup=2)
        return Ratio.of(seconds[method], seconds[REGULAR]).median

    def track_spread_of_ratio(self, _net: str, method: str, _phase: str) -> float:
        """Upper over lower quartile of the ratio of times."""
        seconds = by_turns(self.works, ROUNDS, warmup=2)
        ratio = Ratio.of(seconds[method], seconds[REGULAR])
        return ratio.upper / ratio.lower

    def track_operations(self, _net: str, method: str, _phase: str) -> float:
        """Ratio of counted operations, which does not depend on the machine."""
        return operations(self.works[method]) / operations(self.works[REGULAR])

    track_ratio.unit = "ratio"  # type: ignore[attr-defined]
    track_ratio.pretty_name = "time relative to the regular pass"  # type: ignore[attr-defined]
    track_spread_of_ratio.unit = "ratio"  # type: ignore[attr-defined]
    track_spread_of_ratio.pretty_name = "upper over lower quartile of the relative time"  # type: ignore[attr-defined]
    track_operations.unit = "ratio"  # type: ignore[attr-defined]
    track_operations.pretty_name = "operations relative to the regular pass"  # type: ignore[attr-defined]
