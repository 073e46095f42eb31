"""Clocks, and names and sizes of timed nets, which reports import without torch."""

from __future__ import annotations

import re
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
class TimeRatio:
    """Median and quartiles of the ratios of two times taken in the same round."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, numerator: list[float], denominator: list[float]) -> TimeRatio:
        """Return the ratios of corresponding rounds; a ValueError if lengths differ or are zero."""
        ratios = [a / b for a, b in zip(numerator, denominator, strict=True)]
        if not ratios:
            raise ValueError("a ratio needs at least one round")
        if len(ratios) == 1:
            return cls(ratios[0], ratios[0], ratios[0])
        lower, median, upper = statistics.quantiles(ratios, n=4, method="inclusive")
        return cls(median, lower, upper)


_MLP = re.compile(r"mlp-([0-9]{1,6})x([0-9]{1,6})(?:-([0-9]{1,6}))?(?:-([0-9]{1,6}))?")
_IMAGES = re.compile(r"(?!mlp(?:-|$))([^-]+)(?:-([0-9]{1,6})x([0-9]{1,6})(?:-([0-9]{1,6}))?)?")


@dataclass(frozen=True)
class Mlp:
    """A fully connected ReLU net with hidden layers of equal width."""

    depth: int
    width: int
    outputs: int = 3
    inputs: int = 4

    @property
    def name(self) -> str:
        return f"mlp-{self.depth}x{self.width}-{self.outputs}-{self.inputs}"


@dataclass(frozen=True)
class ImageNet:
    """An image classifier."""

    kind: str  # name of its architecture
    # size of the images
    size: int = 32
    channels: int = 3
    width: int | None = None  # width of the first layer; by default all sizes are the architecture's own

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.size}x{self.width}-{self.channels}" if self.width else self.kind


def sized(name: str) -> Mlp | ImageNet:
    """Return the net with this name.

    Names are ``cnn3`` and ``resnet18`` for 3x32x32 images, or ``mlp-4x100`` for four hidden layers of 100
    units, with four inputs and 3 outputs. ``mlp-4x100-10`` has 10 outputs, and ``mlp-4x100-10-50`` also 50
    inputs. ``cnn3-8x4`` is cnn3 with 4 channels in the first layer for 3x8x8 images, ``cnn3-28x64-1`` the
    same for 1x28x28.
    """
    if match := _MLP.fullmatch(name):
        depth, width, outputs, inputs = match.groups()
        return Mlp(int(depth), int(width), int(outputs or 3), int(inputs or 4))
    if match := _IMAGES.fullmatch(name):
        kind, size, width, channels = match.groups()
        return ImageNet(kind, int(size), int(channels or 3), int(width)) if size else ImageNet(kind)
    raise ValueError(f"no net is called {name!r}")
