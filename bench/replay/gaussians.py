"""Batches of Gaussians by their moments, and the Wasserstein distance between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]
"""Means (B, n) and covariances (B, n, n), float64."""


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Gaussians with the roots of their covariances, which each distance of one needs.

    `mean`, shape (B, n). `root`, shape (B, n, n): symmetric. `trace`, shape (B,): of the covariances.
    """

    mean: Tensor
    root: Tensor
    trace: Tensor

    @classmethod
    def of(cls, pair: Pair, scale: Tensor | None = None) -> Gaussians:
        """Gaussians by mean and covariance.

        `pair`, shapes (B, n) and (B, n, n): negative eigenvalues of a covariance count as zero. `scale`,
        shape (m, n), float64: of the coordinates, which are multiplied by it first.
        """
        mean, covariance = pair
        if scale is not None:
            mean, covariance = mean @ scale.mT, scale @ covariance @ scale.mT
            covariance = (covariance + covariance.mT) / 2
        values, vectors = torch.linalg.eigh(covariance)
        values = values.clamp(min=0)
        return cls(mean, (vectors * values.sqrt().unsqueeze(-2)) @ vectors.mT, values.sum(-1))

    def __getitem__(self, places: Sequence[int]) -> Gaussians:
        index = torch.tensor(places)
        return Gaussians(self.mean[index], self.root[index], self.trace[index])


def squared_distance(a: Gaussians, b: Gaussians) -> Tensor:
    """W2 between Gaussians, squared: the part of the means, and that of the covariances.

    `a`, `b`: as many, or one in either.

    The result has shape (2, B), float64.

    Source: Gelbrich, "On a formula for the L2 Wasserstein metric between measures on Euclidean and Hilbert
    spaces", Math. Nachr. 1990.
    """
    # Singular values, and not roots of eigenvalues: rounding stays far below the distance.
    cross = torch.linalg.svdvals(a.root @ b.root).sum(-1)
    apart = (a.trace + b.trace - 2 * cross).clamp(min=0)
    spread = torch.where((a.root == b.root).flatten(1).all(1), 0.0, apart)
    return torch.stack([(a.mean - b.mean).square().sum(-1), spread])


def distance(a: Gaussians, b: Gaussians) -> Tensor:
    """W2 between Gaussians, shape (B,)."""
    return squared_distance(a, b).sum(0).sqrt()
