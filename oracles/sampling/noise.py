"""Standard noise, drawn on the CPU in blocks that depend on the seed only.

Block k of a plain Monte Carlo sample has its own counter-based generator, seeded by (seed, k); block sizes
depend on the dimension only. A shorter sample is therefore the beginning of a longer one, for any number of
threads or workers. A Sobol sample consists of 16 independent scrambles of equal size, one after the other,
whose spread yields a standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri

from sdp_ref.laws.base import Standard

Seed = int | np.random.SeedSequence
Block = NDArray[np.floating[Any]]  # shape (rows, dimension)
Variates = Callable[[np.random.Generator, tuple[int, int]], Block]
Quantile = Callable[[NDArray[np.float64]], Block]

SAMPLERS = ("mc", "sobol")
SCRAMBLES = 16
_BLOCK_VALUES = 2**18  # 1 MB of float32, which stays in cache between the generator and the network
_HALF_CELL = 2.0**-31  # scipy's Sobol points have 30 bits; half a cell avoids infinite quantiles at 0


def normals(generator: np.random.Generator, shape: tuple[int, int]) -> Block:
    return generator.standard_normal(shape, dtype=np.float32)


def cauchys(generator: np.random.Generator, shape: tuple[int, int]) -> Block:
    return generator.standard_cauchy(shape)


def stables(alpha: float) -> Variates:
    """Symmetric alpha-stable variates with characteristic function exp(-abs(t)^alpha).

    References
    ----------
    Chambers, Mallows and Stuck, "A method for simulating stable random variables", JASA 1976.
    """

    def draw(generator: np.random.Generator, shape: tuple[int, int]) -> Block:
        # interleaved pairs, so that a shorter sample begins a longer one
        uniform = generator.random((*shape, 2))
        angle = math.pi * (uniform[..., 0] - 0.5)
        exponential = -np.log1p(-uniform[..., 1])  # log of 1 - U, which is never 0
        tail = np.power(np.cos((1 - alpha) * angle) / exponential, (1 - alpha) / alpha)
        return np.sin(alpha * angle) / np.cos(angle) ** (1 / alpha) * tail

    return draw


def normal_quantile(probability: NDArray[np.float64]) -> Block:
    """Standard normal quantiles, float32."""
    quantiles: Block = ndtri(probability).astype(np.float32)
    return quantiles


def cauchy_quantile(probability: NDArray[np.float64]) -> Block:
    return np.tan(math.pi * (probability - 0.5))


def uniforms(generator: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Uniform variates inside (0, 1): the midpoints of the cells of numpy's grid."""
    return generator.random(shape) * (1 - 2.0**-53) + 2.0**-54


def variates_of(standard: Standard) -> Variates:
    """Generator of standard variates: numpy's own where it exists, otherwise from uniform ones."""
    match standard.name:
        case "normal":
            return normals
        case "cauchy":
            return cauchys
        case "stable":
            return stables(standard.alpha)
    through = quantile_of(standard)
    return lambda generator, shape: through(uniforms(generator, shape))


def quantile_of(standard: Standard) -> Quantile:
    match standard.name:
        case "normal":
            return normal_quantile
        case "cauchy":
            return cauchy_quantile

    def through(probability: NDArray[np.float64]) -> Block:
        made: Block = standard.from_uniform(torch.from_numpy(probability)).numpy()
        return made

    return through


def block_rows(dimension: int) -> int:
    """Number of rows of a block: a power of two that depends on the dimension only."""
    return 1 << max(6, (_BLOCK_VALUES // dimension).bit_length() - 1)


def monte_carlo_blocks(
    variates: Variates, samples: int, dimension: int, seed: Seed
) -> Iterator[Callable[[], Block]]:
    """Functions that draw the blocks of independent variates, `samples` rows in total."""
    rows = block_rows(dimension)

    def draw(block: int) -> Block:
        return variates(generator_of(seed, block), (min(rows, samples - block * rows), dimension))

    return (partial(draw, block) for block in range(-(-samples // rows)))


def sobol_blocks(
    samples: int, dimension: int, seed: Seed, quantile: Quantile = normal_quantile
) -> Iterator[Callable[[], Block]]:
    """Functions that draw the blocks of scrambled Sobol points, transformed by quantile functions.

    Scrambles follow each other, each in parts of at most one block.

    References
    ----------
    Owen, "Randomly permuted (t,m,s)-nets and (t,s)-sequences", 1995.
    """
    from scipy.stats import qmc  # slow to import and rarely needed

    rows = block_rows(dimension)

    def draw(scramble: int, start: int, stop: int) -> Block:
        points = qmc.Sobol(dimension, scramble=True, rng=generator_of(seed, scramble))
        if start:
            points.fast_forward(start)
        # a power of two, for which the points are balanced
        uniform = points.random(2 ** (stop - start - 1).bit_length())[: stop - start]
        return quantile(uniform + _HALF_CELL)

    for scramble in range(SCRAMBLES):
        size = samples // SCRAMBLES + (scramble < samples % SCRAMBLES)
        for start in range(0, size, rows):
            yield partial(draw, scramble, start, min(start + rows, size))


def generator_of(seed: Seed, block: int) -> np.random.Generator:
    root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    child = np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, block))
    return np.random.Generator(np.random.Philox(child))
