"""Times of several things, taken by turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

REGULAR = "regular"
"""What other times are multiples of: the pass, or training step, of the net by itself."""


def clock(device: str | torch.device = "cpu") -> float:
    """Seconds by the clock that suits a device.

    On a CPU with one thread it counts the time of this process (user and system), which other processes
    on the machine hardly change: it is what a quiet machine takes. With more threads it is the wall
    clock, and so it is on a GPU, once the device has done all that it was given.

    Returns
    -------
    float
        From a start of no meaning: differences count.
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
    """Time each work once a round, so that whatever slows the machine slows all of them.

    Parameters
    ----------
    works : mapping of name to function
    rounds : int
    warmup : int
        Untimed rounds before.
    now : function
        The clock, in seconds.

    Returns
    -------
    dict
        Of each name, the seconds of each round.
    """
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
    """Median and quartiles of the ratios of two times that were taken in the same round."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, numerator: list[float], denominator: list[float]) -> Ratio:
        """Ratios of the like rounds of two lists of times.

        Raises
        ------
        ValueError
            If the lists are empty or differ in length.
        """
        ratios = [a / b for a, b in zip(numerator, denominator, strict=True)]
        if not ratios:
            raise ValueError("a ratio needs at least one round")
        if len(ratios) == 1:
            return cls(ratios[0], ratios[0], ratios[0])
        lower, median, upper = statistics.quantiles(ratios, n=4, method="inclusive")
        return cls(median, lower, upper)
