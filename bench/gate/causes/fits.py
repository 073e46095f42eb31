"""Simple forms of a change of predictions, a factor or a constant, fitted to all cells by least squares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sdp_bench.bench.gate.answers.drift import THRESHOLD
from sdp_bench.bench.gate.answers.moments import Array

_SURE = 4.5  # standard errors that hundreds of numbers stay within
_CLEAR = 3.0  # standard errors of a fit's multiple
_SHARE = 0.05  # of the change: a form explains a change if the residual is smaller


@dataclass(frozen=True, eq=False)
class Points:
    """Some numbers of one cell, in the baseline and now."""

    # shape (n,), in standard deviations, or their squares
    old: Array
    new: Array
    noise: Array  # shape (n,); standard errors of the change
    unit: Array  # shape (n,); standard deviations, or their products, of which these numbers are multiples

    @property
    def change(self) -> Array:
        return self.new - self.old

    @property
    def slack(self) -> Array:
        """Residual of an explained change that rounding and noise allow."""
        return THRESHOLD + _SURE * self.noise

    def at(self, chosen: Array) -> Points:
        return Points(self.old[chosen], self.new[chosen], self.noise[chosen], self.unit[chosen])


Form = Callable[[Points], Array]
"""The vector of which a change is a multiple."""


def factor(points: Points) -> Array:
    """A multiple of the old numbers: new = (1 + k) old."""
    return points.old


def deviations(points: Points) -> Array:
    """A multiple of each output's standard deviation: new = old + k."""
    return np.ones_like(points.old)


def constant(points: Points) -> Array:
    """A constant, in the units of the outputs."""
    return 1 / points.unit


@dataclass(frozen=True, eq=False)
class Fit:
    """A change that is the same multiple of a form in all cells."""

    form: Form
    places: Sequence[Points]

    @cached_property
    def _sums(self) -> tuple[float, float, float]:
        """Sums of x y, x x and the noise in x y; errors within a cell count as fully correlated."""
        xy = xx = noise = 0.0
        for each in self.places:
            x, weight = self.form(each), 1 / (np.square(each.noise) + THRESHOLD**2)
            xy += float((weight * x) @ each.change)
            xx += float((weight * x) @ x)
            noise += float((weight * abs(x)) @ each.noise) ** 2
        return xy, max(xx, float(np.finfo(float).tiny)), noise**0.5

    @property
    def multiple(self) -> float:
        """Least-squares multiple, weighted by the precision of each number."""
        return self._sums[0] / self._sums[1]

    @property
    def explains(self) -> bool:
        """Return whether the multiple is significant and the residual small."""
        _, squares, noise = self._sums
        parts = [abs(self.multiple * self.form(each)) for each in self.places]
        seen = max((float(part.max()) for part in parts if part.size), default=0.0)
        if seen <= THRESHOLD or abs(self.multiple) <= _CLEAR * noise / squares:
            return False
        return all(map(self.holds, self.places))

    def holds(self, points: Points) -> bool:
        """Return whether the residual is small in a cell."""
        part = self.multiple * self.form(points)
        return bool((abs(points.change - part) <= points.slack + _SHARE * abs(part)).all())

    @property
    def misfit(self) -> float:
        """Largest residual relative to the allowed one."""
        left = [abs(each.change - self.multiple * self.form(each)) / each.slack for each in self.places]
        return max((float(one.max()) for one in left if one.size), default=0.0)


def best(places: Sequence[Points], *forms: Form) -> Fit | None:
    """Return the form that explains a change best (the first one if tied), or None."""
    found = [fit for fit in (Fit(form, places) for form in forms) if fit.explains]
    return min(found, key=lambda fit: fit.misfit, default=None)


def unchanged(places: Sequence[Points]) -> bool:
    """Return whether no cell has a change beyond rounding and noise."""
    return all(bool((abs(each.change) <= each.slack).all()) for each in places)


def largest(places: Sequence[Points]) -> float:
    return max((float(abs(each.change).max()) for each in places if each.change.size), default=0.0)
