"""Proper scores of a predicted law, evaluated on samples of the true one.

A score is proper if no law has a better mean score than the true one. The difference between the scores of a
rule and of the true law is the divergence of the score: the Kullback-Leibler divergence for the log score,
the integrated squared difference of distribution functions for the CRPS, half the energy distance for the
energy score.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..estimate.estimate import Estimate
from ..estimate.redraws import upper95
from ..estimate.samples import Samples
from ..partitions.logits import energy_distance
from ..partitions.quantiles import Quantiles, check_outputs

Array = NDArray[np.float64]

_BRIDGES = 2000  # number of bridges for a 95 % point, whose error is then about 3 %
_GRID = 256  # points of a bridge


def log_score(log_densities: ArrayLike) -> Estimate:
    """Mean negative log of a predicted density at samples of the true law.

    It is the (unknown) entropy of the true law plus the Kullback-Leibler divergence of the prediction from
    it, so differences between rules are differences of this divergence.
    """
    losses = -np.asarray(log_densities, dtype=np.float64)
    if losses.ndim != 1 or len(losses) < 2:
        raise ValueError(f"a log score needs two draws or more, got shape {losses.shape}")
    if np.isnan(losses).any():
        raise ValueError("a predicted density is not a number")
    finite = bool(np.isfinite(losses).all())
    stderr = float(losses.std(ddof=1)) / math.sqrt(len(losses)) if finite else math.nan
    return Estimate(float(losses.mean()), math.nan, math.nan, stderr)


def crps_excess(oracle: Quantiles, rule: Quantiles, *, seed: int = 0) -> tuple[Estimate, ...]:
    """Difference between the CRPS of a rule and that of the true law, for each output.

    It equals the integral of (F - G)^2 over the line, with the two distribution functions F and G (Cramer's
    distance), here those of the samples. It is 0 for equal laws only.

    References
    ----------
    Gneiting and Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA 2007.
    """
    check_outputs(oracle, rule)
    generator = np.random.default_rng(seed)
    return tuple(_cramer(x, y, generator) for x, y in zip(oracle.ordered, rule.ordered, strict=True))


def _cramer(x: Array, y: Array, generator: np.random.Generator) -> Estimate:
    together = np.concatenate([x, y])
    order = together.argsort(kind="stable")
    of_x = order < len(x)
    difference = np.where(of_x, 1 / len(x), -1 / len(y)).cumsum()[:-1]
    pieces = difference * np.diff(together[order])
    value = float((difference * pieces).sum())
    above = np.append(pieces[::-1].cumsum()[::-1], 0.0)  # the integral of F - G from each point on
    linear = 4 * (above[of_x].var() / len(x) + above[~of_x].var() / len(y))
    bridges = (1 / len(x) + 1 / len(y)) * _bridges(x, generator)
    null = float(bridges.var())
    # Where F = G, the noise of F - G makes `linear` twice the variance on average; elsewhere it is
    # negligible.
    stderr = math.sqrt(max(linear - null, null))
    return Estimate(value, float(bridges.mean()), float(upper95(bridges, "linear")), stderr)


def _bridges(ordered: Array, generator: np.random.Generator) -> Array:
    """Samples of the integral of B(F)^2, B a Brownian bridge: N times the squared error of F."""
    levels = np.arange(1, len(ordered)) / len(ordered)
    exact = float((levels * (1 - levels) * np.diff(ordered)).sum())
    if exact == 0:
        return np.zeros(_BRIDGES)
    times = np.arange(1, _GRID) / _GRID
    edges = (np.arange(_GRID) + 0.5) / _GRID
    widths = np.diff(np.interp(edges * (len(ordered) - 1), np.arange(len(ordered)), ordered))
    walks = generator.standard_normal((_BRIDGES, _GRID)).cumsum(1) / math.sqrt(_GRID)
    drawn: Array = np.square(walks[:, :-1] - times * walks[:, -1:]) @ widths
    mean = drawn.mean()
    # almost a point mass, if half of the mass is one
    return drawn * (exact / mean) if mean > 0 else np.full(_BRIDGES, exact)


def energy_excess(oracle: Samples, rule: Samples, points: int = 2000, *, seed: int = 0) -> Estimate:
    """Difference between the energy score of a rule and that of the true law: half the energy distance."""
    distance = energy_distance(oracle, rule, points, seed=seed, shift=True)
    return replace(
        distance,
        value=distance.value / 2,
        floor=distance.floor / 2,
        floor95=distance.floor95 / 2,
        stderr=distance.stderr / 2,
        n=points if points < len(oracle) else None,
    )


def brier_excess(
    true: ArrayLike, predicted: ArrayLike, draws: int | None = None, *, seed: int = 0
) -> Estimate:
    """Difference between the Brier score of predicted class probabilities q and that of the true ones p.

    It equals |p - q|^2. The estimate is the U-statistic of the independent true samples, with `true` counts
    (m,): without bias, so it can be negative. `predicted` are probabilities (m,), which need not be positive,
    or with `draws` the frequencies of the classes among so many independent draws; their noise is then
    subtracted as well. n draws of the true law have the mean (1 - |p|^2) / n.

    References
    ----------
    Brier, "Verification of forecasts expressed in terms of probability", Monthly Weather Review 1950.
    Hoeffding, "A class of statistics with asymptotically normal distribution", Ann. Math. Statist. 1948.
    """
    counts, q = np.asarray(true, dtype=np.int64), np.asarray(predicted, dtype=np.float64)
    n = int(counts.sum())
    p = counts / n
    sizes = (n,) if draws is None else (n, draws)
    value = float(_u_statistic(p, q, *sizes))
    generator = np.random.default_rng(seed)
    of_truth = generator.multinomial(n, p, _MULTINOMIALS) / n
    exact = np.broadcast_to(p, of_truth.shape)
    if draws is not None:
        exact = generator.multinomial(draws, p, _MULTINOMIALS) / draws
    null = _u_statistic(of_truth, exact, *sizes)
    difference = p - q
    of_sample = float((p * difference**2).sum() - (p * difference).sum() ** 2)
    linear = 4 * of_sample * sum(1 / size for size in sizes)
    # Where p = q, the noise of the difference makes `linear` twice the variance on average.
    stderr = math.sqrt(max(linear - float(null.var()), float(null.var())))
    return Estimate(value, 0.0, float(upper95(null, "linear")), stderr)


def _u_statistic(p: Array, q: Array, true_samples: int, draws: int | None = None) -> Array:
    """|p - q|^2 over the last axis, without the mean squares of the noise of p and of a sampled q."""
    of_p = (1 - np.square(p).sum(-1)) / (true_samples - 1)
    of_q = 0.0 if draws is None else (1 - np.square(q).sum(-1)) / (draws - 1)
    return np.asarray(np.square(p - q).sum(-1) - of_p - of_q)


_MULTINOMIALS = 2000
