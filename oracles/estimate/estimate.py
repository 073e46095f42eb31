"""A measured distance with what it takes to read it: floor and standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Floor:
    """What an exact rule would show, since both sides are finite samples.

    Attributes
    ----------
    mean : float
        Expected value of the statistic for an exact rule at these sample counts.
    upper95 : float
        95 % point of the same.
    n : int, optional
        Points a side that it holds for, where the statistic takes fewer than all samples.
    """

    mean: float
    upper95: float
    n: int | None = None


@dataclass(frozen=True)
class Estimate:
    """A distance estimated from samples, in the units of the distance.

    Attributes
    ----------
    value : float
        The raw estimate; the floor is never subtracted from it.
    floor, floor95 : float
        Mean and 95 % point of what an exact rule would show at the same sample counts.
    stderr : float
        Standard error of `value`.
    n : int, optional
        Points a side that it was taken on, where that is fewer than all samples.
    """

    value: float
    floor: float
    floor95: float
    stderr: float
    n: int | None = None

    @property
    def corrected(self) -> float:
        """Root-corrected value, sqrt(max(0, value^2 - floor^2)).

        Noise and distance add nearly in squares; subtracting the floor itself overcorrects.
        """
        if math.isinf(self.value):
            return self.value
        return math.sqrt(max(0.0, self.value**2 - self.floor**2))

    @property
    def indistinguishable(self) -> bool:
        """Whether an exact rule would show as much in one of twenty measurements."""
        return self.value <= self.floor95


@dataclass(frozen=True)
class Ratio(Estimate):
    """A ratio estimated from samples: an exact rule shows 1, and both sides of 1 are errors.

    Here `floor` is 1 and `floor95` is such that an exact rule's ratio is within
    ``1 +- (floor95 - 1)`` in 95 % of measurements.
    """

    @property
    def corrected(self) -> float:
        """The value itself: the expected ratio of an exact rule has no floor to correct for."""
        return self.value

    @property
    def indistinguishable(self) -> bool:
        """Whether the ratio is as near to 1 as an exact rule's would be, on either side."""
        return abs(self.value - self.floor) <= self.floor95 - self.floor
