"""Wasserstein-1 distances with proven bounds, for more points than an exact solver supports."""

from __future__ import annotations

from ..estimate.estimate import Estimate, Floor
from ..estimate.samples import Samples
from .certified import Bracket, certified_wasserstein
from .wasserstein import Points, estimate_of, floor_of


def certified(
    a: Samples,
    b: Samples,
    n: int = 30_000,
    *,
    pairs: int = 8,
    floor: Floor | None = None,
    tolerance: float = 0.01,
    seconds: float = 600.0,
    seed: int = 0,
) -> tuple[Estimate, Bracket]:
    """Return W1 between n points of either sample, and its proven bounds, for n beyond exact solvers.

    Arguments and estimate are those of `wasserstein`; see `certified_wasserstein` for `tolerance` and
    `seconds`. The default of `seconds` is only for exceptional cases, because a bracket that the time limit
    ends is not reproducible. The value is the midpoint of the bracket, whose width is not included in the
    standard error.
    """
    bracket: list[Bracket] = []

    def potentials(x: Points, y: Points) -> tuple[Points, Points]:
        bracket.append(certified_wasserstein(x, y, tolerance=tolerance, seconds=seconds))
        return _centred(bracket[-1])

    estimate = estimate_of(potentials, a, b, n, pairs, floor, seed)
    return estimate, bracket[-1]


def certified_floor(
    a: Samples,
    n: int = 30_000,
    pairs: int = 8,
    *,
    tolerance: float = 0.01,
    seconds: float = 600.0,
    seed: int = 0,
) -> Floor:
    """Return the floor of `certified`; arguments are those of `certified` and `wasserstein_floor`."""

    def potentials(x: Points, y: Points) -> tuple[Points, Points]:
        return _centred(certified_wasserstein(x, y, tolerance=tolerance, seconds=seconds))

    return floor_of(potentials, a, n, pairs, seed)


def _centred(bracket: Bracket) -> tuple[Points, Points]:
    """Potentials shifted so that their means add up to the midpoint of the bracket."""
    u, v = bracket.u, bracket.v
    return u + (bracket.value - u.mean() - v.mean()), v
