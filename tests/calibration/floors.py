"""How often an exact rule exceeds its 95 % point, an interval misses the truth, and an error is missed."""

import numpy as np
import torch
from scipy import stats

from sdp_bench.oracles.estimate.estimate import Floor
from sdp_bench.oracles.moments.moments import Moments, bures, gaussian_kl, mean_error, std_ratio
from sdp_bench.oracles.partitions.floors import scrambled_floor, total_variation_floor
from sdp_bench.oracles.partitions.logits import pairwise_summary
from sdp_bench.oracles.partitions.partition import AxisBins, ScoreDifferences, total_variation_of_counts
from sdp_bench.oracles.partitions.principal import PrincipalCells, floor_of_largest, largest_total_variation
from sdp_bench.oracles.partitions.quantiles import (
    Quantiles,
    interquartile_ratio,
    largest_quantile_distance,
    mean_quantile_distance,
)
from sdp_bench.oracles.partitions.tree import EqualMassTree
from sdp_bench.oracles.sampling.noise import SCRAMBLES
from sdp_bench.oracles.sampling.outputs import sample_outputs
from sdp_bench.oracles.scores.intervals import coverage
from sdp_bench.oracles.transport.large import certified
from sdp_bench.oracles.transport.wasserstein import sliced_wasserstein, wasserstein
from sdp_ref.laws import DiagonalGaussian, Gaussian
from tests.calibration.rate import Rate

LEVEL = 0.05
FLAT = np.array([1.0, 0.1, 0.001])
"""Principal standard deviations like those of a classifier's outputs."""
SHAPES = {
    "Gaussian": lambda rng, shape: rng.standard_normal(shape),
    "exponential": lambda rng, shape: rng.standard_exponential(shape) - 1,
    "Cauchy": lambda rng, shape: rng.standard_cauchy(shape),
}


CELL_LAWS = {
    "3 equal cells": np.full(3, 1 / 3),
    "512 equal cells": np.full(512, 1 / 512),
    "0.9 in one of 3 cells": np.array([0.9, 0.05, 0.05]),
    "0.999 in one of 10 cells": np.append(0.999, np.full(9, 0.001 / 9)),
    "40 geometric cells, ratio 0.5": 0.5 ** np.arange(40) / (0.5 ** np.arange(40)).sum(),
}


def total_variation(rng):
    """The 95 % point of an oracle's counts, for a second sample of the same distribution."""
    for name, law in CELL_LAWS.items():
        for samples in (1000, 10**6):
            trials, errors = 300 if len(law) < 500 else 60, 0
            for trial in range(trials):
                oracle, rule = rng.multinomial(samples, law, size=2)
                distance = np.abs(oracle - rule).sum() / 2 / samples
                errors += distance > total_variation_floor(oracle, samples, seed=trial).upper95 + 1e-12
            yield Rate("floor of total variation", f"{name}, {samples:,} samples", LEVEL, errors, trials)


def sobol(rng):
    """The same for Sobol points through a small ReLU net, in cells of equal mass."""
    samples, trials = 2**14, 40
    first = torch.from_numpy(rng.standard_normal((4, 16)))
    last = torch.from_numpy(rng.standard_normal((16, 3)))
    x = DiagonalGaussian(torch.zeros(1, 4).double(), torch.ones(1, 4).double())

    def outputs(sampler="sobol"):
        seed = np.random.SeedSequence(int(rng.integers(2**31)))
        return sample_outputs(lambda v: (v @ first).relu() @ last, x, samples, seed=seed, sampler=sampler)

    # With 512 cells a scramble has two points in a cell, too few to show how steady they are: no claim.
    for cells, nominal in ((16, LEVEL), (512, None)):
        tree, errors = EqualMassTree.from_samples(outputs("mc"), cells), 0
        for trial in range(trials):
            parts = np.stack([tree.counts(part) for part in outputs().tensor_split(SCRAMBLES)])
            oracle, rule = parts.sum(0), tree.counts(outputs())
            floor = scrambled_floor(parts, total_variation_floor(oracle, samples, seed=trial), seed=trial)
            errors += np.abs(oracle - rule).sum() / 2 / samples > floor.upper95 + 1e-12
        yield Rate("floor of total variation, Sobol points", f"{cells} cells", nominal, errors, trials)


def _shifted(z):
    z[-1] += 0.25
    return z


def _scaled(z):
    z[-1] *= 1.3
    return z


def _turned(z):
    # Rotates a plane with standard deviations 10 : 1 by 2 degrees, in units of these.
    sine, cosine = np.sin(np.deg2rad(2)), np.cos(np.deg2rad(2))
    z[-2:] = np.array([[cosine, -sine / 10], [sine * 10, cosine]]) @ z[-2:]
    return z


