"""Checks of an oracle before its statistics are recorded: independent computations must agree."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import nn

import sdp_ref
from sdp_bench.bench.gate.oracles.statistics import (
    OTHER_PLATFORM,
    Statistics,
    disagreements,
    distances,
    standard_errors,
)
from sdp_bench.bench.metrics.oracle import Oracle, independent_blocks
from sdp_bench.bench.sampling import Sampler
from sdp_bench.oracles.moments.moments import Moments
from sdp_bench.oracles.partitions.precision import precise
from sdp_bench.oracles.partitions.tree import EqualMassTree
from sdp_ref.rules.base import as_gaussian

LEVEL = 1e-4
"""A check fails if agreement as poor as observed has this probability: one in 10^4 fails by chance."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Check:
    """The outcome of a check."""

    name: str
    passed: bool
    detail: str
    # the largest z-score, for example, and the probability of one as large
    numbers: dict[str, float] = field(default_factory=dict)


def checks_of(oracle: Oracle, statistics: Statistics, tree: EqualMassTree) -> Iterator[Check]:
    """Yield the checks of one oracle, computed lazily.

    All samples are finite. A second draw of the same kind and one of the other kind (plain, or Sobol) agree
    in mean, covariance and, by a chi-squared test, in the cells of `tree`. The same draw through the net in
    float64 differs by rounding only. For a net with one hidden ReLU layer, mean and covariance are those of
    moment matching, which is exact there.
    """
    finite = bool(torch.isfinite(oracle.samples).all())
    yield Check("finite", finite, "all samples are finite" if finite else "some samples are not finite")
    for name, sampler, purpose in _others(oracle):
        samples = oracle.redrawn(purpose, sampler)
        moments = Moments.from_samples(samples, independent_blocks(sampler))
        yield _agreement(name, oracle.moments, moments, statistics.cells, tree.counts(samples))
    yield _in_float64(oracle, statistics, tree)
    if one_hidden_relu(oracle.net):
        law = sdp_ref.propagate(*precise(oracle.net, oracle.law), "moment_matching")
        yield _agreement("exact moments", oracle.moments, as_gaussian("moment_matching", law))


def one_hidden_relu(net: nn.Module) -> bool:
    """Return whether a net is affine, ReLU, affine: there moment matching gives the exact moments."""
    return isinstance(net, nn.Sequential) and [type(layer) for layer in net] == [
        nn.Linear,
        nn.ReLU,
        nn.Linear,
    ]


def _others(oracle: Oracle) -> tuple[tuple[str, Sampler, str], ...]:
    other: Sampler = "mc" if oracle.sampler == "sobol" else "sobol"
    return (("second draw", oracle.sampler, "again"), (f"{other} draw", other, f"check {other}"))


def _agreement(
    name: str,
    own: Moments,
    other: Moments | sdp_ref.Gaussian,
    counts: list[int] | None = None,
    other_counts: NDArray[np.int64] | None = None,
) -> Check:
    own_errors = standard_errors(own)
    if isinstance(other, Moments):
        other_moments, other_errors = (other.mean, other.covariance), standard_errors(other)
        freedom = float(min(len(own.block_weights), len(other.block_weights)) - 1)
    else:
        other_moments = (other.mean[0].detach().numpy(), other.covariance[0].detach().numpy())
        other_errors = (np.zeros_like(own.mean), np.zeros_like(own.covariance))
        freedom = float(len(own.block_weights) - 1)
    differences = _stacked(own.mean - other_moments[0], own.covariance - other_moments[1])
    errors = np.hypot(_stacked(*own_errors), _stacked(*other_errors))
    z = np.divide(differences, errors, out=np.zeros_like(errors), where=differences != 0)
    largest = float(np.abs(z).max())
    probability = min(1.0, len(z) * float(2 * stats.t.sf(largest, freedom)))
    numbers = {"largest_z": largest, "values": float(len(z)), "p": probability}
    said = f"largest z of {len(z)} moments {largest:.2f}"
    if counts is not None and other_counts is not None:
        statistic, cells = _chi_squared(np.array(counts), other_counts)
        in_cells = float(stats.chi2.sf(statistic, max(cells - 1, 1)))
        numbers |= {"chi_squared": statistic, "cells": float(cells), "p_cells": in_cells}
        said += f"; chi squared of {cells} cells {statistic:.1f}"
        probability = min(1.0, 2 * min(probability, in_cells))
    passed = math.isfinite(largest) and probability >= LEVEL
    return Check(name, passed, f"{said}; p {probability:.2g}", numbers)


def _stacked(mean: Array, covariance: Array) -> Array:
    return np.concatenate([mean, covariance[np.triu_indices(len(mean))]])


def _chi_squared(a: NDArray[np.int64], b: NDArray[np.int64]) -> tuple[float, int]:
    """Return the two-sample statistic and the number of non-empty cells; Sobol points only reduce it."""
    held = a + b > 0
    x, y = a[held].astype(float), b[held].astype(float)
    ratio = math.sqrt(y.sum() / x.sum())
    return float((np.square(ratio * x - y / ratio) / (x + y)).sum()), int(held.sum())


def _in_float64(oracle: Oracle, statistics: Statistics, tree: EqualMassTree) -> Check:
    if oracle.precision == "float64":
        return Check("float64", True, "drawn in float64")
    double = type(oracle)(*precise(oracle.net, oracle.law), oracle.key, oracle.sampling)
    pilot = double.pilot(oracle.sampling.pilot_samples)
    again = Statistics.of(double.samples, double.moments, pilot, tree)
    same_precision = replace(again, dtype=statistics.dtype)
    wrong = list(disagreements(statistics, same_precision, OTHER_PLATFORM, bitwise=False))
    numbers = {name: distance for name, (distance, _, _) in distances(statistics, again).items()}
    said = "; ".join(f"{name} {detail}" for name, detail in wrong) or "differs by rounding alone"
    return Check("float64", not wrong, said, numbers)
