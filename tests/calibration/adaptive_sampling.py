"""How often intervals of adaptive sampling contain the true value.

``python -m tests.calibration.adaptive_sampling`` prints the rates.

The standard deviation of a Gaussian output is sampled in blocks of 100 until its 95 % interval is at most 5
percent to either side: after JCGM 101:2008, 7.9 (at least two blocks, twice the standard error of the blocks'
standard deviations), and as `sdp-bench sample` does (ten blocks, Student's factor). Printed are the shares of
intervals that contain the true value, and the mean numbers of blocks.
"""

from __future__ import annotations

import math

import numpy as np

from sdp_bench.bench.sampling.adaptive import FEWEST_BLOCKS
from sdp_bench.bench.sampling.quantities import Block, Quantity, estimates

SAMPLES, TOLERANCE, REPLICATIONS, MOST = 100, 0.05, 3000, 400


def jcgm(variances: np.ndarray) -> tuple[bool, int]:
    """Return whether the interval contains 1, the true value, and the number of blocks."""
    deviations = np.sqrt(variances)
    for blocks in range(2, MOST):
        value = deviations[:blocks].mean()
        half = 2 * deviations[:blocks].std(ddof=1) / math.sqrt(blocks)
        if half <= TOLERANCE * value:
            break
    return abs(value - 1) <= half, blocks


def ours(variances: np.ndarray) -> tuple[bool, int]:
    statistics = np.zeros((MOST, 3, 1))  # mean, variance and class
    statistics[:, 1, 0] = variances
    stored = [Block(rows, np.empty((0, 4))) for rows in statistics]
    for blocks in range(FEWEST_BLOCKS, MOST):
        (estimate,) = estimates(stored[:blocks], SAMPLES, [Quantity("sd")], TOLERANCE)
        if estimate.is_reached.all():
            break
    return bool(estimate.low[0] <= 1 <= estimate.high[0]), blocks


if __name__ == "__main__":
    generator = np.random.default_rng(0)
    # the variance of a block of Gaussian samples
    draws = generator.chisquare(SAMPLES - 1, (REPLICATIONS, MOST)) / (SAMPLES - 1)
    for procedure in (jcgm, ours):
        contained, blocks = np.transpose([procedure(variances) for variances in draws])
        print(
            f"{procedure.__name__}: {100 * contained.mean():.1f} % of intervals, {blocks.mean():.1f} blocks"
        )
