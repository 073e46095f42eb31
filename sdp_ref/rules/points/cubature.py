"""Cubature: points and weights that integrate polynomials of the input exactly."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdp_ref.errors import NoFormulaError
from sdp_ref.rules.points.base import PointRule

Array = NDArray[np.float64]

_MOST_POINTS = 10**6


@dataclass(frozen=True)
class Cubature(PointRule):
    """Moments by points that are exact for polynomials of the input up to a degree.

    The mean is exact where the net is such a polynomial, the covariance where its square is. Of n components
    "spherical" takes 2 n points at degree 3 and 2 n^2 + 1 at degree 5, "tensor" ((degree + 1) / 2)^n
    (Gauss and Hermite's in each direction), "sparse" a number that grows with n as n^((degree - 1) / 2)
    (Smolyak's sum of small tensor grids). "spherical" of degree 5 for more than 4 components, and "sparse",
    have negative weights: a covariance may then be indefinite.

    Parameters
    ----------
    degree : int
        Odd and positive; 3 or 5 for "spherical".
    scheme : {"spherical", "tensor", "sparse"}

    References
    ----------
    McNamee and Stenger, "Construction of fully symmetric numerical integration formulas", Numer. Math. 1967.
    Arasaratnam and Haykin, "Cubature Kalman filters", IEEE Trans. Automat. Control 2009.
    Wasilkowski and Wozniakowski, "Explicit cost bounds of algorithms for multivariate tensor product
    problems", J. Complexity 1995.
    """

    name: ClassVar[str] = "cubature"
    title: ClassVar[str] = "cubature"
    rank: ClassVar[int] = 45
    degree: int = 3
    scheme: str = "spherical"

    def __post_init__(self) -> None:
        if self.scheme not in _SCHEMES:
            raise ValueError(f"unknown scheme '{self.scheme}' of cubature; choose from {', '.join(_SCHEMES)}")
        degree = self.degree
        if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1 or degree % 2 == 0:
            raise ValueError(f"cubature needs an odd degree, got {degree!r}")
        if self.scheme == "spherical" and degree not in _SPHERICAL:
            raise ValueError(f"the spherical scheme has degree 3 or 5, got {degree}; take tensor or sparse")

    @property
    def known_faults(self) -> Mapping[str, str]:  # type: ignore[override]  # of some parameters only
        if self.scheme == "tensor" or (self.degree == 3 and self.scheme == "spherical"):
            return {}
        return {"positive-semidefinite": "some weights of this scheme are negative"}

    def points(self, dimension: int) -> tuple[Tensor, Tensor]:
        points, weights = _SCHEMES[self.scheme](dimension, self.degree)
        return torch.from_numpy(points), torch.from_numpy(weights)


def _spherical(dimension: int, degree: int) -> tuple[Array, Array]:
    _check_count(_SPHERICAL[degree](dimension))
    axes = np.eye(dimension)
    if degree == 3:
        points = math.sqrt(dimension) * np.concatenate([axes, -axes])
        return points, np.full(2 * dimension, 0.5 / dimension)
    n = dimension
    first, second = np.triu_indices(n, 1)
    pairs = [a * axes[first] + b * axes[second] for a, b in itertools.product((1, -1), repeat=2)]
    far, near = math.sqrt(n + 2), math.sqrt((n + 2) / 2)
    points = np.concatenate([np.zeros((1, n)), far * axes, -far * axes, *(near * each for each in pairs)])
    weights = np.full(len(points), 1 / (n + 2) ** 2)
    weights[0] = 2 / (n + 2)
    weights[1 : 2 * n + 1] = (4 - n) / (2 * (n + 2) ** 2)
    return points, weights


_SPHERICAL: Mapping[int, Callable[[int], int]] = {3: lambda n: 2 * n, 5: lambda n: 2 * n * n + 1}
"""Number of points by degree."""


def _tensor(dimension: int, degree: int) -> tuple[Array, Array]:
    level = (degree + 1) // 2
    _check_count(level**dimension)
    return _product([level] * dimension)


def _sparse(dimension: int, degree: int) -> tuple[Array, Array]:
    level = (degree + 1) // 2
    # For each sum of levels, the number of grids times the points of the largest: a cheap upper bound.
    _check_count(math.comb(dimension + level - 1, level - 1) * level)
    weights: dict[tuple[float, ...], float] = defaultdict(float)
    for excess in range(max(0, level - dimension), level):
        sign = (-1) ** (level - 1 - excess) * math.comb(dimension - 1, level - 1 - excess)
        for raised in itertools.combinations_with_replacement(range(dimension), excess):
            directions, extra = np.unique(np.array(raised, dtype=np.intp), return_counts=True)
            point = np.zeros(dimension)  # the only node of a direction at the lowest level
            for place, weight in zip(*_product([1 + int(each) for each in extra]), strict=True):
                # Equal nodes of two grids may differ by rounding, and 0 may be -0.
                point[directions] = np.round(place, 12) + 0.0
                weights[tuple(point)] += sign * weight
    return np.array(list(weights)), np.array(list(weights.values()))


def _product(levels: Sequence[int]) -> tuple[Array, Array]:
    """Tensor product of the given numbers of Gauss-Hermite nodes."""
    from numpy.polynomial.hermite_e import hermegauss

    lines = [hermegauss(level) for level in levels]
    weights = np.ones(1)
    for _, line in lines:
        weights = np.multiply.outer(weights, line / line.sum()).ravel()
    points = list(itertools.product(*(nodes for nodes, _ in lines)))
    return np.array(points).reshape(len(weights), len(levels)), weights


def _check_count(count: int) -> None:
    if count > _MOST_POINTS:
        raise NoFormulaError(f"an input for which this scheme has more than {_MOST_POINTS:,} points")


_SCHEMES: Mapping[str, Callable[[int, int], tuple[Array, Array]]] = {
    "spherical": _spherical,
    "tensor": _tensor,
    "sparse": _sparse,
}
