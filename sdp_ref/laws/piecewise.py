"""Laws of piecewise affine functions of standard normal variates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from sdp_ref.errors import UndefinedError
from sdp_ref.laws.base import Law, LawT, Push, unchecked
from sdp_ref.laws.standard import NORMAL, Standard

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Pieces:
    """A function of n standard normal variates z, affine on each of K regions of a binary space partition.

    Attributes
    ----------
    planes : ndarray, shape (K - 1, n + 1)
        Unit normals a and offsets b of the cuts: z is below a cut if a z + b < 0.
    below, above : ndarray of int, shape (K - 1,)
        Index of the next cut on each side, or ~k for region k. The first cut is the root.
    maps : ndarray, shape (K, m, n + 1)
        Matrix and constant of the affine function on each region.
    weights : ndarray, shape (K,)
        Probabilities of the regions.
    """

    planes: Array
    below: Indices
    above: Indices
    maps: Array
    weights: Array

    def regions(self, points: Array) -> Indices:
        """Return the index of the region of each point; `points` has shape (rows, n)."""
        import numpy as np

        at = np.full(len(points), 0 if len(self.planes) else ~0)
        open_rows = np.flatnonzero(at >= 0)
        while len(open_rows):
            cut = at[open_rows]
            plane, here = self.planes[cut], points[open_rows]
            side = np.einsum("rn,rn->r", plane[:, :-1], here) + plane[:, -1] < 0
            following = np.where(side, self.below[cut], self.above[cut])
            at[open_rows] = following
            open_rows = open_rows[following >= 0]
        return ~at

    def __call__(self, points: Array) -> Array:
        """Evaluate the function at points of shape (rows, n), shape (rows, m)."""
        import numpy as np

        regions = self.regions(points)
        order = np.argsort(regions, kind="stable")
        values = np.empty((len(points), self.maps.shape[1]))
        starts = np.flatnonzero(np.diff(regions[order], prepend=-1))
        for rows in np.split(order, starts[1:]) if len(order) else ():
            own = self.maps[regions[rows[0]]]
            values[rows] = points[rows] @ own[:, :-1].T + own[:, -1]
        return values


@dataclass(frozen=True, eq=False)
class PiecewiseGaussian(Law):
    """Laws of g(Z) for a standard normal Z and a function g that is affine on each of several polytopes.

    They are mixtures of affine images of truncated Gaussians. Rules create them; samples are g at normal
    samples.

    Parameters
    ----------
    mean : Tensor, shape (B, *event)
    covariance : Tensor, shape (B, n, n)
        Over the flattened event.
    missing : Tensor, shape (B,)
        Upper bound of the probability that g differs from the function f that it stands for.
    mean_bound, covariance_bound : Tensor, shape (B,)
        Bounds of the distance in norm from the mean and covariance of f(Z), if f is nowhere steeper than g.
    pieces : tuple of B Pieces
        The functions, with the probabilities of their regions.
    """

    mean: Tensor
    covariance: Tensor
    missing: Tensor
    mean_bound: Tensor
    covariance_bound: Tensor
    pieces: tuple[Pieces, ...]

    @property
    def described(self) -> str:
        return "a law of a piecewise affine function"

    @property
    def location(self) -> Tensor:
        return self.mean

    @property
    def variance(self) -> Tensor:
        return self.covariance.diagonal(dim1=-2, dim2=-1).reshape(self.mean.shape)

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of regions of each law."""
        return tuple(len(each.weights) for each in self.pieces)

    @property
    def standard(self) -> Standard:
        return NORMAL

    @property
    def variates(self) -> int:
        """Rank of the input covariance."""
        return max(int(each.maps.shape[2]) - 1 for each in self.pieces)

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        import torch

        pieces = self.pieces[0]
        place = self.mean.device if device is None else device
        kind = self.mean.dtype if dtype is None else dtype

        def draws(noise: Tensor) -> Tensor:
            points = noise.detach().double().cpu().numpy()[:, : pieces.maps.shape[2] - 1]
            return torch.from_numpy(pieces(points)).to(place, kind)

        return draws

    def rows(self, index: slice) -> PiecewiseGaussian:
        return unchecked(PiecewiseGaussian, *(getattr(self, field.name)[index] for field in fields(self)))

    @classmethod
    def join(cls: type[LawT], laws: Sequence[LawT]) -> LawT:
        """Concatenate laws of one event shape."""
        import torch

        each: list[Any] = list(laws)
        if len({law.event_shape for law in each}) > 1:
            raise UndefinedError("laws of different shapes do not make one batch")
        *tensors, _ = (field.name for field in fields(cls))
        joined = (torch.cat([getattr(law, name) for law in each]) for name in tensors)
        return unchecked(cls, *joined, tuple(pieces for law in each for pieces in law.pieces))
