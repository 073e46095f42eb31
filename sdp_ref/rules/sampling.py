"""Rules that sample the net: Monte Carlo, also with the linearised net as control variate."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.quasirandom import SobolEngine

from sdp_ref.errors import NoFormulaError, UnsupportedError
from sdp_ref.graph.trace import Net
from sdp_ref.jacobian.jacobian import jacobian_of
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law
from sdp_ref.rules.base import Rule, stored, with_checked_outputs
from sdp_ref.rules.points import outputs_at, placed
from sdp_ref.rules.rows import evaluates


def as_integer(value: object) -> int | None:
    """Return a whole number as an int, and None for anything else, booleans included."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def checked_seeds(rule: str, seed: object) -> int | tuple[int, ...]:
    """Return a seed, or a tuple with one for each law of a batch, as Python integers.

    Negative numbers and other values raise a ValueError.
    """
    given = seed if isinstance(seed, Sequence) and not isinstance(seed, str) else [seed]
    seeds = tuple(seed for seed in map(as_integer, given) if seed is not None and seed >= 0)
    if len(seeds) < len(given):
        raise ValueError(f"{rule} needs a seed (or one a law) of at least 0, got {seed!r}")
    return seeds if given is seed else seeds[0]


def seeds_of_rows(rule: str, seed: int | Sequence[int], batch: int) -> Sequence[Any]:
    """Seeds for the laws of a batch, (B,): the given ones, or pairs of a seed and the index of the law.

    A number of seeds other than `batch` raises a ValueError.
    """
    seeds: Sequence[Any] = [(seed, row) for row in range(batch)] if isinstance(seed, int) else seed
    if len(seeds) != batch:
        raise ValueError(f"{rule} has {len(seeds)} seeds for a batch of {batch}")
    return seeds


