"""Recorded statistics of an oracle's samples, and the comparison of two draws of one oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sdp_bench.bench.identity.keys import digest
from sdp_bench.oracles.moments.moments import Moments
from sdp_bench.oracles.partitions.partition import Classes
from sdp_bench.oracles.partitions.tree import EqualMassTree

Array = NDArray[np.float64]

LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
ROWS = 16
"""Number of single samples recorded, evenly spaced: any other draw differs there."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of a draw of N outputs, as nested lists of plain numbers."""

    dtype: str
    digest: str  # hash of all bits of all samples
    rows: list[list[float]]  # shape (ROWS, m); samples 0, N // ROWS, ...
    # shape (m,); standard errors come from the blocks of the draw (scrambles, for a Sobol draw)
    mean: list[float]
    mean_stderr: list[float]
    covariance: list[list[float]]  # shape (m, m)
    covariance_stderr: list[list[float]]  # shape (m, m)
    quantiles: list[list[float]]  # shape (levels, m); at `LEVELS`
    # samples of the draw, and of its pilot, in the frozen cells
    cells: list[int]
    pilot_cells: list[int]
    classes: list[int]  # length m

    @classmethod
    def of(cls, samples: Tensor, moments: Moments, pilot: Tensor, tree: EqualMassTree) -> Statistics:
        """Return the statistics of a draw, shape (N, m), in the cells of a given tree."""
        values = samples.double().numpy()
        mean_stderr, covariance_stderr = standard_errors(moments)
        return cls(
            dtype=str(samples.dtype).removeprefix("torch."),
            digest=digest(samples)[:32],
            rows=values[:: len(values) // ROWS][:ROWS].tolist(),
            mean=moments.mean.tolist(),
            mean_stderr=mean_stderr.tolist(),
            covariance=moments.covariance.tolist(),
            covariance_stderr=covariance_stderr.tolist(),
            quantiles=np.quantile(values, LEVELS, axis=0).tolist(),
            cells=tree.counts(samples).tolist(),
            pilot_cells=tree.counts(pilot).tolist(),
            classes=Classes(values.shape[1]).counts(samples).tolist(),
        )


def standard_errors(moments: Moments) -> tuple[Array, Array]:
    """Return the standard errors of mean, (m,), and covariance, (m, m), from the spread over blocks.

    These are the standard errors of the multiplier bootstrap in `Moments`, without simulation.
    """
    weights = moments.block_weights
    factor = len(weights) / (len(weights) - 1)
    means = np.square(moments.block_means - moments.mean)
    covariances = np.square(moments.block_covariances - moments.covariance)
    return (
        np.sqrt(factor * np.einsum("b,bi->i", weights**2, means)),
        np.sqrt(factor * np.einsum("b,bij->ij", weights**2, covariances)),
    )


@dataclass(frozen=True)
class Cells:
    """An equal-mass tree as plain numbers: the cells of an oracle's histogram."""

    centre: list[float]
    axes: list[list[float]]
    null: list[list[float]]
    thresholds: list[float]
    rounding: float

    @classmethod
    def of(cls, tree: EqualMassTree) -> Cells:
        centre, axes, null, thresholds = (
            array.tolist() for array in (tree.centre, tree.axes, tree.null, tree.thresholds)
        )
        return cls(centre, axes, null, thresholds, tree.rounding)

    @property
    def tree(self) -> EqualMassTree:
        m = len(self.centre)
        axes, null = (np.array(each, dtype=float).reshape(m, -1) for each in (self.axes, self.null))
        return EqualMassTree(np.array(self.centre), axes, null, np.array(self.thresholds), self.rounding)


@dataclass(frozen=True)
class Tolerance:
    """Allowed differences between two draws of one oracle with one seed."""

    samples: float  # single samples and quantiles, in standard deviations of the output
    # in units of their standard errors
    mean: float
    covariance: float
    cells: float  # share of samples in other cells
    classes: float  # share of samples of another class


OTHER_PLATFORM = Tolerance(samples=5e-5, mean=0.1, covariance=0.01, cells=2e-3, classes=1e-4)
"""Tolerance for rounding. Over all CI cells, the largest differences of the same draw with kernels without
FMA and AVX (MKL_CBWR=COMPATIBLE) were 8.2e-6 sd, .004 and .0009 standard errors, 8e-4 of the samples, and no
class. In float64, which differs more than any float32 platform can, they were 9.4e-6, .064, .0024, 1.1e-3,
and none.
"""

SAME_PLATFORM = Tolerance(samples=0.0, mean=1e-6, covariance=1e-6, cells=0.0, classes=0.0)
"""Equal except for moments, whose summation order may depend on the number of threads."""


def distances(stored: Statistics, again: Statistics) -> dict[str, tuple[float, str, str]]:
    """Return each statistic's distance, the field of `Tolerance` that bounds it, and its unit."""
    a, b = _arrays(stored), _arrays(again)
    for name, array in a.items():
        if array.shape != b[name].shape:
            raise ValueError(f"{name} has shape {b[name].shape}, stored is {array.shape}")
    deviation = np.sqrt(np.diag(a["covariance"]))
    scales = {
        "rows": ("samples", deviation, "sd"),
        "quantiles": ("samples", deviation, "sd"),
        "mean": ("mean", a["mean_stderr"], "standard errors"),
        "covariance": ("covariance", a["covariance_stderr"], "standard errors"),
    }
    found = {
        name: (_largest(a[name] - b[name], scale), kind, unit) for name, (kind, scale, unit) in scales.items()
    }
    for name in ("cells", "pilot_cells", "classes"):
        moved = float(np.abs(a[name] - b[name]).sum() / 2 / a[name].sum())
        found[name] = (moved, "classes" if name == "classes" else "cells", "of the samples")
    return found


def disagreements(
    stored: Statistics, again: Statistics, tolerance: Tolerance, *, bitwise: bool
) -> Iterator[tuple[str, str]]:
    """Yield the statistics in which two draws of one oracle disagree, with a line that says by how much."""
    if again.dtype != stored.dtype:
        yield "dtype", f"samples are {again.dtype}, stored {stored.dtype}"
    try:
        measured = distances(stored, again)
    except ValueError as error:
        yield "shape", str(error)
        return
    for name, (distance, kind, unit) in measured.items():
        allowed = getattr(tolerance, kind)
        if not distance <= allowed:  # NaN is a disagreement
            yield name, f"off by {distance:.2g} {unit}, allowed {allowed:.2g}"
    if bitwise and again.digest != stored.digest:
        yield "digest", "the samples are not equal to the last bit, on the platform that they were drawn on"


def _arrays(statistics: Statistics) -> dict[str, Array]:
    plain = asdict(statistics)
    return {name: np.array(value) for name, value in plain.items() if isinstance(value, list)}


def _largest(difference: Array, scale: Array) -> float:
    # For a constant output, which has no spread, any difference counts, and no difference is 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(difference == 0, 0.0, np.abs(difference) / scale)
    return float(ratio.max())