def _two_modes(z):
    side, inner = np.divmod(2 * stats.norm.cdf(z[-1]), 1)
    z[-1] = 0.6 * stats.norm.ppf(inner) + 0.8 * (2 * side - 1)
    return z


WRONG = {
    "location off by 0.25 standard deviations": _shifted,
    "scale off by 1.3": _scaled,
    "two axes turned by 2 degrees": _turned,
    "two modes at 0.8 standard deviations": _two_modes,
}
"""Errors of the thinnest axes with a total variation of 0.10 to 0.13; see docs/concepts.md."""


def headline(rng):
    """The headline of a Gaussian with principal standard deviations from 1 to 0.001."""
    samples, trials = 10**4, 40
    for axes in (1, 3, 6):
        directions = np.linalg.qr(rng.standard_normal((axes, axes)))[0] * np.logspace(0, -3, axes)
        cells = PrincipalCells.from_samples((directions @ rng.standard_normal((axes, 2**17))).T, 512)

        def estimate(wrong=None, *, axes=axes, directions=directions, cells=cells):
            oracle = rng.standard_normal((axes, samples))
            rule = rng.standard_normal((axes, samples))
            rule = wrong(rule) if wrong else rule
            counts = [cells.counts((directions @ z).T) for z in (oracle, rule)]
            floor = floor_of_largest(counts[0], samples, seed=int(rng.integers(2**31)))
            return largest_total_variation(*counts, floor)

        errors = sum(not estimate().indistinguishable for _ in range(trials))
        yield Rate("floor of the headline", f"{axes} outputs, {samples:,} samples", LEVEL, errors, trials)
        for name, wrong in WRONG.items():
            if axes > 1 or wrong is not _turned:
                missed = sum(estimate(wrong).indistinguishable for _ in range(10))
                yield Rate(f"headline misses {name}", f"{axes} outputs, {samples:,} samples", 0.1, missed, 10)


def transport(rng):
    """Floors of W1 from 8 disjoint pairs of samples of the oracle, and from overlapping pairs."""
    distances = {
        "W1": (wasserstein, 100),
        "sliced W1": (lambda a, b, n: sliced_wasserstein(a, b, n, directions=16), 100),
        "certified W1": (lambda a, b, n: certified(a, b, n)[0], 60),
    }
    for name, (distance, points) in distances.items():
        for outputs, deviations in (("equal outputs", np.ones(3)), ("outputs 1 : 0.1 : 0.001", FLAT)):
            multiples = [(16, LEVEL)]
            if name == "W1":
                multiples.append((4, None))
            for multiple, nominal in multiples:
                trials, errors = 200, 0
                for _ in range(trials):
                    oracle = rng.standard_normal((multiple * points, 3)) * deviations
                    rule = rng.standard_normal((points, 3)) * deviations
                    errors += not distance(oracle, rule, points).indistinguishable
                condition = f"three {outputs}, {points} of {multiple * points} points"
                yield Rate(f"floor of {name}", condition, nominal, errors, trials)


def moments(rng):
    """Floors of metrics of moments, and the interval of a ratio of standard deviations that is 1.1."""
    trials, samples = 300, 10**4
    right = _gaussian(1.0)
    wrong = _gaussian(1.1)
    for shape in ("Gaussian", "exponential"):
        errors = dict.fromkeys(("mean error", "std ratio", "Bures", "Gaussian KL", "interval"), 0)
        for _ in range(trials):
            oracle = Moments.from_samples(torch.from_numpy(SHAPES[shape](rng, (samples, 3)) * FLAT))
            errors["mean error"] += not mean_error(oracle, right).indistinguishable
            errors["std ratio"] += not std_ratio(oracle, right)[0].indistinguishable
            errors["Bures"] += not bures(oracle, right).indistinguishable
            errors["Gaussian KL"] += not gaussian_kl(oracle, right).indistinguishable
            errors["interval"] += _misses(std_ratio(oracle, wrong)[0], 1.1)
        condition = f"{shape}, {samples:,} samples"
        missed = errors.pop("interval")
        yield Rate("± 1.96 standard errors of the std ratio", condition, LEVEL, missed, trials)
        for name, count in errors.items():
            yield Rate(f"floor of {name}", condition, LEVEL, count, trials)


def quantiles(rng):
    metrics = {
        "interquartile ratio": interquartile_ratio,
        "mean quantile distance": mean_quantile_distance,
        "largest quantile distance": largest_quantile_distance,
    }
    for level in (0.9, 0.99):
        metrics[f"coverage of the {level:.0%} interval"] = lambda a, b, level=level: coverage(a, b, level)
    for samples, trials in ((300, 200), (10**4, 100)):
        for shape, draw in SHAPES.items():
            errors = dict.fromkeys(metrics, 0)
            for _ in range(trials):
                sides = [Quantiles.from_samples(torch.from_numpy(draw(rng, (samples, 1)))) for _ in range(2)]
                for name, metric in metrics.items():
                    errors[name] += not metric(*sides)[0].indistinguishable
            for name, count in errors.items():
                yield Rate(f"floor of {name}", f"{shape}, {samples:,} samples", LEVEL, count, trials)


