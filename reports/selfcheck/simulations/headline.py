"""Error rates of the headline metric for an exact rule, and its power for errors of known size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, stats

from sdp_bench.oracles.estimate.estimate import Estimate, Floor
from sdp_bench.oracles.partitions.principal import PrincipalCells, floor_of_largest, largest_total_variation
from sdp_bench.reports.selfcheck.rate import Rate

Array = NDArray[np.float64]

DIMENSIONS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20)
SAMPLES = 10**4
"""Samples of either side: few enough for a page; the floor is proportional to the inverse square root."""

_PILOT = 2**17
_COVERAGE = (
    0.92,
    1.0,
)  # of 95 %: the point is simulated from 200 pairs of draws and has an error of 0.02 itself


@dataclass(frozen=True)
class Error:
    """An error of a distribution, in coordinates of unit variance along its principal axes.

    `exact` is the total variation between both distributions. `wrong` maps standard normals, shape (axes, n),
    to samples of the wrong one; the last axes are the thinnest. `axes` is the smallest dimension for this
    error.
    """

    what: str
    exact: float
    wrong: Callable[[Array], Array]
    axes: int = 1


def location(shift: float) -> Error:
    """Thinnest axis shifted by `shift` of its standard deviations."""

    def wrong(z: Array) -> Array:
        z[-1] += shift
        return z

    return Error(f"location by {shift:g} sd", float(2 * stats.norm.cdf(shift / 2) - 1), wrong)


def scale(factor: float, axes: int = 1) -> Error:
    """Standard deviations along the thinnest axes multiplied by `factor`."""

    def wrong(z: Array) -> Array:
        z[-axes:] *= factor
        return z

    # The densities are equal on a sphere: |z|^2 = axes log(f^2) / (1 - f^-2).
    edge = axes * np.log(factor**2) / (1 - factor**-2)
    exact = abs(stats.chi2.cdf(edge, axes) - stats.chi2.cdf(edge / factor**2, axes))
    what = f"scale by {factor:g}" if axes == 1 else f"scale of {axes} axes by {factor:g}"
    return Error(what, float(exact), wrong, axes)


def rotation(degrees: float, ratio: float = 10.0, points: int = 10**6) -> Error:
    """Thinnest two axes rotated in their plane, with standard deviations in proportion `ratio` to 1."""
    sine, cosine = np.sin(np.deg2rad(degrees)), np.cos(np.deg2rad(degrees))
    turn = np.array([[cosine, -sine / ratio], [sine * ratio, cosine]])

    def wrong(z: Array) -> Array:
        z[-2:] = turn @ z[-2:]
        return z

    # E (1 - q/p)+ by samples of the true distribution, to 0.0005; the rotation preserves areas.
    z = np.random.default_rng(0).standard_normal((2, points))
    log_ratio = (np.square(z).sum(0) - np.square(np.linalg.inv(turn) @ z).sum(0)) / 2
    exact = float(np.maximum(0, -np.expm1(log_ratio)).mean())
    return Error(f"rotation by {degrees:g} degrees", exact, wrong, 2)


def mixture(centre: float) -> Error:
    """Two Gaussians at +- `centre` along the thinnest axis, with mean 0 and variance 1 together."""
    sd = np.sqrt(1 - centre**2)

    def wrong(z: Array) -> Array:
        side, place = np.divmod(2 * stats.norm.cdf(z[-1]), 1)  # which Gaussian, and the quantile in it
        z[-1] = sd * stats.norm.ppf(place) + centre * (2 * side - 1)
        return z

    def difference(x: float) -> float:
        mixed = (stats.norm.pdf(x, centre, sd) + stats.norm.pdf(x, -centre, sd)) / 2
        return float(abs(mixed - stats.norm.pdf(x)))

    exact = integrate.quad(difference, 0, 8, limit=200)[0]  # half of the integral over the line
    return Error(f"shape, two modes at {centre:g} sd", float(exact), wrong)


def triple(share: float) -> Error:
    """The thinnest three axes have signs with product +1 in a share of the samples; no pair shows it."""

    def wrong(z: Array) -> Array:
        bound = int(share * z.shape[1])
        z[-1, :bound] = np.abs(z[-1, :bound]) * np.sign(z[-2, :bound] * z[-3, :bound])
        return z

    return Error(f"signs of three axes bound in {share:.0%}", share / 2, wrong, 3)


PROMISED = (location(0.25), scale(1.3), rotation(2.0), mixture(0.8))
"""Errors of one or two axes that are detected in nine of ten measurements with :data:`SAMPLES`."""


@dataclass(frozen=True)
class Trials:
    """A Gaussian with principal standard deviations from 1 to 0.001, its cells and its floor.

    All trials share the floor of the first oracle, which hardly varies.
    """

    rotation: Array
    sds: Array
    cells: PrincipalCells
    floor: Floor
    samples: int

    @classmethod
    def of(cls, axes: int, samples: int, generator: np.random.Generator, cells: int = 512) -> Trials:
        """Choose cells and floor in some number of dimensions."""
        directions = np.linalg.qr(generator.standard_normal((axes, axes)))[0]
        sds = np.logspace(0, -3, axes)
        pilot = (directions * sds @ generator.standard_normal((axes, _PILOT))).T
        frozen = PrincipalCells.from_samples(pilot, cells)
        oracle = (directions * sds @ generator.standard_normal((axes, samples))).T
        floor = floor_of_largest(frozen.counts(oracle), samples)
        return cls(directions, sds, frozen, floor, samples)

    def estimate(self, generator: np.random.Generator, error: Error | None = None) -> Estimate:
        """Compare a fresh oracle with a fresh rule, which is exact without an error."""
        shape = len(self.sds), self.samples
        first, second = generator.standard_normal(shape), generator.standard_normal(shape)
        if error:
            second = error.wrong(second)
        oracle, rule = (self.cells.counts((self.rotation * self.sds @ z).T) for z in (first, second))
        return largest_total_variation(oracle, rule, self.floor)


def rates(trials: int, seed: int = 0) -> Iterator[Rate]:
    """Yield rates of the headline in 1 to 20 dimensions: coverage of an exact rule, and power."""
    for axes in DIMENSIONS:
        generator = np.random.default_rng([seed, axes])
        made = Trials.of(axes, SAMPLES, generator)
        condition = f"{axes} outputs, {SAMPLES:,} samples"
        covered = sum(made.estimate(generator).indistinguishable for _ in range(trials))
        what = "the 95 % point of the headline's floor covers an exact rule"
        yield Rate("floors", what, condition, _COVERAGE, covered, trials)
        for error in PROMISED:
            if error.axes <= axes:
                seen = sum(not made.estimate(generator, error).indistinguishable for _ in range(trials))
                what = f"the headline sees an error of {error.what} (TV {error.exact:.3f})"
                yield Rate("power", what, condition, (0.9, 1.0), seen, trials)
