"""Axes of charts: their range, ticks and number format."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sdp_bench.reports.style.labels import number, spread

_MARGIN = 0.05  # of the span of values, beyond them
_TICKS = 5  # approximate number
_MOST_DECADES = 7
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def plain(value: float) -> str:
    return f"{value:g}".replace("e-0", "e-").replace("e+0", "e").replace("-", "−")


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    By default `low` and `high` extend a little beyond the values, and `ticks` are at round values. A
    `flipped` axis has small values where large ones would be. `write` formats the values of ticks and `told`
    those of points, which are read one at a time; by default these have three significant figures.
    """

    name: str = ""
    low: float | None = None
    high: float | None = None
    log: bool = False
    flipped: bool = False
    ticks: tuple[tuple[float, str], ...] | None = None
    write: Callable[[float], str] = plain
    told: Callable[[float], str] | None = None

    def over(self, values: Iterable[float]) -> Axis:
        """Return the axis with limits and ticks for some values.

        Values that are not finite are ignored, and so are values that are not positive on a logarithmic axis.
        """
        known = np.fromiter(values, float)
        known = known[np.isfinite(known) & ((known > 0) | (not self.log))]
        low, high = self._reach(known)
        ended = replace(self, low=low, high=high)
        return ended if self.ticks is not None else replace(ended, ticks=ended._round_ticks())

    def shares(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Positions of values along the axis, from 0 at its start to 1 at its end; NaN if undefined."""
        low, high = self._ends
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = (self._scaled(np.asarray(values, float)) - low) / (high - low)
        shares = np.where(np.isfinite(shares), shares, np.nan)
        return 1 - shares if self.flipped else shares

    def written(self, value: float, beside: float | None = None) -> str:
        """Format the value of a point, or the error of the value `beside` with the decimals of that value."""
        if self.told:
            return self.told(value)
        return number(value) if beside is None else spread(value, beside)

    @functools.cached_property
    def marks(self) -> list[tuple[float, str]]:
        ticks = self.ticks or ()
        shares = self.shares(np.array([value for value, _ in ticks])).tolist()
        near = ((share, text) for share, (_, text) in zip(shares, ticks, strict=True))
        return sorted((share, text) for share, text in near if -1e-9 <= share <= 1 + 1e-9)

    @property
    def _ends(self) -> tuple[float, float]:
        if self.low is None or self.high is None:
            raise ValueError("an axis has ends once it is told of its values")
        low, high = self._scaled(np.array([self.low, self.high])).tolist()
        return low, high

    def _scaled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log10(values) if self.log else values

    def _reach(self, known: NDArray[np.float64]) -> tuple[float, float]:
        given = [end for end in (self.low, self.high) if end is not None]
        scaled = self._scaled(np.array([*known, *given] or [1.0]))
        first, last = float(scaled.min()), float(scaled.max())
        margin = _MARGIN * (last - first) or 0.5
        ends = np.array([first - margin, last + margin])
        low, high = (10**ends if self.log else ends).tolist()
        return low if self.low is None else self.low, high if self.high is None else self.high

    def _round_ticks(self) -> tuple[tuple[float, str], ...]:
        low, high = self._ends
        places = _decades(low, high) if self.log else _even(low, high)
        return tuple((place, self.write(place)) for place in places)


def _even(low: float, high: float) -> list[float]:
    rough = (high - low) / _TICKS
    decade = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (decade * each for each in _STEPS) if step >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(step * place, 12 - math.floor(math.log10(step))) for place in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten, thinned out if there are many; if there are few, also their multiples by 2 and 5."""
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    every = math.ceil((last - first + 1) / _MOST_DECADES) or 1
    powers = [10.0**power for power in range(first, last + 1, every)]
    if len(powers) > 1:
        return powers
    around = range(math.floor(low), math.ceil(high) + 1)
    finer = [times * 10.0**power for power in around for times in (1, 2, 5)]
    return [each for each in finer if low - 1e-9 <= math.log10(each) <= high + 1e-9]
