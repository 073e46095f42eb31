"""Monte Carlo estimates: the moments of a few samples of the output."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from sdp_ref.errors import NoFormulaError, UnsupportedError
from sdp_ref.graph.trace import Net
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law, unchecked
from sdp_ref.rules.base import Rule, check_outputs


@dataclass(frozen=True)
class MonteCarlo(Rule):
    """The Gaussian with mean and covariance of k samples of the output.

    The divisor is k - 1 for independent draws and k for Sobol points: their mean hardly varies, so that
    deviations from it are hardly smaller than those from the true mean.

    Parameters
    ----------
    samples : int
        k, at least 2.
    sampler : {"mc", "sobol"}
        Independent draws, or the first k points of a scrambled Sobol sequence.
    seed : int or sequence of int
        Seed of the draws, or one for each law of the batch. The draws of a law depend on its seed
        (and, given a single one, on its place in the batch), not on the device or on global state.

    Raises
    ------
    ValueError
        If `samples` is not an integer of at least 2, a seed not one of at least 0, or there is no
        such sampler.

    References
    ----------
    Owen, "Scrambled net variance for integrals of smooth functions", Ann. Statist. 1997.
    """

    name: ClassVar[str] = "monte_carlo"
    title: ClassVar[str] = "MC estimate"
    rank: ClassVar[int] = 200
    samples: int = 100
    sampler: str = "mc"
    seed: int | Sequence[int] = 0

    def __post_init__(self) -> None:
        samples = _integer(self.samples)
        if samples is None or samples < 2:
            raise ValueError(f"monte_carlo needs samples of at least 2, got {self.samples!r}")
        if self.sampler not in _SAMPLERS:
            raise ValueError(
                f"unknown sampler '{self.sampler}' of monte_carlo; choose from {', '.join(_SAMPLERS)}"
            )
        given = (
            self.seed if isinstance(self.seed, Sequence) and not isinstance(self.seed, str) else [self.seed]
        )
        seeds = [_integer(seed) for seed in given]
        if any(seed is None or seed < 0 for seed in seeds):
            raise ValueError(f"monte_carlo needs a seed (or one a law) of at least 0, got {self.seed!r}")
        object.__setattr__(self, "samples", samples)
        object.__setattr__(self, "seed", seeds[0] if given is not self.seed else tuple(seeds))

    @property
    def parameters(self) -> dict[str, Any]:
        """The number of samples, always; the seed belongs to a run."""
        sampler = {} if self.sampler == "mc" else {"sampler": self.sampler}
        return {"samples": self.samples, **sampler}

    @property
    def label(self) -> str:
        """``MC estimate k=100``, and the sampler where it is not the plain one."""
        sampler = "" if self.sampler == "mc" else f", {self.sampler.title()}"
        return f"{self.title} k={self.samples}{sampler}"

    @property
    def sampling(self) -> int:
        """See :class:`Rule`."""
        return self.samples

    def with_seeds(self, seeds: Sequence[int]) -> MonteCarlo:
        """The same rule with one seed for each law of a batch."""
        return replace(self, seed=tuple(seeds))

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """See :class:`Rule`; nothing is kept."""

        def propagate(x: Law) -> Law:
            if not isinstance(x, Gaussian | DiagonalGaussian):
                raise UnsupportedError(self.name, f"{type(x).__name__} input, whose samples have no moments")
            inputs = _draw(x, self._normals(x))
            inputs = inputs.flatten(0, 1)
            outputs = check_outputs(inputs, net(inputs)).unflatten(0, (x.batch, self.samples))
            event = outputs.shape[2:]
            outputs = outputs.flatten(2)
            mean = outputs.mean(1)
            # Products in float64: float32 sums of them lose the thin directions of the outputs.
            centred = (outputs - mean.unsqueeze(1)).double()
            covariance = centred.mT @ centred / (self.samples - (self.sampler == "mc"))
            return unchecked(Gaussian, mean.unflatten(1, event), covariance.to(mean.dtype))

        return propagate

    def _normals(self, x: Law) -> Tensor:
        if isinstance(self.seed, int):
            seeds: Sequence[Any] = [(self.seed, row) for row in range(x.batch)]
        else:
            seeds = self.seed
        if len(seeds) != x.batch:
            raise ValueError(f"monte_carlo has {len(seeds)} seeds for a batch of {x.batch}")
        with self.at():
            draws = [_SAMPLERS[self.sampler](seed, self.samples, x.dimension) for seed in seeds]
        return torch.stack(draws).to(x.location.device)


def _independent(seed: Any, samples: int, dimension: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((samples, dimension)))


def _sobol(seed: Any, samples: int, dimension: int) -> Tensor:
    if dimension > SobolEngine.MAXDIM:
        raise NoFormulaError(f"more than {SobolEngine.MAXDIM} inputs under the sobol sampler ({dimension})")
    word = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) >> 1
    points = SobolEngine(dimension, scramble=True, seed=word).draw(samples, dtype=torch.float64)
    # a scrambled point lies on a grid of 2^-30: its left end may be 0, where the quantile is infinite
    normals: Tensor = torch.special.ndtri(points + 2.0**-31)
    return normals


_SAMPLERS: dict[str, Callable[[Any, int, int], Tensor]] = {"mc": _independent, "sobol": _sobol}


def _integer(value: object) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _draw(x: Gaussian | DiagonalGaussian, normals: Tensor) -> Tensor:
    """Samples (B, k, *event) of `x` from standard normals (B, k, n)."""
    if isinstance(x, DiagonalGaussian):
        noise = normals * x.standard_deviation.flatten(1).unsqueeze(1)
    else:
        noise = normals @ x.factor().mT
    draws: Tensor = x.mean.unsqueeze(1) + noise.unflatten(2, x.event_shape).to(x.mean.dtype)
    return draws