def interval_of_total_variation(rng):
    trials = 1000
    for cells, samples, claimed in ((10, 10**4, True), (512, 10**6, True), (512, 10**4, False)):
        p = np.full(cells, 1 / cells)
        q = p * (1 + 0.6 * np.where(np.arange(cells) % 2, 1, -1))
        floor = total_variation_floor(rng.multinomial(samples, p), samples, seed=1)
        errors = sum(
            _misses(
                total_variation_of_counts(rng.multinomial(samples, p), rng.multinomial(samples, q), floor),
                0.3,
            )
            for _ in range(trials)
        )
        # Near the floor noise adds to the value itself, which no interval around it corrects.
        condition = f"TV 0.3 in {cells} cells, {samples:,} samples"
        yield Rate("± 1.96 standard errors of TV", condition, LEVEL if claimed else None, errors, trials)


def bins_along_axes(rng):
    """Bins fixed by a new pilot in each trial, and bins between the extremes of the compared samples.

    Two outputs are independent, so that probabilities of cells are products. The truth is that of the bins of
    the pilot. For joint extremes it is the mean over trials, and the stored error does not cover it.
    """
    samples, trials, scale, floor = 10**5, 200, 1.5, Floor(0, 0)
    for bin_range in ("quantiles", "minmax"):
        errors = 0
        for _ in range(trials):
            cells = AxisBins.from_samples(rng.standard_normal((2**14, 2)), 10, bin_range)
            edges = np.linspace(cells.low, cells.high, cells.bins + 1)
            p = np.multiply.outer(*np.diff(stats.norm.cdf(edges.T), prepend=0, append=1))
            q = np.multiply.outer(*np.diff(stats.norm.cdf(edges.T / scale), prepend=0, append=1))
            sides = (cells.counts(sd * rng.standard_normal((samples, 2))) for sd in (1, scale))
            errors += _misses(total_variation_of_counts(*sides, floor), np.abs(p - q).sum() / 2)
        condition = f"10 bins, {bin_range} of a pilot, {samples:,} samples"
        yield Rate("± 1.96 standard errors of TV", condition, LEVEL, errors, trials)
    found = []
    for _ in range(trials):
        sides = [sd * rng.standard_normal((samples, 2)) for sd in (1, scale)]
        cells = AxisBins(np.vstack(sides).min(0), np.vstack(sides).max(0), 10)
        found.append(total_variation_of_counts(*map(cells.counts, sides), floor))
    mean = np.mean([estimate.value for estimate in found])
    errors = sum(_misses(estimate, mean) for estimate in found)
    condition = f"10 bins, joint extremes, {samples:,} samples"
    yield Rate("± 1.96 standard errors of TV (not shown)", condition, None, errors, trials)


def pairs(rng):
    """Largest and mean TV over pairs of four scores; the mean of all trials stands for the true value."""
    samples, trials = 1000, 100
    partition = ScoreDifferences.from_samples(rng.standard_normal((20 * samples, 4)), 20)
    for scale in (1.0, 2.0):
        found = [
            pairwise_summary(
                rng.standard_normal((samples, 4)),
                scale * rng.standard_normal((samples, 4)),
                partition,
                redraws=40,
                seed=trial,
            )
            for trial in range(trials)
        ]
        for name in ("largest", "mean"):
            estimates = [getattr(summary, name) for summary in found]
            mean, condition = np.mean([e.value for e in estimates]), f"scale off by {scale:g}"
            errors = sum(_misses(estimate, mean) for estimate in estimates)
            yield Rate(f"± 1.96 standard errors of the {name} TV of pairs", condition, LEVEL, errors, trials)
            if scale == 1:
                errors = sum(not estimate.indistinguishable for estimate in estimates)
                yield Rate(f"floor of the {name} TV of pairs", "4 outputs", LEVEL, errors, trials)


def _misses(estimate, truth):
    return abs(estimate.value - truth) > 1.959964 * estimate.stderr


def _gaussian(scale):
    covariance = torch.from_numpy(np.diag((scale * FLAT) ** 2))
    return Gaussian(torch.zeros(1, 3, dtype=torch.float64), covariance[None])


SIMULATIONS = (
    total_variation,
    sobol,
    headline,
    transport,
    moments,
    quantiles,
    interval_of_total_variation,
    bins_along_axes,
    pairs,
)
