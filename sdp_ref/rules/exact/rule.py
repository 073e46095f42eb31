"""The exact law of the output of a piecewise affine net under Gaussian noise in a few inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.errors import NoFormulaError, UnsupportedError
from sdp_ref.graph.affine import AFFINE
from sdp_ref.graph.ops import Add, Cat
from sdp_ref.graph.trace import Step
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law, Pieces, PiecewiseGaussian, joined, unchecked
from sdp_ref.rules.exact.cells import Array, Cell
from sdp_ref.rules.exact.integrals import moments
from sdp_ref.rules.exact.regions import Census, Kink, Map, Operation, Regions, TooManyRegions, as_rows, walk
from sdp_ref.rules.layerwise import LayerwiseRule

_DRAWS = 2**16
"""Number of samples for the estimate of the number of regions, if there are too many."""

_NO_NOISE = 1e-7
"""Relative to the widest direction of the noise: narrower directions are rounding error."""


@dataclass(frozen=True)
class Exact(LayerwiseRule):
    """The law itself, for nets that are affine in pieces and Gaussian noise in at most 5 inputs.

    A net of affine ops, ReLU and LeakyReLU is affine on each of a number of polytopes. The rule makes all
    that come as near to the mean as a share `mass` of the noise is: it cuts those of a layer where units of
    the next are zero. The law of the output is then a mixture of Gaussians, each cut off at the faces of a
    polytope and mapped. Farther out the polytopes go on to infinity, and the affine functions with them, so
    that the result is the law of a function that is the net but for a mass of at most 1 - `mass`. Its moments
    are integrals over the faces.

    Parameters
    ----------
    mass : float
        Mass of the noise, inside (0, 1), on which the function is the net. Outside, the net is continued, so
        that most of the remaining mass is not lost.
    regions : int
        Maximum number of polytopes. A net that needs more is rejected, with an estimate of their number.
    tolerance : float
        Error of the mass and second moments of the noise, inside (0, 1), summed over all polytopes. It is
        estimated from the difference between cubatures of degree 9 and 7.

    Notes
    -----
    The result is a :class:`~sdp_ref.laws.piecewise.PiecewiseGaussian`: samples, mean, covariance, the missing
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
            raise UnsupportedError(self.name, f"{type(x).__name__} input; it is for Gaussian ones")
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
        try:
            found = walk(steps, operations, start, regions.bend)
        except TooManyRegions:
            self._refuse(steps, operations, start, radius)
        maps = as_rows(found)
        within = self._moments(regions.cells, n)
        planes, children = regions.tree()
        pieces = Pieces(planes, children[:, 0], children[:, 1], maps, within[:, n, n])
        with np.errstate(over="ignore", invalid="ignore"):  # squares of outputs may overflow
            mean, covariance = _pushed(maps, within)
            steepest = np.linalg.norm(maps[:, :, :n], 2, axis=(1, 2)).max() if n else np.float64(0)
            bounds = _bounds(n, radius, steepest, self.tolerance)
        numbers = mean, covariance, 1 - self.mass if n else 0.0, *bounds
        tensors = [torch.from_numpy(np.asarray(v)[None]).to(x.location) for v in numbers]
        tensors[0] = tensors[0].unflatten(1, found.shape[2:])
        return unchecked(PiecewiseGaussian, *tensors, (pieces,))

    def _moments(self, cells: Sequence[Cell], n: int) -> Array:
        """Integrals of (z, 1) (z, 1)^T over each polytope; the one around the origin is the complement."""
        inmost = int(np.argmin([cell.planes[:, n].max(initial=-math.inf) for cell in cells]))
        others = [number for number in range(len(cells)) if number != inmost]
        within = np.zeros((len(cells), n + 1, n + 1))
        if others:
            within[others] = moments([cells[number] for number in others], self.tolerance)
        within[inmost] = np.eye(n + 1) - within.sum(0)
        return within

    def _refuse(
        self, steps: Sequence[Step], operations: Sequence[Operation], start: Tensor, radius: float
    ) -> NoReturn:
        """Raise the error for a net with too many polytopes."""
        n, rng = start.shape[1] - 1, np.random.default_rng(0)
        normals = rng.standard_normal((_DRAWS, n))
        # Uniform over the ball: distant regions count as much as those with most of the mass.
        even = normals / np.linalg.norm(normals, axis=1, keepdims=True)
        even *= radius * rng.random((_DRAWS, 1)) ** (1 / n)

        def census(points: Array) -> Census:
            columns = torch.from_numpy(np.concatenate([points, np.ones((_DRAWS, 1))], 1)).to(start)
            return Census.of(steps, operations, torch.tensordot(columns, start[0], 1), self.regions)

        least, share = max(census(even).least, self.regions + 1), census(normals).share
        raise NoFormulaError(
            f"more than {self.regions} linear regions within {self.mass:g} of the input's mass: there are at "
            f"least {least}, of which the likeliest {self.regions} hold {100 * share:.0f} % of it (take less "
            "noise, a lower mass or more regions)"
        )


