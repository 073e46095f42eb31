"""Interleaved timing of several functions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

REGULAR = "regular"
"""Name of the net's own pass or training step, to which other times are relative."""


def clock(device: str | torch.device = "cpu") -> float:
    """Return the time (s) of a clock that suits the device; only differences are meaningful.

    On a CPU with one thread this is the process's CPU time (user and system), which other processes hardly
    change. With more threads, and on a GPU after synchronising, it is the wall time.
    """
    import torch

    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
        return time.perf_counter()
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def by_turns(
    works: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warmup: int = 1,
    now: Callable[[], float] = clock,
) -> dict[str, list[float]]:
    """Time each function once per round, so that disturbances affect all of them; returns seconds by name."""
    for _ in range(warmup):
        for work in works.values():
            work()
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start = now()
            work()
            seconds[name].append(now() - start)
    return seconds


@dataclass(frozen=True)
class Ratio:
    """Median and quartiles of the ratios of two times taken in the same round."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, numerator: list[float], denominator: list[float]) -> Ratio:
        """Return the ratios of corresponding rounds; a ValueError if lengths differ or are zero."""
        ratios = [a / b for a, b in zip(numerator, denominator, strict=True)]
        if not ratios:
            raise ValueError("a ratio needs at least one round")
        if len(ratios) == 1:
            return cls(ratios[0], ratios[0], ratios[0])
        lower, median, upper = statistics.quantiles(ratios, n=4, method="inclusive")
        return cls(median, lower, upper)
