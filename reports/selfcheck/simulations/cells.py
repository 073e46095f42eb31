"""Coverage of an exact rule by the 95 % point of a total variation's floor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sdp_bench.oracles.partitions.floors import DENSE, scrambled_floor, total_variation_floor
from sdp_bench.reports.selfcheck.rate import Rate

Law = NDArray[np.float64]

SAMPLES = (100, 1000, 10**6)
_MANY = 500
_SOBOL_SAMPLES = 2**14
_WHAT = "the 95 % point of total variation's floor covers an exact rule"


def cell_laws() -> Mapping[str, Law]:
    """Cell probabilities by description, from uniform to all but one cell nearly empty."""
    laws = {f"uniform over {cells} cells": np.full(cells, 1 / cells) for cells in (3, 10, 512, 12**3)}
    for top in (0.9, 0.99, 0.999):
        for cells in (2, 3, 10):
            rest = np.full(cells - 1, (1 - top) / (cells - 1))
            laws[f"({top}, rest) over {cells} cells"] = np.append(top, rest)
    for ratio, cells in ((0.5, 10), (0.5, 40), (0.9, 200), (0.99, 12**3)):
        powers = ratio ** np.arange(cells)
        laws[f"geometric, ratio {ratio}, over {cells} cells"] = powers / powers.sum()
    return laws


def coverage(law: Law, samples: int, trials: int, seed: int) -> int:
    """Count trials in which two samples of one distribution are within the 95 % point of the first.

    `law` are the probabilities of the cells, and `samples` is the size of either sample.
    """
    generator = np.random.default_rng(seed)
    hits = 0
    for trial in range(trials):
        oracle, rule = generator.multinomial(samples, law, size=2)
        distance = np.abs(oracle / samples - rule / samples).sum() / 2
        hits += distance <= total_variation_floor(oracle, samples, seed=trial).upper95 + 1e-12
    return hits


def sobol_coverage(cells: int, samples: int, trials: int, seed: int) -> int:
    """Like :func:`coverage`, for Sobol points through a small ReLU net and cells of equal mass.

    `cells` is a power of two.
    """
    import torch

    from sdp_bench.oracles.partitions.tree import EqualMassTree
    from sdp_bench.oracles.sampling.noise import SCRAMBLES
    from sdp_bench.oracles.sampling.outputs import sample_outputs
    from sdp_ref.laws import DiagonalGaussian

    draws = np.random.default_rng(seed)
    first, last = (torch.from_numpy(draws.standard_normal(shape)) for shape in ((4, 16), (16, 3)))
    x = DiagonalGaussian(torch.zeros(1, 4).double(), torch.ones(1, 4).double())

    def outputs(number: int, sampler: Literal["mc", "sobol"] = "sobol") -> torch.Tensor:
        own = np.random.SeedSequence((seed, number))
        return sample_outputs(lambda v: (v @ first).relu() @ last, x, samples, seed=own, sampler=sampler)

    tree = EqualMassTree.from_samples(outputs(0, "mc"), cells)
    hits = 0
    for trial in range(trials):
        parts = np.stack([tree.counts(part) for part in outputs(2 * trial + 1).tensor_split(SCRAMBLES)])
        oracle, rule = parts.sum(0), tree.counts(outputs(2 * trial + 2))
        floor = scrambled_floor(parts, total_variation_floor(oracle, samples, seed=trial), seed=trial)
        hits += np.abs(oracle - rule).sum() / 2 / samples <= floor.upper95 + 1e-12
    return hits


def rates(trials: int, seed: int = 0) -> Iterator[Rate]:
    """Yield the coverage of an exact rule by the floor's 95 % point, by distribution, and for Sobol points.

    The promise is 0.94 to 0.96. If the distance of two samples has few values, its 95 % point is one of these
    and covers more. So it does if the oracle has hardly seen rare cells, since these could have more mass
    than estimated. With less than ten expected counts outside one cell, at least 0.94 is promised. From 500
    cells, and for Sobol points, a fifth of the trials are run.
    """
    for name, law in cell_laws().items():
        for samples in SAMPLES:
            own = trials if len(law) < _MANY else max(1, trials // 5)
            few = samples * (1 - law.max()) < DENSE
            hits = coverage(law, samples, own, seed)
            condition = f"{name}, {samples:,} samples"
            yield Rate("floors", _WHAT, condition, (0.94, 1.0 if few else 0.96), hits, own)
    own = max(1, trials // 5)
    for cells in (4, 16, 512):
        hits = sobol_coverage(cells, _SOBOL_SAMPLES, own, seed)
        condition = f"{_SOBOL_SAMPLES:,} Sobol points through a ReLU net, {cells} cells of equal mass"
        yield Rate("floors", _WHAT, condition, (0.94, 0.96), hits, own)