def _whitened(x: Gaussian | DiagonalGaussian) -> Tensor:
    """The input as a function of standard normal variates, shape (1, n + 1, *event), the constant last."""
    mean = x.mean.double()
    if isinstance(x, DiagonalGaussian):
        sizes = x.standard_deviation.flatten(1)
        columns = sizes[0].diag()[:, sizes[0] > 0]
    else:
        columns = x.factor()[0]
        sizes = columns.norm(dim=0)
        columns = columns[:, sizes > _NO_NOISE * sizes.max()]
    rows: Tensor = torch.cat([columns.mT, mean.flatten(1)]).unflatten(1, mean.shape[1:]).unsqueeze(0)
    return rows


def _pushed(maps: Array, within: Array) -> tuple[Array, Array]:
    """Mean and covariance of the output, from the maps of the polytopes and the integrals over them."""
    # Relative to the value in the likeliest polytope: about 0, a small covariance would lose its digits.
    centre = maps[within[:, -1, -1].argmax(), :, -1]
    moved = maps.copy()
    moved[:, :, -1] -= centre
    parts = moved @ within
    mean = parts[:, :, -1].sum(0)
    second = np.tensordot(parts, moved, axes=((0, 2), (0, 2)))
    covariance = second - np.outer(mean, mean)
    return mean + centre, (covariance + covariance.T) / 2


def _bounds(n: int, radius: float, steepest: np.float64, tolerance: float) -> tuple[float, float]:
    """Bounds of the errors of mean and covariance in norm, if no polytope is steeper than the known ones.

    With slope L and radius R: beyond R, the net f and its continuation g differ by at most 2 L (abs(z) + R),
    and their distances from f(0) are at most L abs(z) and L (abs(z) + 2 R).
    """
    if not n:
        return 0.0, 0.0
    scales = [2 ** (k / 2) * math.gamma((n + k) / 2) / math.gamma(n / 2) for k in range(3)]
    tails = [scale * special.gammaincc((n + k) / 2, radius**2 / 2) for k, scale in enumerate(scales)]
    first = tails[1] + radius * tails[0]
    second = tails[2] + 2 * radius * tails[1] + radius**2 * tails[0]
    of_mean = steepest * (2 * first + tolerance)
    of_second = steepest**2 * (4 * second + tolerance)
    return float(of_mean), float(of_second + of_mean * (2 * steepest * math.sqrt(n) + of_mean))


@Exact.prepares(*AFFINE)
def _affine(_rule: Exact, module: nn.Module) -> Operation:
    return Map(AFFINE[type_before_parametrizations(module)](module))


@Exact.handles(Add)
def _add(_rule: Exact, _module: nn.Module, a: Tensor, b: Tensor) -> Tensor:
    if a.shape[2:] != b.shape[2:]:
        raise NoFormulaError(f"a sum of values of shapes {tuple(a.shape[2:])} and {tuple(b.shape[2:])}")
    return a + b


@Exact.handles(Cat)
def _cat(_rule: Exact, module: Cat, *values: Tensor) -> Tensor:
    both: Tensor = module(*(value.flatten(0, 1) for value in values)).unflatten(0, values[0].shape[:2])
    return both


@Exact.prepares(nn.ReLU, nn.LeakyReLU)
def _kink(_rule: Exact, module: nn.Module) -> Operation:
    return Kink(float(getattr(module, "negative_slope", 0.0)))
