"""Masses and moments of polytopes under the standard normal law, by integrals over their facets.

With phi the density and r the distance from the origin, z h(r) has the divergence phi if (r^n h)' is r^(n -
1) phi. The mass is therefore a sum over facets of their distance times an integral of h, and the moments are
sums of integrals of phi and z phi, in one dimension less than the polytope has.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.errors import NoFormulaError, UnsupportedError
from sdp_ref.graph.affine import AFFINE, Affine
from sdp_ref.graph.ops import Add, Cat
from sdp_ref.graph.trace import Step
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law, Pieces, PiecewiseGaussian, joined, noted, unchecked
from sdp_ref.rules.base import lost_variances
from sdp_ref.rules.exact.regions import (
    Array,
    Cell,
    Flags,
    Indices,
    Kink,
    Operation,
    Regions,
    as_rows,
    nearest,
    walk,
)
from sdp_ref.rules.layerwise import LayerwiseRule

_LONGEST = 8.0
"""Largest edge of a simplex near the origin such that the density cannot hide between the points."""

_AWAY = 1.0
"""Distance from the origin beyond which a polytope uses the h that vanishes at infinity."""

_SURE = 0.1
"""Upper bound of the error of the better rule relative to the difference of the two; 0.01 is typical."""

_NEAR = 0.1
"""Half of the squared distance up to which 1 - Q(n / 2, x) loses digits."""

_MOST_SIMPLICES = 10_000_000
"""Maximum number of simplices, which takes about a minute."""

_CHUNK = 2**17  # cubature points per chunk

# Orders of the cubature: degree 5 for the first attempt, which suffices for small simplices, then degree 9.
_FIRST_ORDER = 2
_ORDER = 4


def moments(cells: Sequence[Cell], tolerance: float) -> Array:
    """Integrals of (z, 1) (z, 1)^T times the standard normal density over polytopes, (cells, n + 1, n + 1).

    `cells` has at least one polytope, in standard deviations. The integrals are sums over simplices of the
    facets. A simplex is halved if cubature rules of different degrees disagree on it; `tolerance` limits the
    sum of the estimated errors. Raises :class:`~sdp_ref.NoFormulaError` if this takes too many simplices.

    References
    ----------
    Lasserre, "Integration on a convex polytope", Proc. AMS 1998: from polytopes to their facets.
    """
    simplices, planes, owner = _facet_simplices(cells)
    outer = np.array([not nearest(cell.vertices, _AWAY)[1] for cell in cells])
    count, n = len(cells), simplices.shape[2]
    total = np.zeros((count, n + 1, n + 1))
    order, evaluated = _FIRST_ORDER, 0
    while len(simplices):
        evaluated += len(simplices)
        if evaluated > _MOST_SIMPLICES:
            raise NoFormulaError(
                f"regions that take more than {_MOST_SIMPLICES:,} simplices to integrate over"
            )
        edges, areas = _edges(simplices), _areas(simplices)
        parts, error = _cubature(simplices, areas, planes, outer[owner], order)
        masses: Array = total[:, n, n] + np.bincount(owner, parts[:, n, n], count)
        allowed = tolerance * _error_shares(masses, owner)
        done = (error <= allowed) & ~_coarse(simplices, edges, areas, outer[owner], allowed)
        np.add.at(total, owner[done], parts[done])
        simplices, planes, owner = simplices[~done], planes[~done], owner[~done]
        if order > _FIRST_ORDER:  # otherwise the rule of higher degree is tried first
            simplices = _halved(simplices, edges[~done])
            planes, owner = np.repeat(planes, 2, axis=0), np.repeat(owner, 2)
        order = _ORDER
    total[:, :n, :n] += total[:, n, n, None, None] * np.eye(n)  # see `_facet_integrals`
    return (total + total.transpose(0, 2, 1)) / 2


def _facet_simplices(cells: Sequence[Cell]) -> tuple[Array, Array, Indices]:
    """Simplices (k, n, n) of the facets of polytopes, their planes (k, n + 1), and the index of the cell."""
    simplices, planes, counts = [], [], []
    for cell in cells:
        chains, facets = cell.surface()
        simplices.append(cell.vertices[chains])
        planes.append(cell.planes[facets])
        counts.append(len(chains))
    return np.concatenate(simplices), np.concatenate(planes), np.repeat(np.arange(len(cells)), counts)


def _error_shares(masses: Array, owner: Indices) -> Array:
    """Share of each simplex in the allowed error.

    One half is divided among the polytopes by their masses, the other evenly, since masses are estimates that
    may be 0. The simplices of a polytope have equal shares.
    """
    count = len(masses)
    of_cells = (masses + 1 / count) / 2 / np.maximum(np.bincount(owner, minlength=count), 1)
    return np.asarray(of_cells[owner])


def _coarse(simplices: Array, edges: Array, areas: Array, outer: Flags, allowed: Array) -> Flags:
    """Whether simplices are so large that the density may be concentrated between the points of a rule."""
    centre = simplices.mean(1)
    reach = np.sqrt(np.square(simplices - centre[:, None]).sum(2).max(1))
    distance = np.sqrt(np.square(centre).sum(1)) - reach
    longest = np.sqrt(edges.max(1, initial=0))
    coarse: Flags = longest > np.maximum(_LONGEST, distance)
    most = areas * np.exp(-np.square(np.maximum(distance, 0)) / 2)
    coarse &= ~(outer & (most < allowed / 10))
    return coarse


def _edges(simplices: Array) -> Array:
    i, j = np.triu_indices(simplices.shape[1], 1)
    return np.square(simplices[:, i] - simplices[:, j]).sum(2)


def _halved(simplices: Array, edges: Array) -> Array:
    """Bisect every simplex at the middle of its longest edge."""
    i, j = np.triu_indices(simplices.shape[1], 1)
    longest = edges.argmax(1)
    rows, i, j = np.arange(len(simplices)), i[longest], j[longest]
    middle = (simplices[rows, i] + simplices[rows, j]) / 2
    both = np.repeat(simplices, 2, axis=0)
    both[2 * rows, i] = middle
    both[2 * rows + 1, j] = middle
    return both


def _cubature(simplices: Array, areas: Array, planes: Array, outer: Flags, order: int) -> tuple[Array, Array]:
    """Contribution of each simplex of a facet to (z, 1) (z, 1)^T - (1, 0), and its error estimate."""
    count, n = simplices.shape[0], simplices.shape[2]
    points, weights = grundmann_moeller(n - 1, order)
    parts, error = np.empty((count, n + 1, n + 1)), np.empty(count)
    step = max(1, _CHUNK // len(points))
    for start in range(0, count, step):
        rows = slice(start, start + step)
        parts[rows], error[rows] = _facet_integrals(
            simplices[rows], areas[rows], planes[rows], outer[rows], points, weights
        )
    return parts, error


def _facet_integrals(
    simplices: Array, areas: Array, planes: Array, outer: Flags, points: Array, weights: Array
) -> tuple[Array, Array]:
    """Integrals over simplices of facets, (k, n + 1, n + 1), and their errors (k,).

    A facet with outer normal a has a z + b = 0. Since div(z h) = phi and grad phi = -z phi, the divergence
    theorem gives for a polytope, as sums over its facets:

    - mass: -b times the integral of h,
    - first moments: -a times the integral of phi,
    - second moments: -a times the integral of z^T phi, plus the mass times the identity matrix, which is left
      to the caller.

    `points` are barycentric coordinates, and the columns of `weights` the rules of higher and lower degree.
    """
    n = simplices.shape[2]
    higher, lower = weights.T  # rules of higher and lower degree
    normal, offset = planes[:, :n], planes[:, n]
    gram = simplices @ simplices.transpose(0, 2, 1)
    square = _squares(gram, points)
    phi = np.exp(square / -2) * (areas * (2 * math.pi) ** (-n / 2))[:, None]
    h = _potential(square, n, outer) * areas[:, None]

    phi_by_vertex = (phi * higher) @ points  # integrals of phi times the barycentric coordinates
    mass = -offset * (h @ higher)
    phi_z = np.einsum("si,sij->sj", phi_by_vertex, simplices)
    integrals = np.zeros((len(simplices), n + 1, n + 1))
    integrals[:, :n, :n] = -normal[:, :, None] * phi_z[:, None, :]
    integrals[:, :n, n] = -normal * phi_by_vertex.sum(1)[:, None]
    integrals[:, n, :n] = integrals[:, :n, n]
    integrals[:, n, n] = mass

    mass_error = np.abs(mass - -offset * (h @ lower))
    phi_error = np.abs((phi_by_vertex - (phi * lower) @ points).sum(1))
    largest_z = np.sqrt(gram.diagonal(axis1=1, axis2=2).max(1))  # bound of |z| for the integral of z phi
    return integrals, _SURE * (mass_error + (1 + largest_z) * phi_error)


def _squares(gram: Array, points: Array) -> Array:
    """Squared distances (k, p) from the origin of points with barycentric coordinates (p, n).

    For coordinates l and vertices v, they are the sum over i, j of l_i l_j v_i v_j; `gram` (k, n, n) has the
    products of vertices.
    """
    n = gram.shape[1]
    products = np.einsum("pi,pj->ijp", points, points).reshape(n * n, -1)
    return np.asarray(np.maximum(gram.reshape(len(gram), -1) @ products, 0))


def _areas(simplices: Array) -> Array:
    n = simplices.shape[2]
    sides = simplices[:, 1:] - simplices[:, :1]
    gram = sides @ sides.transpose(0, 2, 1)
    return np.sqrt(np.maximum(np.linalg.det(gram), 0)) / math.factorial(n - 1)


def _potential(square: Array, n: int, outer: Flags) -> Array:
    """Values of h at squared distances: finite at the origin, or vanishing at infinity if `outer`.

    (r^n h)' = r^(n - 1) phi gives r^n h = (P(n / 2, r^2 / 2) + c) / S, for the regularised incomplete gamma
    function P = 1 - Q and the area S of the unit sphere, with c = 0, or c = -1 if `outer`. Q follows from
    Q(a + 1, x) = Q(a, x) + x^a exp(-x) / Gamma(a + 1).
    """
    half = square / 2
    q = special.erfc(np.sqrt(half)) if n % 2 else np.exp(-half)  # Q(1/2, x), Q(1, x)
    for a in np.arange(2 - n % 2, n, 2) / 2:
        q += half**a * np.exp(-half) / math.gamma(a + 1)
    numerator = np.where(outer[:, None], -q, 1 - q)
    near = (half < _NEAR) & ~outer[:, None]
    numerator[near] = special.gammainc(n / 2, half[near])
    sphere = 2 * math.pi ** (n / 2) / math.gamma(n / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        h = numerator / (sphere * square ** (n / 2))
    at_origin = (2 * math.pi) ** (-n / 2) / n
    return np.where((square < 1e-12) & ~outer[:, None], at_origin, h)


@functools.cache
def grundmann_moeller(n: int, order: int) -> tuple[Array, Array]:
    """Points and weights for the mean over a simplex of a rule of degree 2 order + 1 and of the previous one.

    References
    ----------
    Grundmann and Moeller, "Invariant integration formulas for the n-simplex by combinatorial methods", SIAM
    J. Numer. Anal. 1978.
    """
    points, weights = [], []
    for level in range(order + 1):
        candidates = itertools.product(range(level + 1), repeat=n + 1)
        indices = np.array([index for index in candidates if sum(index) == level], dtype=float)
        points.append((2 * indices + 1) / (n + 1 + 2 * level))
        lower_weight = _weight(n, order - 1, level) if level < order else 0.0
        weights.append(np.tile([_weight(n, order, level), lower_weight], (len(indices), 1)))
    return np.concatenate(points), np.concatenate(weights)


def _weight(n: int, order: int, level: int) -> float:
    """Weight of a point of a level, for the mean; order - level is i of the paper."""
    degree, i = 2 * order + 1, order - level
    power = (degree + n - 2 * i) ** degree
    below = math.factorial(i) * math.factorial(degree + n - i)
    return float((-1) ** i * power * math.factorial(n) / (4**order * below))


@dataclass(frozen=True)
class Exact(LayerwiseRule):
    """The law itself, for nets that are affine in pieces and Gaussian noise in at most 5 inputs.

    A net of affine ops, ReLU and LeakyReLU is affine on each of a number of polytopes. The rule computes all
    polytopes within the ball that holds a share `mass` of the noise, by cutting those of a layer where units
    of the next one are zero. The law of the output is then a mixture of Gaussians, each truncated to a
    polytope and mapped. Outside the ball, the polytopes and their affine functions are continued to infinity.
    The result is therefore the law of a function that equals the net except for a mass of at most 1 - `mass`.
    Its moments are integrals over the faces of the polytopes.

    Parameters
    ----------
    mass : float
        Mass of the noise, inside (0, 1), on which the function is the net. Outside, the net is continued, so
        that most of the remaining mass is not lost.
    regions : int
        Maximum number of polytopes. A net that needs more is rejected.
    tolerance : float
        Error of the mass and second moments of the noise, inside (0, 1), summed over all polytopes. It is
        estimated from the difference between cubatures of degree 9 and 7.

    Notes
    -----
    The result is a :class:`~sdp_ref.laws.mixture.PiecewiseGaussian`: samples, mean, covariance, the missing
    mass, and bounds of its effect on mean and covariance; `pieces` has the map and probability of every
    polytope. It has no gradient and no known density. If no unit has its kink within `mass`, the net is
    treated as affine, and any number of inputs is supported. The laws of a batch are processed one by one, in
    float64. Other input laws, noise in more inputs and other non-linearities are rejected.

    References
    ----------
    Montufar, Pascanu, Cho and Bengio, "On the number of linear regions of deep neural networks", NeurIPS
    2014. Grundmann and Moeller, "Invariant integration formulas for the n-simplex by combinatorial methods",
    SIAM J. Numer. Anal. 1978: the cubatures. Lasserre, "Integration on a convex polytope", Proc. AMS 1998:
    from polytopes to their faces.
    """

    name: ClassVar[str] = "exact"
    title: ClassVar[str] = "exact"
    claims: ClassVar[Collection[str]] = frozenset({"moments"})
    rank: ClassVar[int] = 48
    differentiable: ClassVar[bool] = False
    """Read by the conformance kit."""
    mass: float = 0.9999
    regions: int = 20_000
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        for key in ("mass", "tolerance"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
                raise ValueError(f"exact needs a {key} between 0 and 1, got {value!r}")
        if isinstance(self.regions, bool) or not isinstance(self.regions, int) or self.regions < 1:
            raise ValueError(f"exact needs a whole number of regions, at least 1, got {self.regions!r}")

    def start(self, x: Law) -> Gaussian | DiagonalGaussian:
        """Require a Gaussian input."""
        if not isinstance(x, Gaussian | DiagonalGaussian):
            raise UnsupportedError(
                self.name, f"{type(x).__name__} input; the rule takes Gaussian inputs only"
            )
        return x

    def walk(self, steps: Sequence[Step], operations: Sequence[Any]) -> Callable[[Law], Law]:
        """Process the net as a whole."""

        @torch.no_grad()
        def propagate(x: Law) -> Law:
            x = self.start(x)
            with self.at():
                return joined([self._of_one(steps, operations, x[row]) for row in range(x.batch)])

        return propagate

    def _of_one(
        self, steps: Sequence[Step], operations: Sequence[Operation], x: Gaussian | DiagonalGaussian
    ) -> Law:
        start = _whitened(x)
        n = start.shape[1] - 1
        radius = float(stats.chi2.ppf(self.mass, n)) ** 0.5 if n else 0.0
        regions = Regions(n, radius, self.regions)
        outputs = walk(steps, operations, start, regions.bend)
        maps = as_rows(outputs)
        integrals = self._moments(regions.cells, n)
        planes, children = regions.tree()
        pieces = Pieces(planes, children[:, 0], children[:, 1], maps, integrals[:, n, n])
        with np.errstate(over="ignore", invalid="ignore"):  # squares of outputs may overflow
            mean, covariance = _output_moments(maps, integrals)
            steepest = np.linalg.norm(maps[:, :, :n], 2, axis=(1, 2)).max() if n else np.float64(0)
            mean_bound, covariance_bound = _bounds(n, radius, steepest, self.tolerance)
        missing_mass = 1 - self.mass if n else 0.0

        def batch_of_one(number: Array | float) -> Tensor:
            return torch.from_numpy(np.asarray(number)[None]).to(x.location)

        law = unchecked(
            PiecewiseGaussian,
            batch_of_one(mean).unflatten(1, outputs.shape[2:]),
            batch_of_one(covariance),
            batch_of_one(missing_mass),
            batch_of_one(mean_bound),
            batch_of_one(covariance_bound),
            (pieces,),
        )
        variance = torch.from_numpy(covariance).diagonal()
        return noted(law, lost_variances(variance, x.location.dtype))

    def _moments(self, cells: Sequence[Cell], n: int) -> Array:
        """Integrals of (z, 1) (z, 1)^T over each polytope, (cells, n + 1, n + 1).

        Those of the polytope around the origin are the complement of the others.
        """
        inmost = int(np.argmin([cell.planes[:, n].max(initial=-math.inf) for cell in cells]))
        others = [number for number in range(len(cells)) if number != inmost]
        integrals = np.zeros((len(cells), n + 1, n + 1))
        if others:
            integrals[others] = moments([cells[number] for number in others], self.tolerance)
        integrals[inmost] = np.eye(n + 1) - integrals.sum(0)
        return integrals


def _whitened(x: Gaussian | DiagonalGaussian) -> Tensor:
    """The input as a function of standard normal variates, shape (1, n + 1, *event), the constant last."""
    mean = x.mean.double()
    if isinstance(x, DiagonalGaussian):
        deviations = x.standard_deviation.flatten(1)[0]
        columns = deviations.diag()[:, deviations > 0]
    else:
        columns = x.factor()[0]
        columns = columns[:, columns.any(0)]
    rows: Tensor = torch.cat([columns.mT, mean.flatten(1)]).unflatten(1, mean.shape[1:]).unsqueeze(0)
    return rows


def _output_moments(maps: Array, integrals: Array) -> tuple[Array, Array]:
    """Mean (m,) and covariance (m, m) of the output.

    On a polytope with map A (m, n + 1), y = A (z, 1), so that E[y y^T] is the sum of A M A^T, for M the
    integrals of (z, 1) (z, 1)^T.
    """
    # Relative to the value in the likeliest polytope: about 0, a small covariance would lose its digits.
    centre = maps[integrals[:, -1, -1].argmax(), :, -1]
    centred_maps = maps.copy()
    centred_maps[:, :, -1] -= centre
    products = centred_maps @ integrals
    mean = products[:, :, -1].sum(0)
    second_moment = np.tensordot(products, centred_maps, axes=((0, 2), (0, 2)))
    covariance = second_moment - np.outer(mean, mean)
    return mean + centre, (covariance + covariance.T) / 2


def _bounds(n: int, radius: float, steepest: np.float64, tolerance: float) -> tuple[float, float]:
    """Bounds of the errors of mean and covariance in norm, if no polytope is steeper than the known ones.

    With slope L and radius R: beyond R, the net f and its continuation g differ by at most 2 L (abs(z) + R),
    and their distances from f(0) are at most L abs(z) and L (abs(z) + 2 R). `tails` are the parts of
    E[abs(z)^k] from abs(z) > R.
    """
    if not n:
        return 0.0, 0.0
    tails = []
    for k in range(3):
        moment = 2 ** (k / 2) * math.gamma((n + k) / 2) / math.gamma(n / 2)  # E[abs(z)^k]
        tails.append(moment * special.gammaincc((n + k) / 2, radius**2 / 2))
    first = tails[1] + radius * tails[0]
    second = tails[2] + 2 * radius * tails[1] + radius**2 * tails[0]
    of_mean = steepest * (2 * first + tolerance)
    of_second = steepest**2 * (4 * second + tolerance)
    return float(of_mean), float(of_second + of_mean * (2 * steepest * math.sqrt(n) + of_mean))


@Exact.prepares(*AFFINE)
def _affine(_rule: Exact, module: nn.Module) -> Operation:
    """An affine op as a map of affine functions, shape (C, n + 1, *event) with the constant last."""
    op: Affine = AFFINE[type_before_parametrizations(module)](module)

    def apply(value: Tensor) -> Tensor:
        constant, slopes = value[:, -1], value[:, :-1]
        op.check(constant)
        mapped = op.value(constant).unsqueeze(1)
        if not slopes.shape[1]:
            return mapped
        rows = op.rows(slopes.flatten(0, 1)).unflatten(0, slopes.shape[:2])
        return torch.cat([rows.expand(*rows.shape[:2], *mapped.shape[2:]), mapped], 1)

    return apply


@Exact.handles(Add)
def _add(_rule: Exact, _module: nn.Module, a: Tensor, b: Tensor) -> Tensor:
    if a.shape[2:] != b.shape[2:]:
        raise NoFormulaError(f"a sum of values of shapes {tuple(a.shape[2:])} and {tuple(b.shape[2:])}")
    return a + b


@Exact.handles(Cat)
def _cat(_rule: Exact, module: Cat, *values: Tensor) -> Tensor:
    flat = [value.flatten(0, 1) for value in values]
    return module(*flat).unflatten(0, values[0].shape[:2])


@Exact.prepares(nn.ReLU, nn.LeakyReLU)
def _kink(_rule: Exact, module: nn.Module) -> Operation:
    return Kink(float(getattr(module, "negative_slope", 0.0)))
