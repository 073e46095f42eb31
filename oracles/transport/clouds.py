"""Clouds of points with masses, for transport between large samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GROUP = 2
"""Points per centre of mass, from one level to the next."""


@dataclass(frozen=True, eq=False)
class Cloud:
    """Distinct points (k, m) with their multiplicities (k,), in the order of a k-d tree.

    Neighbours in memory are therefore close to each other.
    """

    points: Floats
    mass: Floats

    @classmethod
    def of(cls, points: Floats) -> tuple[Cloud, Ints]:
        """Return the cloud, and the index in it of every given point."""
        distinct, member, counts = np.unique(points, axis=0, return_inverse=True, return_counts=True)
        order = cKDTree(distinct, leafsize=GROUP).indices
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return cls(distinct[order], counts[order].astype(np.float64)), rank[member.ravel()]

    def coarser(self) -> Cloud:
        """Centres of mass of groups of neighbours."""
        starts = np.arange(0, len(self), GROUP)
        mass = np.add.reduceat(self.mass, starts)
        return Cloud(np.add.reduceat(self.points * self.mass[:, None], starts) / mass[:, None], mass)

    def __len__(self) -> int:
        return len(self.points)


def lengths(a: Cloud, b: Cloud, i: Ints, j: Ints) -> Floats:
    """|a_i - b_j| for the given pairs, in the shape of `i` and `j`."""
    distances: Floats = np.linalg.norm(a.points[i] - b.points[j], axis=1)
    return distances


def paired_length(a: Cloud, b: Cloud, partner: Ints) -> float:
    """Mean length of a bijection, in which each point of a cloud counts with its mass."""
    x = np.repeat(a.points, a.mass.astype(np.int64), axis=0)
    y = np.repeat(b.points, b.mass.astype(np.int64), axis=0)
    return float(np.linalg.norm(x - y[partner], axis=1).mean())


def common_scale(x: Floats, y: Floats) -> float:
    """Power of two close to the extent of all points: dividing by it is exact."""
    with np.errstate(over="ignore"):
        extent = float(np.ptp(np.concatenate([x, y]), axis=0).max())
    if not math.isfinite(extent):
        raise ValueError("x and y are too far apart for float64")
    return math.ldexp(1.0, math.frexp(extent)[1] - 1) if extent else 0.0
