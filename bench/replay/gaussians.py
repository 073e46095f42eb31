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

    Attributes
    ----------
    mean : Tensor, shape (B, n), float64
    root : Tensor, shape (B, n, n), float64
        Symmetric.
    trace : Tensor, shape (B,), float64
        Of the covariances.
    """

    mean: Tensor
    root: Tensor
    trace: Tensor

    @classmethod
    def of(cls, pair: Pair, scale: Tensor | None = None) -> Gaussians:
        """Gaussians by mean and covariance.

        Parameters
        ----------
        pair : (Tensor, Tensor), shapes (B, n) and (B, n, n), float64
            Negative eigenvalues of a covariance count as zero.
        scale : Tensor, shape (m, n), float64, optional
            Of the coordinates, which are multiplied by it first.

        Returns
        -------
        Gaussians
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

    Parameters
    ----------
    a, b : Gaussians
        As many, or one in either.

    Returns
    -------
    Tensor, shape (2, B), float64

    References
    ----------
    Gelbrich, "On a formula for the L2 Wasserstein metric between measures on Euclidean and Hilbert
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
