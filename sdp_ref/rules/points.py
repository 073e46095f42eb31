"""Rules that evaluate the net at a few points: cubature, divided differences, the unscented transform."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.trace import Net
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law
from sdp_ref.laws.base import noted
from sdp_ref.rules.base import Rule, as_any_gaussian, check_outputs, smooth_orders, stored
from sdp_ref.rules.rows import evaluates


@dataclass(frozen=True)
class PointRule(Rule):
    """The Gaussian with mean and covariance of the net's outputs at weighted points of the input's law."""

    @abstractmethod
    def points(self, dimension: int) -> tuple[Tensor, Tensor]:
        """Return points (p, n) and weights (p,) for a standard normal input with n components, both float64.

        The weights sum to 1. Raises :class:`~sdp_ref.errors.NoFormulaError` if there are no points for this
        dimension.
        """

    @property
    def bend(self) -> float:
        """Weight in the covariance of d d^T, with d the mean of the outputs minus the output at the mean."""
        return 0.0

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        @evaluates(self.name, net)
        def propagate(x: Law) -> Law:
            x = as_any_gaussian(self.name, x)
            with self.at():
                points, weights = self.points(x.dimension)
            notes = [] if self.bend else _notes(weights)
            points, weights = points.to(x.location.device), weights.to(x.location.device)
            inputs = placed(x, points.expand(x.batch, -1, -1)).flatten(0, 1)
            outputs = outputs_at(net, inputs).unflatten(0, (x.batch, len(points)))
            event = outputs.shape[2:]
            values, weights = outputs.flatten(2).double(), weights.unsqueeze(1)
            # Large weights of both signs cancel: keep the outputs themselves out of these sums.
            origin = values[:, :1] if self.bend else torch.zeros_like(values[:, :1])
            values = values - origin
            mean = (weights * values).sum(1)
            # Not E[y y^T] - m m^T, which cancels where the mean is large and may then be indefinite.
            centred = values - mean.unsqueeze(1)
            covariance = centred.mT @ (weights * centred)
            if self.bend:
                turn = (mean - values[:, 0]).unsqueeze(2)
                covariance = covariance + self.bend * turn @ turn.mT
            mean, dtype = mean + origin.squeeze(1), outputs.dtype
            law = noted(stored(mean.unflatten(1, event), covariance, dtype), notes)
            unresolved = dtype != torch.float64 and self.known_faults.get("precision")
            return noted(law, [f"few digits: {unresolved} (use float64)"]) if unresolved else law

        return propagate


def effective_points(weights: Tensor) -> float:
    """Number of independent samples with the same variance, 1 / sum of w^2, for weights with the sum 1.

    Weights of both signs amplify the part of the net that the points do not integrate exactly.
    """
    return float(1 / weights.square().sum())


def _notes(weights: Tensor) -> list[str]:
    if bool((weights >= 0).all()):
        return []
    return [f"weights of both signs: {len(weights)} points vary as {effective_points(weights):.3g} samples"]


def outputs_at(net: Net, points: Tensor) -> Tensor:
    """Outputs of a net at points (P, *event), in parts, since values inside a net need more memory."""
    rows = max(1, _VALUES // max(1, points.shape[1:].numel()))
    return torch.cat([check_outputs(part, net(part)) for part in points.split(rows)])


def placed(x: Gaussian | DiagonalGaussian, normals: Tensor) -> Tensor:
    """Points mean + L z (B, P, *event) of a law with covariance L L^T, from standard points z (B, P, n)."""
    if isinstance(x, DiagonalGaussian):
        noise = normals * x.standard_deviation.flatten(1).unsqueeze(1)
    else:
        noise = normals @ x.factor().mT
    return x.mean.unsqueeze(1) + noise.unflatten(2, x.event_shape).to(x.mean.dtype)


Array = NDArray[np.float64]

_VALUES = 2**19
"""Input components that the net receives at once; values inside image nets take up to 100 times as much."""
_MOST_POINTS = 10**6
_FARTHEST = 1e3  # standard deviations; the law does not depend on outputs farther away
_LARGEST_BETA = 1e3  # it multiplies the rounding error of the mean
_NEAREST = 1e-6  # float64 outputs yield at least three digits of second differences


@dataclass(frozen=True)
class Cubature(PointRule):
    """Moments from weighted points that integrate polynomials of the input exactly, up to a degree.

    The mean is exact if the net is such a polynomial, and the covariance if its square is. For n components,
    "spherical" takes 2 n points at degree 3 and 2 n^2 + 1 at degree 5, "tensor" ((degree + 1) / 2)^n
    (Gauss-Hermite nodes in each direction), and "sparse" a number that grows with n as n^((degree - 1) / 2)
    (Smolyak's sum of small tensor grids). "spherical" of degree 5 for more than 4 components, and "sparse",
    have negative weights, with which a covariance may be indefinite.

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
    orders: ClassVar[Mapping[str, float]] = smooth_orders(4, 4)
    degree: int = 3
    scheme: str = "spherical"

    def __post_init__(self) -> None:
        self.require_one_of("scheme", _SCHEMES)
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
    """Points (P, n) and weights (P,) on the axes, and for degree 5 also at 0 and between two axes."""
    _check_count(_SPHERICAL[degree](dimension))
    axes = np.eye(dimension)
    if degree == 3:
        points = math.sqrt(dimension) * np.concatenate([axes, -axes])
        return points, np.full(2 * dimension, 0.5 / dimension)
    n = dimension
    first, second = np.triu_indices(n, 1)
    on_axes = math.sqrt(n + 2) * axes
    parts = [np.zeros((1, n)), on_axes, -on_axes]
    for a, b in itertools.product((1, -1), repeat=2):
        parts.append(math.sqrt((n + 2) / 2) * (a * axes[first] + b * axes[second]))
    points = np.concatenate(parts)
    weights = np.full(len(points), 1 / (n + 2) ** 2)
    weights[0] = 2 / (n + 2)
    weights[1 : 2 * n + 1] = (4 - n) / (2 * (n + 2) ** 2)
    return points, weights


_SPHERICAL: Mapping[int, Callable[[int], int]] = {3: lambda n: 2 * n, 5: lambda n: 2 * n * n + 1}
"""Number of points by degree."""


def _tensor(dimension: int, degree: int) -> tuple[Array, Array]:
    """Points (P, n) and weights (P,) of the product of Gauss-Hermite quadratures of this degree."""
    level = (degree + 1) // 2
    _check_count(level**dimension)
    return _product([level] * dimension)


def _sparse(dimension: int, degree: int) -> tuple[Array, Array]:
    """Points (P, n) and weights (P,) of Smolyak's sum of tensor grids.

    With L levels in n directions, it is the sum over grids of levels l_1, ..., l_n, each at least 1. Their
    excess e = sum (l_i - 1) is from L - n to L - 1, and the factor of a grid (-1)^(L - 1 - e) times the
    binomial coefficient of n - 1 and L - 1 - e (Wasilkowski and Wozniakowski 1995).
    """
    level = (degree + 1) // 2
    # For each sum of levels, the number of grids times the points of the largest: a cheap upper bound.
    _check_count(math.comb(dimension + level - 1, level - 1) * level)
    weights: dict[tuple[float, ...], float] = defaultdict(float)
    for excess in range(max(0, level - dimension), level):
        sign = (-1) ** (level - 1 - excess) * math.comb(dimension - 1, level - 1 - excess)
        for raised in itertools.combinations_with_replacement(range(dimension), excess):
            directions, extra = np.unique(np.array(raised, dtype=np.intp), return_counts=True)
            point = np.zeros(dimension)  # the only node of a direction at the lowest level
            nodes, node_weights = _product([1 + int(count) for count in extra])
            for node, weight in zip(nodes, node_weights, strict=True):
                # Equal nodes of two grids may differ by rounding, and 0 may be -0.
                point[directions] = np.round(node, 12) + 0.0
                weights[tuple(point)] += sign * weight
    return np.array(list(weights)), np.array(list(weights.values()))


def _product(levels: Sequence[int]) -> tuple[Array, Array]:
    """Tensor product of the given numbers of Gauss-Hermite nodes: points (P, directions), weights (P,)."""
    from numpy.polynomial.hermite_e import hermegauss

    nodes_by_direction = []
    weights = np.ones(1)
    for level in levels:
        nodes, line_weights = hermegauss(level)
        nodes_by_direction.append(nodes)
        weights = np.multiply.outer(weights, line_weights / line_weights.sum()).ravel()
    points = list(itertools.product(*nodes_by_direction))
    return np.array(points).reshape(len(weights), len(levels)), weights


def _check_count(count: int) -> None:
    if count > _MOST_POINTS:
        raise NoFormulaError(f"an input for which this scheme has more than {_MOST_POINTS:,} points")


_SCHEMES: Mapping[str, Callable[[int, int], tuple[Array, Array]]] = {
    "spherical": _spherical,
    "tensor": _tensor,
    "sparse": _sparse,
}


@dataclass(frozen=True)
class DividedDifference(Rule):
    """Second-order divided differences (DD2): 2 n + 1 evaluations of the net for an input of n components.

    The net is evaluated at the mean and at mean +- h s_i, for the columns s_i of a square root of the
    covariance (the axes of a diagonal one). With a_i = (f+ - f-) / 2 and d_i = (f+ + f-) / 2 - f the mean is
    f + sum d_i / h^2 and the covariance sum a_i a_i^T / h^2 + (h^2 - 1) / h^4 sum d_i d_i^T. The covariance
    is positive semi-definite. With h^2 = 3 it is exact for sums of quadratic functions of one axis each.
    Interactions between axes are ignored.

    Parameters
    ----------
    step : float
        h, from 1 to 1000. The published sqrt(3), the kurtosis of a Gaussian, suits a single wide law; pieces
        of a mixture are more accurate with shorter steps.
    """

    name: ClassVar[str] = "divided_difference"
    title: ClassVar[str] = "divided differences"
    claims: ClassVar[frozenset[str]] = frozenset({"second order"})
    rank: ClassVar[int] = 46
    orders: ClassVar[Mapping[str, float]] = smooth_orders(4, 4)
    step: float = math.sqrt(3)

    def __post_init__(self) -> None:
        self.require_number("step", 1, _FARTHEST)

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        square = float(self.step) ** 2

        @evaluates(self.name, net)
        def propagate(x: Law) -> Law:
            x = as_any_gaussian(self.name, x)
            n = x.dimension
            axes = self.step * torch.eye(n, dtype=torch.float64, device=x.location.device)
            points = torch.cat([torch.zeros_like(axes[:1]), axes, -axes])
            inputs = placed(x, points.expand(x.batch, -1, -1)).flatten(0, 1)
            outputs = outputs_at(net, inputs).unflatten(0, (x.batch, 2 * n + 1))
            event, dtype = outputs.shape[2:], outputs.dtype
            centre, above, below = outputs.flatten(2).double().split([1, n, n], 1)
            slope, bend = (above - below) / 2, (above + below) / 2 - centre
            mean = centre.squeeze(1) + bend.sum(1) / square
            covariance = _scatter(slope) / square + _scatter(bend) * ((square - 1) / square**2)
            return stored(mean.unflatten(1, event), covariance, dtype)

        return propagate


def _scatter(rows: Tensor) -> Tensor:
    return rows.mT @ rows


@dataclass(frozen=True)
class Unscented(PointRule):
    """Unscented transform: 2 n + 1 evaluations of the net for an input of n components.

    Points mean +- sqrt(n + lambda) times the columns of a square root of the covariance (the symmetric axes
    of a diagonal one), weights 1 / (2 (n + lambda)), and the mean itself with weight lambda / (n + lambda),
    lambda = alpha^2 (n + kappa) - n. In the covariance, the weight of the output at the mean is larger by 1 -
    alpha^2 + beta. With kappa and beta of at least 0 the covariance is positive semi-definite.

    Parameters
    ----------
    kappa : float, optional
        From 0 to 10^6. By default max(0, 3 - n), which matches the fourth moments of a Gaussian if possible.
    alpha : float
        Distance of the points, as a multiple of sqrt(n + kappa): 1, as first published, or less, often 0.001,
        but at least 10^-6. Differences of outputs are divided by its square, so small values leave no digits
        of a float32 net.
    beta : float
        From 0 to 1000, depends on the fourth moments: 2 is best for a Gaussian with small `alpha`.

    References
    ----------
    Julier and Uhlmann (1997) as above: alpha = 1, beta = 0. Julier, "The scaled unscented transformation",
    ACC 2002; Wan and van der Merwe, "The unscented Kalman filter for nonlinear estimation", 2000, eq. 15.
    """

    name: ClassVar[str] = "unscented"
    colour: ClassVar[str] = "#cc79a7"
    rank: ClassVar[int] = 40
    orders: ClassVar[Mapping[str, float]] = smooth_orders(4, 4)
    kappa: float | None = None
    alpha: float = 1.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        if self.kappa is not None:
            self.require_number("kappa", 0, _FARTHEST**2)
        self.require_number("alpha", _NEAREST, 1)
        self.require_number("beta", 0, _LARGEST_BETA)

    @property
    def known_faults(self) -> Mapping[str, str]:  # type: ignore[override]
        if self.alpha >= _SINGLE:
            return {}
        return {"precision": "it divides differences of outputs, which float32 rounds, by alpha squared"}

    @property
    def bend(self) -> float:
        return 1 - self.alpha**2 + self.beta

    def points(self, dimension: int) -> tuple[Tensor, Tensor]:
        n = dimension
        kappa = max(0.0, 3.0 - n) if self.kappa is None else float(self.kappa)
        spread = self.alpha**2 * (n + kappa)  # n + lambda
        axes = math.sqrt(spread) * torch.eye(n, dtype=torch.float64)
        weights = torch.full((2 * n + 1,), 0.5 / spread, dtype=torch.float64)
        weights[0] = (spread - n) / spread
        return torch.cat([torch.zeros_like(axes[:1]), axes, -axes]), weights


_SINGLE = 0.1  # from here on, float32 outputs yield at least two digits of second differences