@dataclass(frozen=True)
class MonteCarlo(Rule):
    """The Gaussian with mean and covariance of k samples of the output.

    The covariance is corrected for the variance of the sample mean: the divisor is k - 1 for independent
    samples, with pairs as samples if they are antithetic. For the other samplers the mean hardly varies, and
    the divisor is k.

    Parameters
    ----------
    samples : int
        k, at least 2. For antithetic samples even and at least 4; for whitened ones more than the input has
        components, and for whitened pairs at least twice as many.
    sampler : {"mc", "antithetic", "whitened", "sobol", "lattice", "whitened_sobol"}
        Independent samples; pairs on either side of the mean; independent samples transformed so that their
        mean and covariance are those of the input; the first k points of a scrambled Sobol sequence; a
        lattice of k points with a random shift; or Sobol points and their mirror images about the mean,
        transformed to the covariance of the input. The last are exact for the mean of polynomials of degree
        3, so that a linear or quadratic control variate would not change it.
    seed : int or sequence of int
        Seed of the samples, or one for each law of the batch. The samples of a law depend on its seed
        (and, for a single seed, on its index in the batch), not on the device or on global state.

    References
    ----------
    Hammersley and Morton, "A new Monte Carlo technique: antithetic variates", Proc. Camb. Phil. Soc. 1956.
    Owen, "Scrambled net variance for integrals of smooth functions", Ann. Statist. 1997. Cranley and
    Patterson, "Randomization of number theoretic methods for multiple integration", SIAM J. Numer. Anal.
    1976.
    """

    name: ClassVar[str] = "monte_carlo"
    title: ClassVar[str] = "MC estimate"
    rank: ClassVar[int] = 200
    samples: int = 100
    sampler: str = "mc"
    seed: int | Sequence[int] = 0

    def __post_init__(self) -> None:
        samples = as_integer(self.samples)
        if samples is None or samples < 2:
            raise ValueError(f"{self.name} needs samples of at least 2, got {self.samples!r}")
        if samples > _MOST_SAMPLES:
            raise ValueError(f"{self.name} takes at most {_MOST_SAMPLES:,} samples, got {samples:,}")
        self.require_one_of("sampler", _SAMPLERS)
        blocks = self._block and samples / self._block
        if blocks and (blocks < 2 or blocks % 1):
            least = 2 * self._block
            raise ValueError(f"{self.name} needs an even number of antithetic samples, {least} or more")
        if self.sampler == "whitened_sobol" and samples % 2:
            raise ValueError(f"{self.name} needs an even number of samples in whitened pairs, got {samples}")
        object.__setattr__(self, "samples", samples)
        object.__setattr__(self, "seed", checked_seeds(self.name, self.seed))

    @property
    def parameters(self) -> dict[str, Any]:
        """The number of samples, always; the seed is a property of a run."""
        sampler = {} if self.sampler == "mc" else {"sampler": self.sampler}
        return {"samples": self.samples, **sampler}

    @property
    def label(self) -> str:
        """``MC estimate k=100``, with the sampler unless it is the default."""
        sampler = "" if self.sampler == "mc" else f", {self.sampler.title()}"
        return f"{self.title} k={self.samples}{sampler}"

    @property
    def sampling(self) -> int:
        return self.samples

    def with_seeds(self, seeds: Sequence[int]) -> MonteCarlo:
        """Return the same rule with one seed for each law of a batch."""
        return replace(self, seed=tuple(seeds))

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        @evaluates(self.name, net)
        def propagate(x: Law) -> Law:
            if not hasattr(x, "variance"):
                raise UnsupportedError(self.name, f"{type(x).__name__} input, whose samples have no moments")
            inputs = self._inputs(x).flatten(0, 1)
            outputs = outputs_at(net, inputs).unflatten(0, (x.batch, self.samples))
            event = outputs.shape[2:]
            outputs = outputs.flatten(2)
            mean = outputs.mean(1)
            # Products in float64: float32 sums of them lose the thin directions of the outputs.
            covariance = self._covariance((outputs - mean.unsqueeze(1)).double())
            return stored(mean.unflatten(1, event), covariance, mean.dtype)

        return propagate

    @property
    def _block(self) -> int:
        """Number of consecutive samples that are independent of the previous ones; 0 if there are none."""
        return {"mc": 1, "antithetic": 2}.get(self.sampler, 0)

    def _covariance(self, centred: Tensor) -> Tensor:
        covariance = centred.mT @ centred / self.samples
        if self._block:
            means = centred.unflatten(1, (-1, self._block)).mean(2)
            covariance = covariance + means.mT @ means / (means.shape[1] * (means.shape[1] - 1))
        return covariance

    def _inputs(self, x: Law) -> Tensor:
        if isinstance(x, Gaussian | DiagonalGaussian):
            return placed(x, self._normals(x, x.dimension))
        if x.standard is not None:
            uniform = torch.special.ndtr(self._normals(x, x.variates * x.standard.uniforms))
            noise = x.standard.from_uniform(uniform)
            each = [x[row].push()(noise[row]) for row in range(x.batch)]
            return torch.stack(each).unflatten(2, x.event_shape)
        if self.sampler != "mc":
            raise UnsupportedError(self.name, f"the sampler {self.sampler} with {x.described}")
        rows = seeds_of_rows(self.name, self.seed, x.batch)
        words = [int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) for seed in rows]
        draws = [
            x[row].sample(self.samples, torch.Generator().manual_seed(word >> 1))
            for row, word in enumerate(words)
        ]
        return torch.cat(draws, 1).movedim(1, 0)

    def _normals(self, x: Law, dimension: int) -> Tensor:
        rows = seeds_of_rows(self.name, self.seed, x.batch)
        with self.at():
            draws = [_SAMPLERS[self.sampler](seed, self.samples, dimension) for seed in rows]
        return torch.stack(draws).to(x.location.device)


def _independent(seed: Any, samples: int, dimension: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((samples, dimension)))


def _sobol(seed: Any, samples: int, dimension: int) -> Tensor:
    if dimension > SobolEngine.MAXDIM:
        raise NoFormulaError(f"more than {SobolEngine.MAXDIM} inputs under the sobol sampler ({dimension})")
    word = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) >> 1
    points = SobolEngine(dimension, scramble=True, seed=word).draw(samples, dtype=torch.float64)
    # scrambled points are on a grid of 2^-30; use midpoints, since the quantile at the left end 0 is infinite
    return torch.special.ndtri(points + 2.0**-31)


