"""A measured distance with its floor and standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Floor:
    """Value of a statistic for an exact rule, which is not 0 because both sides are finite samples.

    Attributes
    ----------
    mean : float
        Expected value of the statistic for an exact rule at these sample counts.
    upper95 : float
        95 % point of its distribution.
    n : int, optional
        Number of points per side, if the statistic uses fewer than all samples.
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
        Mean and 95 % point for an exact rule at the same sample counts.
    stderr : float
        Standard error of `value`; that of a total variation is given the cells.
    n : int, optional
        Number of points per side, if fewer than all samples are used.
    """

    value: float
    floor: float
    floor95: float
    stderr: float
    n: int | None = None

    @property
    def corrected(self) -> float:
        """Root-corrected value, sqrt(max(0, value^2 - floor^2)).

        Squares of noise and distance approximately add; subtracting the floor itself would overcorrect.
        """
        if math.isinf(self.value):
            return self.value
        return math.sqrt(max(0.0, self.value**2 - self.floor**2))

    @property
    def indistinguishable(self) -> bool:
        """Whether the value is at most the 95 % point of an exact rule."""
        return self.value <= self.floor95


@dataclass(frozen=True)
class Ratio(Estimate):
    """A ratio estimated from samples: 1 for an exact rule, with errors on both sides.

    `floor` is 1, and `floor95` is such that the ratio of an exact rule is within ``1 +- (floor95 - 1)`` in 95
    % of measurements.
    """

    @property
    def corrected(self) -> float:
        """The value itself: the expected ratio of an exact rule is 1, so there is nothing to correct."""
        return self.value

    @property
    def indistinguishable(self) -> bool:
        """Whether the ratio is as close to 1 as that of an exact rule, on either side."""
        return abs(self.value - self.floor) <= self.floor95 - self.floor
