"""Numerical verification of Theorem 1 of the paper and its corollaries, by searching for a counterexample.

Claim: of all laws (location, scale) of the input's family, including point masses, the one closest in total
variation to ReLU(X), X with median m and scale s, is (m, s) for m >= 0 and the point mass at 0 for m < 0. The
image has an atom p0 = P(X <= 0), so the distance is at least p0 for a density and at least 1 - p0 for a point
mass. At m = 0 both bounds are 1/2 and both are attained: a tie.

For m >= 0 no other density attains its bound: it would have to exceed that of X on all x > 0, so its scale is
at most s (the peak at m) and at least s (the tail). Total variation is insensitive to this near m = 0, where
densities that differ by several percent miss the bound by less than rounding.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import optimize

from .quadrature import Array, Mixed, exact_total_variation
from .stable import CAUCHY, NORMAL, Standard, stable

RATIOS = (-3.0, -2.0, -1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0, 2.0, 3.0)
TOLERANCE = 1e-9

# First grid of the search, around the input's law and in its scales; it does not contain that law itself.
_LOCATIONS = np.linspace(-4.0, 4.0, 8)
_LOG_SCALES = np.linspace(math.log(0.05), math.log(20.0), 8)
_STARTS = 2
_SIMPLEX = np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 0.3]])

Verdict = Literal["holds", "tie", "fails"]


@dataclass(frozen=True)
class Candidate:
    """A law of the input's family and its total variation to ReLU(X); scale 0 is a point mass."""

    location: float
    scale: float
    tv: float


@dataclass(frozen=True)
class Optimality:
    """Result of the search for one input law of scale 1.

    Attributes
    ----------
    family : str
    alpha : float
        Stability; 2 for the normal law, 1 for the Cauchy law.
    ratio : float
        Median of the input over its scale.
    atom : float
        p0 = P(X <= 0): lower bound of the distance of a density to ReLU(X); 1 - p0 is that of a point mass.
    theorem : Candidate
        The law that the theorem states.
    density, point : Candidate
        Closest density and closest point mass that the search found.
    apart : float
        Total variation between that density and the theorem's law; for a ratio >= 0, the distance between two
        laws that are equally close to ReLU(X) within the precision of the search.
    tolerance : float
        In total variation.
    """

    family: str
    alpha: float
    ratio: float
    atom: float
    theorem: Candidate
    density: Candidate
    point: Candidate
    apart: float
    tolerance: float

    @property
    def best(self) -> Candidate:
        """Closest law that the search found."""
        return min(self.density, self.point, key=lambda candidate: candidate.tv)

    @property
    def gap(self) -> float:
        """TV of the best law minus that of the theorem's law; negative if another law is closer."""
        return self.best.tv - self.theorem.tv

    @property
    def verdict(self) -> Verdict:
        """Whether the theorem's law is the closest.

        "fails": a law is closer by more than the tolerance. "tie": the best density and the best point mass
        are equally close within the tolerance. "holds": otherwise.
        """
        if self.gap < -self.tolerance:
            return "fails"
        return "tie" if abs(self.density.tv - self.point.tv) <= self.tolerance else "holds"


def theorem_families() -> tuple[Standard, ...]:
    """Families of the theorem (Gaussian) and of its corollaries (Cauchy, alpha-stable)."""
    return NORMAL, CAUCHY, stable(0.8), stable(1.2), stable(1.5), stable(1.8)


def check_theorem(
    families: Iterable[Standard] | None = None,
    ratios: Iterable[float] = RATIOS,
    *,
    tolerance: float = TOLERANCE,
) -> Iterator[Optimality]:
    """Search for a law closer to ReLU(X) than the theorem's, for each family and ratio median / scale.

    The scale of X is 1: total variation does not depend on the unit, and ReLU commutes with scaling.
    `families` is by default :func:`theorem_families`. The `tolerance` must be at least 1e-10, the error of
    the quadrature. The results are computed lazily, family by family.
    """
    ratios = tuple(ratios)
    if not tolerance >= 1e-10:
        raise ValueError(f"tolerance must be at least 1e-10, got {tolerance}")
    if not all(math.isfinite(ratio) for ratio in ratios):
        raise ValueError(f"ratios must be finite, got {ratios}")
    chosen = theorem_families() if families is None else families
    return (_check(family, ratio, tolerance) for family, ratio in itertools.product(chosen, ratios))


def _check(family: Standard, ratio: float, tolerance: float) -> Optimality:
    truth = Mixed.location_scale(family, ratio, 1.0).relu()

    def candidate(location: float, scale: float) -> Candidate:
        law = Mixed.location_scale(family, location, scale)
        return Candidate(location, scale, exact_total_variation(truth, law))

    theorem = candidate(ratio, 1.0) if ratio >= 0 else candidate(0.0, 0.0)
    density = _nearest_density(candidate, ratio)
    points = [candidate(x, 0.0) for x in (0.0, ratio, *_LOCATIONS)]
    point = min(points, key=operator.attrgetter("tv"))
    distance = exact_total_variation(
        Mixed.location_scale(family, theorem.location, theorem.scale),
        Mixed.location_scale(family, density.location, density.scale),
    )
    return Optimality(
        family.name, family.alpha, ratio, truth.atom(0.0), theorem, density, point, distance, tolerance
    )


def _nearest_density(candidate: Callable[[float, float], Candidate], ratio: float) -> Candidate:
    """Best cells of a grid, refined by the Nelder-Mead method."""

    def law(x: Sequence[float] | Array) -> Candidate:
        return candidate(ratio + float(x[0]), math.exp(x[1]))

    def distance(x: Array) -> float:
        return law(x).tv

    grid = sorted(itertools.product(_LOCATIONS, _LOG_SCALES), key=lambda x: law(x).tv)
    # Without derivatives: total variation has kinks where crossings of the densities appear or vanish.
    candidates = [
        optimize.minimize(
            distance,
            np.array(start),
            method="Nelder-Mead",
            options={"initial_simplex": start + _SIMPLEX, "xatol": 1e-7, "fatol": 1e-10, "maxfev": 300},
        ).x
        for start in grid[:_STARTS]
    ]
    return min([law(x) for x in candidates], key=operator.attrgetter("tv"))
