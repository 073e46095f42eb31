"""Simple forms of a change of predictions, fitted in least squares over places: a factor, a constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sdp_bench.bench.gate.answers.drift import THRESHOLD
from sdp_bench.bench.gate.answers.moments import Array

_SURE = 4.5  # standard errors that hundreds of numbers stay within
_CLEAR = 3.0  # standard errors of the one multiple of a fit
_SHARE = 0.05  # of the change itself: a form explains a change that it leaves less of


@dataclass(frozen=True, eq=False)
class Points:
    """Some numbers of one place, then and now.

    Attributes
    ----------
    old, new : ndarray, shape (n,)
        In standard deviations, or their squares.
    noise : ndarray, shape (n,)
        Standard errors of the change.
    unit : ndarray, shape (n,)
        That these are multiples of.
    """

    old: Array
    new: Array
    noise: Array
    unit: Array

    @property
    def change(self) -> Array:
        """New less old."""
        return self.new - self.old

    @property
    def slack(self) -> Array:
        """What rounding and noise may leave of a change that is explained."""
        return THRESHOLD + _SURE * self.noise

    def at(self, chosen: Array) -> Points:
        """Some of the numbers."""
        return Points(self.old[chosen], self.new[chosen], self.noise[chosen], self.unit[chosen])


Form = Callable[[Points], Array]
"""What a change is a multiple of."""


def factor(points: Points) -> Array:
    """Of the old numbers themselves: new = (1 + k) old."""
    return points.old


def deviations(points: Points) -> Array:
    """Of the standard deviation of each output: new = old + k."""
    return np.ones_like(points.old)


def constant(points: Points) -> Array:
    """Of one, in the units of the outputs."""
    return 1 / points.unit


@dataclass(frozen=True, eq=False)
class Fit:
    """A change as the same multiple of something in all places.

    Attributes
    ----------
    form : callable
    places : sequence of Points
    """

    form: Form
    places: Sequence[Points]

    @cached_property
    def _sums(self) -> tuple[float, float, float]:
        """Of x y, of x x and of the noise in x y, each place's numbers erring together."""
        xy = xx = noise = 0.0
        for each in self.places:
            x, weight = self.form(each), 1 / (np.square(each.noise) + THRESHOLD**2)
            xy += float((weight * x) @ each.change)
            xx += float((weight * x) @ x)
            noise += float((weight * abs(x)) @ each.noise) ** 2
        return xy, max(xx, float(np.finfo(float).tiny)), noise**0.5

    @property
    def multiple(self) -> float:
        """By least squares, each number weighing by what is known of it."""
        return self._sums[0] / self._sums[1]

    @property
    def explains(self) -> bool:
        """Whether there is such a change, beyond noise, and it leaves little else."""
        _, squares, noise = self._sums
        parts = [abs(self.multiple * self.form(each)) for each in self.places]
        seen = max((float(part.max()) for part in parts if part.size), default=0.0)
        if seen <= THRESHOLD or abs(self.multiple) <= _CLEAR * noise / squares:
            return False
        return all(map(self.holds, self.places))

    def holds(self, points: Points) -> bool:
        """Whether it leaves little else in a place."""
        part = self.multiple * self.form(points)
        return bool((abs(points.change - part) <= points.slack + _SHARE * abs(part)).all())

    @property
    def misfit(self) -> float:
        """Largest change that it leaves, in units of what may be left."""
        left = [abs(each.change - self.multiple * self.form(each)) / each.slack for each in self.places]
        return max((float(one.max()) for one in left if one.size), default=0.0)


def best(places: Sequence[Points], *forms: Form) -> Fit | None:
    """The form that explains a change best; None if none does.

    Parameters
    ----------
    places : sequence of Points
    *forms : callable
        The first of those that do as well.
    """
    found = [fit for fit in (Fit(form, places) for form in forms) if fit.explains]
    return min(found, key=lambda fit: fit.misfit, default=None)


def unchanged(places: Sequence[Points]) -> bool:
    """Whether there is no change beyond rounding and noise in any place."""
    return all(bool((abs(each.change) <= each.slack).all()) for each in places)


def largest(places: Sequence[Points]) -> float:
    """The largest change."""
    return max((float(abs(each.change).max()) for each in places if each.change.size), default=0.0)
