"""The law of the output of one ReLU, and exact distances to it, without samples or bins.

The image of a continuous law under ReLU is mixed: an atom at 0 and the input's density above it. Total
variation and W1 between such measures are integrals of abs(p - q) and abs(F - G) over the line, which are
split where the integrand changes sign. Between splits, the first is a difference of cdfs. The second is
smooth, and computed by Gauss-Legendre quadrature on panels that grow geometrically outwards. The accuracy is
1e-10 of the scale for normal, Cauchy and symmetric stable laws (alpha from 0.5 to 1.95).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable

from .stable import CAUCHY, NORMAL, Standard, stable

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_FINE, _COARSE = 0.1, 0.5  # panels in asinh of the standardised variable: body and tails
_BODY = 4.0
_NORMAL_REACH = 40.0  # standard deviations, beyond which the density is zero in float64
_TAIL_DIGITS = 34.0  # exp(-34) of the integral of a heavy tail may be omitted
_SECTIONS = 32
_LARGEST = 700.0  # exp(700) is close to the largest float


@dataclass(frozen=True)
class Piece:
    """Location-scale density with positive scale, restricted to the interval (low, high)."""

    standard: Standard
    location: float
    scale: float
    low: float = -math.inf
    high: float = math.inf

    def density(self, x: Array) -> Array:
        """Density at `x`, 0 outside the interval."""
        inside = (x > self.low) & (x < self.high)
        return np.where(inside, self.standard.density((x - self.location) / self.scale) / self.scale, 0.0)

    def mass(self, low: Array, high: Array) -> Array:
        """Mass in each interval (low, high), without cancellation in either tail."""
        a = (np.clip(low, self.low, self.high) - self.location) / self.scale
        b = (np.clip(high, self.low, self.high) - self.location) / self.scale
        right = a > 0
        survival = self.standard.survival
        difference = survival(np.where(right, a, -b)) - survival(np.where(right, b, -a))
        return np.maximum(difference, 0.0)

    def grid(self, reach: float) -> Array:
        """Points that resolve the density, in geometric steps out to asinh `reach`."""
        points = self.location + self.scale * _stretched(self.standard, reach)
        return points[(points > self.low) & (points < self.high)]


@dataclass(frozen=True)
class Mixed:
    """A probability measure on the line: point masses and pieces of location-scale densities.

    Attributes
    ----------
    atoms : tuple of (position, mass)
    pieces : tuple of Piece
        They do not overlap.
    """

    atoms: tuple[tuple[float, float], ...] = ()
    pieces: tuple[Piece, ...] = ()

    @classmethod
    def point(cls, position: float) -> Mixed:
        """Return a point mass."""
        return cls(atoms=((float(position), 1.0),))

    @classmethod
    def location_scale(cls, standard: Standard, location: float, scale: float) -> Mixed:
        """Return the law of location + scale Z, Z standard; scale 0 is a point mass."""
        if not math.isfinite(location):
            raise ValueError(f"location must be finite, got {location}")
        if not (math.isfinite(scale) and scale >= 0):
            raise ValueError(f"scale must be finite and >= 0, got {scale}")
        if scale == 0:
            return cls.point(location)
        return cls(pieces=(Piece(standard, float(location), float(scale)),))

    @classmethod
    def of(cls, law: Law) -> Mixed:
        """Convert a one-dimensional law of batch 1: a (diagonal) Gaussian, Cauchy or symmetric stable one.

        Alpha must be from 0.5 to 1.95, or 2. A negative variance raises a ValueError.
        """
        if law.batch != 1 or law.dimension != 1:
            raise ValueError(
                f"exact distances need one law on the line, got {law.batch} of dimension {law.dimension}"
            )
        location = float(law.location)
        if isinstance(law, Gaussian | DiagonalGaussian):
            variance = float(law.variance)
            if variance < 0:
                raise ValueError(f"variance must be >= 0, got {variance:.3g}")
            return cls.location_scale(NORMAL, location, math.sqrt(variance))
        if isinstance(law, Cauchy):
            return cls.location_scale(CAUCHY, location, float(law.scale))
        if isinstance(law, SymmetricStable):
            scale = float(law.scale)
            if law.alpha == 2:
                return cls.location_scale(NORMAL, location, scale * math.sqrt(2))
            return cls.location_scale(stable(law.alpha), location, scale)
        raise ValueError(f"no exact measure for the family {type(law).__name__}")

    def relu(self) -> Mixed:
        """Return the law of max(X, 0)."""
        return self.leaky_relu(0.0)

    def leaky_relu(self, negative_slope: float) -> Mixed:
        """Return the law of max(X, 0) + negative_slope min(X, 0).

        The slope must be >= 0, so that the map is monotone.
        """
        if not (math.isfinite(negative_slope) and negative_slope >= 0):
            raise ValueError(f"negative_slope must be finite and >= 0, got {negative_slope}")
        masses: dict[float, float] = {}
        for position, mass in self.atoms:
            image = position if position > 0 else negative_slope * position + 0.0
            masses[image] = masses.get(image, 0.0) + mass
        pieces = []
        for piece in self.pieces:
            if piece.high > 0:
                pieces.append(
                    Piece(piece.standard, piece.location, piece.scale, max(piece.low, 0.0), piece.high)
                )
            if piece.low < 0 and negative_slope > 0:
                location, scale = negative_slope * piece.location, negative_slope * piece.scale
                low, high = negative_slope * piece.low, negative_slope * min(piece.high, 0.0)
                pieces.append(Piece(piece.standard, location, scale, low, high))
            elif piece.low < 0:
                below = float(piece.mass(np.array(-math.inf), np.array(0.0)))
                masses[0.0] = masses.get(0.0, 0.0) + below
        return Mixed(tuple(sorted(masses.items())), tuple(sorted(pieces, key=lambda piece: piece.low)))

    def density(self, x: Array) -> Array:
        """Density of the continuous part at `x`, an array of any shape."""
        return sum((piece.density(x) for piece in self.pieces), np.zeros(np.shape(x)))

    def mass(self, low: Array, high: Array) -> Array:
        """Mass of the continuous part in each interval (low, high)."""
        return sum((piece.mass(low, high) for piece in self.pieces), np.zeros(np.shape(low)))

    def covers(self, low: float, high: float) -> bool:
        """Whether a piece spans the whole interval (low, high)."""
        return any(piece.low <= low and high <= piece.high for piece in self.pieces)

    def atom(self, position: float) -> float:
        """Mass at one point."""
        return dict(self.atoms).get(position, 0.0)

    def cdf(self, x: Array) -> Array:
        """P(X <= x)."""
        x = np.asarray(x, dtype=float)
        below = sum((mass * (x >= position) for position, mass in self.atoms), np.zeros(x.shape))
        return below + self.mass(np.full(x.shape, -math.inf), x)


def exact_total_variation(p: Mixed, q: Mixed) -> float:
    """Total variation sup_A abs(P(A) - Q(A)), in [0, 1], to 1e-10.

    It is half of the differences of the atoms, plus half of the differences of the mass between sign changes
    of the difference of the densities.
    """
    atoms = sum(abs(p.atom(x) - q.atom(x)) for x in _positions(p, q))
    cuts = np.array([-math.inf, *_edges(p, q), math.inf])

    def difference(x: Array) -> Array:
        return p.density(x) - q.density(x)

    # Beyond this reach, the mass of both is below rounding.
    grid = _grid(p, q, lambda standard: _TAIL_DIGITS / standard.alpha)
    crossings = [
        _crossings(difference, grid, low, high)
        for low, high in itertools.pairwise(cuts)
        if p.covers(low, high) and q.covers(low, high)
    ]
    cuts = np.sort(np.concatenate([cuts, *crossings]))
    masses = p.mass(cuts[:-1], cuts[1:]) - q.mass(cuts[:-1], cuts[1:])
    return min(1.0, 0.5 * (atoms + float(np.abs(masses).sum())))


def exact_wasserstein(p: Mixed, q: Mixed) -> float:
    """W1, the integral of abs(F - G) over the line, in units of X.

    The error is 1e-10 of the larger scale, or 1e-8 where tails with alpha below 0.8 cancel. A ValueError is
    raised if W1 is infinite, because a tail with alpha <= 1 on one side is not shared by the other measure,
    and if alpha exceeds 1 by less than 0.05, where the integral over the tail is not computable.
    """
    for side, end in (("left", -math.inf), ("right", math.inf)):
        if _heavy(p, end) != _heavy(q, end):
            raise ValueError(f"W1 is infinite: the {side} tails differ and have no mean")
    # To the left, differences are computed from the left tail, to the right from the right one.
    centre = float(np.mean([piece.location for piece in (*p.pieces, *q.pieces)] or [0.0]))

    def reach(standard: Standard) -> float:
        decay = standard.alpha - 1 if standard.alpha > 1 else standard.alpha
        if decay * _LARGEST < _TAIL_DIGITS:
            raise ValueError(f"W1 needs an alpha of 1.05 or more, or at most 1, got {standard.alpha}")
        return _TAIL_DIGITS / decay

    grid = _grid(p, q, reach)
    cuts = np.unique([*_positions(p, q), *_edges(p, q), centre, *grid[:1], *grid[-1:]])
    total = 0.0
    for low, high in itertools.pairwise(cuts):
        difference = _cdf_difference(p, q, low, high, from_left=high <= centre)
        inner = np.concatenate([grid[(grid > low) & (grid < high)], _crossings(difference, grid, low, high)])
        panels = np.array([low, *np.sort(inner), high])
        half = np.diff(panels)[:, None] / 2
        x = panels[:-1, None] + half * (1 + _NODES)
        total += float((half * _WEIGHTS * np.abs(difference(x))).sum())
    return total


def _cdf_difference(
    p: Mixed, q: Mixed, low: float, high: float, *, from_left: bool
) -> Callable[[Array], Array]:
    """F - G between two neighbouring splits, from the nearer tail so that small values are accurate."""
    middle = 0.5 * (low + high)

    def tail(measure: Mixed, x: Array) -> Array:
        end = np.full(x.shape, -math.inf if from_left else math.inf)
        atoms = sum(mass for position, mass in measure.atoms if (position < middle) == from_left)
        return atoms + (measure.mass(end, x) if from_left else measure.mass(x, end))

    return lambda x: tail(p, x) - tail(q, x) if from_left else tail(q, x) - tail(p, x)


def _crossings(function: Callable[[Array], Array], grid: Array, low: float, high: float) -> Array:
    """Sign changes of `function` inside (low, high), from brackets on the grid.

    Where it nearly touches 0 between grid points, the vertex of the parabola through the three nearest points
    is evaluated, too, so that a close pair of crossings is not missed.
    """
    inside = grid[(grid > low) & (grid < high)]
    # Slightly inside, because one density jumps at the edge itself.
    ends = [np.nextafter(end, toward) for end, toward in ((low, high), (high, low)) if math.isfinite(end)]
    points = np.unique(np.concatenate([inside, ends]))
    if len(points) < 2:
        return np.empty(0)
    values = function(points)
    size = np.abs(values)
    near = (size[1:-1] < size[:-2]) & (size[1:-1] < size[2:]) & (np.sign(values[:-2]) == np.sign(values[2:]))
    if near.any():
        vertices = _vertices(points, values, np.flatnonzero(near) + 1)
        points, order = np.unique(np.concatenate([points, vertices]), return_index=True)
        values = np.concatenate([values, function(vertices)])[order]
    points, signs = points[values != 0], np.sign(values[values != 0])
    changes = np.flatnonzero(signs[:-1] != signs[1:])
    return _roots(function, points[changes], points[changes + 1]) if len(changes) else np.empty(0)


def _roots(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """One root in each bracket, interpolated linearly in a thousandth of it.

    This is sufficient, because the integrals are stationary in the split, so that an error e costs e^2.
    """
    for _ in range(2):
        points = np.linspace(low, high, _SECTIONS + 1)
        values = function(points)
        signs = np.sign(values)
        first, column = (signs[:-1] != signs[1:]).argmax(0), np.arange(len(low))
        low, high = points[first, column], points[first + 1, column]
        at_low, at_high = values[first, column], values[first + 1, column]
    fall = np.where(at_low == at_high, 1.0, at_low - at_high)
    return low + (high - low) * np.where(at_low == at_high, 0.5, at_low / fall)


def _vertices(points: Array, values: Array, middle: NDArray[np.intp]) -> Array:
    """Abscissae of the extrema of the parabolas through the points `middle` and their neighbours."""
    a, b, c = points[middle - 1], points[middle], points[middle + 1]
    left = (values[middle] - values[middle - 1]) / (b - a)
    right = (values[middle + 1] - values[middle]) / (c - b)
    curvature = (right - left) / (c - a)
    return np.clip(0.5 * (a + b) - left / (2 * curvature), a, c)


@functools.lru_cache
def _stretched(standard: Standard, reach: float) -> Array:
    """Grid on the standardised line: equidistant in asinh, fine in the body and coarse in the tails."""
    if standard.alpha == 2:
        end = math.asinh(_NORMAL_REACH)
        half = np.linspace(0, end, math.ceil(end / _FINE) + 1)
    else:
        body = np.arange(0, _BODY, _FINE)
        half = np.concatenate([body, np.linspace(_BODY, reach, math.ceil((reach - _BODY) / _COARSE) + 1)])
    positive = standard.width * np.sinh(half)
    return np.concatenate([-positive[:0:-1], positive])


def _grid(p: Mixed, q: Mixed, reach: Callable[[Standard], float]) -> Array:
    grids = [piece.grid(reach(piece.standard)) for piece in (*p.pieces, *q.pieces)]
    return np.unique(np.concatenate(grids)) if grids else np.empty(0)


def _edges(p: Mixed, q: Mixed) -> list[float]:
    """Finite ends of the pieces, sorted."""
    ends = {end for piece in (*p.pieces, *q.pieces) for end in (piece.low, piece.high)}
    return sorted(end for end in ends if math.isfinite(end))


def _positions(p: Mixed, q: Mixed) -> list[float]:
    return sorted({position for position, _ in (*p.atoms, *q.atoms)})


def _heavy(measure: Mixed, end: float) -> set[tuple[float, float]]:
    """Tail without a mean at one end: its stability and its scale."""
    return {
        (piece.standard.alpha, piece.scale)
        for piece in measure.pieces
        if end in (piece.low, piece.high) and piece.standard.alpha <= 1
    }