def _antithetic(seed: Any, samples: int, dimension: int) -> Tensor:
    half = _independent(seed, samples // 2, dimension)
    return torch.stack([half, -half], 1).flatten(0, 1)


def _whitened(seed: Any, samples: int, dimension: int) -> Tensor:
    if samples <= dimension:
        raise NoFormulaError(f"{samples} whitened draws of {dimension} inputs; take more samples than inputs")
    normals = _independent(seed, samples, dimension)
    normals = normals - normals.mean(0)
    factor = torch.linalg.cholesky(normals.mT @ normals / samples)
    return torch.linalg.solve_triangular(factor, normals.mT, upper=False).mT


def _whitened_sobol(seed: Any, samples: int, dimension: int) -> Tensor:
    if samples < 2 * dimension:
        raise NoFormulaError(
            f"{samples} whitened pairs of {dimension} inputs; take twice as many samples as inputs"
        )
    half = _sobol(seed, samples // 2, dimension)
    factor = torch.linalg.cholesky(half.mT @ half / len(half))
    half = torch.linalg.solve_triangular(factor, half.mT, upper=False).mT
    return torch.stack([half, -half], 1).flatten(0, 1)


def _lattice(seed: Any, samples: int, dimension: int) -> Tensor:
    generator = np.random.default_rng(seed)
    points = np.outer(np.arange(samples), _korobov(samples, dimension)) / samples
    points = (points + generator.random(dimension)) % 1
    # midpoints of the grid of numpy's uniform numbers, so that none is 0
    return torch.special.ndtri(torch.from_numpy(points * (1 - 2.0**-53) + 2.0**-54))


@functools.lru_cache
def _korobov(samples: int, dimension: int) -> NDArray[np.int64]:
    """Generator 1, a, a^2, ... of the candidate lattice with the smallest squared worst-case error (P2).

    Weights of the dimensions decrease as 1 / j^2: a lattice of few points can be good in the first dimensions
    only.

    References
    ----------
    Sloan and Joe, "Lattice methods for multiple integration", 1994, sections 4.3 and 4.4.
    """
    weights = 1 / np.arange(1, dimension + 1) ** 2
    best, least = np.ones(dimension, dtype=np.int64), math.inf
    steps = np.arange(samples)
    prime = np.flatnonzero(np.gcd(np.arange(samples), samples) == 1)  # otherwise points share coordinates
    for root in prime[np.unique(np.linspace(0, len(prime) - 1, _ROOTS).round().astype(np.int64))]:
        generator = np.empty(dimension, dtype=np.int64)
        error, power = np.ones(samples), 1
        for component in range(dimension):
            generator[component] = power
            x = steps * power % samples / samples
            error *= 1 + weights[component] * 2 * math.pi**2 * (x * (x - 1) + 1 / 6)
            power = power * int(root) % samples
        if error.mean() < least:
            best, least = generator, float(error.mean())
    return best


_MOST_SAMPLES = 2**31
_ROOTS = 64  # number of candidates; more are hardly better

_SAMPLERS: Mapping[str, Callable[[Any, int, int], Tensor]] = {
    "mc": _independent,
    "antithetic": _antithetic,
    "whitened": _whitened,
    "sobol": _sobol,
    "lattice": _lattice,
    "whitened_sobol": _whitened_sobol,
}


@dataclass(frozen=True)
class ControlVariate(MonteCarlo):
    """Mean and covariance of k samples of the output, with a linear function of the input as control variate.

    Only R in f(X) = f(mu) + A (X - mu) + R is sampled; the linear part has the mean f(mu) and the covariance
    A S A^T. If A is fitted to the samples by least squares, the bias is of order 1 / k, and the variance is
    rarely larger than without the control variate. If A is the Jacobian at mu, the mean is unbiased, and with
    independent samples so is the covariance. The latter may be indefinite, and its variance is larger than
    that of plain Monte Carlo if the net is far from linear within the noise.

    Parameters
    ----------
    samples, sampler, seed
        See :class:`MonteCarlo`.
    coefficient : {"regression", "jacobian"}
        A. "regression" needs at least two more samples (or antithetic pairs) than the input has components.

    References
    ----------
    Glasserman, "Monte Carlo methods in financial engineering", 2003, section 4.1.
    """

    name: ClassVar[str] = "control_variate"
    title: ClassVar[str] = "MC with control variate"
    rank: ClassVar[int] = 210
    coefficient: str = "regression"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_one_of("coefficient", ("regression", "jacobian"))

    @property
    def parameters(self) -> dict[str, Any]:
        coefficient = {} if self.coefficient == "regression" else {"coefficient": self.coefficient}
        return {**super().parameters, **coefficient}

    @property
    def label(self) -> str:
        return super().label + ("" if self.coefficient == "regression" else f", {self.coefficient.title()}")

    @property
    def known_faults(self) -> Mapping[str, str]:  # type: ignore[override]  # of one coefficient only
        if self.coefficient == "regression":
            return {}
        unsteady = "its error exceeds that of plain samples if the net is far from linear within the noise"
        return {
            "positive-semidefinite": "the sampled part of the covariance may be negative",
            "permutation": unsteady,
            "batch": unsteady,
        }

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        @evaluates(self.name, net)
        def propagate(x: Law) -> Law:
            if not isinstance(x, Gaussian | DiagonalGaussian):
                raise UnsupportedError(self.name, f"{type(x).__name__} input: it samples Gaussian laws only")
            if self.coefficient == "regression" and self.samples < max(1, self._block) * (x.dimension + 2):
                raise UnsupportedError(
                    self.name, f"a regression of {self.samples} samples on {x.dimension} inputs"
                )
            normals = self._normals(x, x.dimension)
            inputs = placed(x, normals).flatten(0, 1)
            outputs = outputs_at(net, inputs).unflatten(0, (x.batch, self.samples))
            event, dtype = outputs.shape[2:], outputs.dtype
            values = outputs.flatten(2).double()
            regression = self.coefficient == "regression"
            centre, slope = _fitted(normals, values) if regression else self._linearised(net, x)
            linear = normals @ slope.mT
            rest = values - centre.unsqueeze(1) - linear
            mean = centre + rest.mean(1)
            covariance = self._covariance(rest - rest.mean(1, keepdim=True))
            if regression and self._block:  # minus one degree of freedom per slope
                covariance = covariance * ((self.samples - 1) / (self.samples - 1 - x.dimension))
            # the residuals of a regression are uncorrelated with the samples by construction
            if not regression:
                cross = linear.mT @ rest / self.samples
                covariance = covariance + cross + cross.mT
            covariance = covariance + slope @ slope.mT
            return stored(mean.unflatten(1, event), covariance, dtype)

        return propagate

    def _linearised(self, net: Net, x: Gaussian | DiagonalGaussian) -> tuple[Tensor, Tensor]:
        """The net at the means, (B, m), and its slopes by standard normals, (B, m, n); both float64."""
        with self.at():
            value, jacobian = jacobian_of(
                with_checked_outputs(net),
                x.mean,
                create_graph=torch.is_grad_enabled(),
                spread=x.spread,
            )
        return value.flatten(1).double(), jacobian.flatten(2).double() @ x.factor()


def _fitted(normals: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Least squares with an intercept, shape (B, m), and slopes, shape (B, m, n).

    The slope is 0 along directions in which the points differ less than one normal sample from its mean, so
    that these are sampled without a control variate. From 100 samples on, only collinear points have them.
    """
    centre, middle = normals.mean(1, keepdim=True), values.mean(1, keepdim=True)
    # QR instead of `lstsq`, whose result does not scale exactly with the values.
    basis, triangle = torch.linalg.qr(normals - centre)
    onto = basis.mT @ (values - middle)
    slope = torch.linalg.solve_triangular(triangle, onto, upper=True).mT
    left, sizes, right = torch.linalg.svd(triangle.detach())
    thin = sizes < 1  # the standard error of such a slope is that of one sample or more
    inverse = torch.where(thin, 0.0, 1 / torch.where(thin, 1.0, sizes))
    steady = (right.mT @ (inverse.unsqueeze(2) * (left.mT @ onto))).mT
    slope = torch.where(thin.any(1)[:, None, None], steady, slope)
    return (middle - centre @ slope.mT).squeeze(1), slope
