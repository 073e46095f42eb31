"""Joint Gaussian law of the values of a net that are read later, in blocks.

A residual branch reads a value again after others have been computed from it, and the variance of the sum
depends on their covariance. For an affine op this is Cov(A X, Y) = A Cov(X, Y); for an elementwise function f
of jointly Gaussian X and Y it is Cov(f(X), Y) = E[f'(X)] Cov(X, Y) (Stein's lemma).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from sdp_ref.laws import Gaussian, unchecked

Rows = Callable[..., Tensor]
"""Linear part of an op: maps one matrix of rows (B, R, *event) per input to (B, R, *out)."""


class Live(Protocol):
    """The interface through which an op reads the live values in order to be linearised."""

    means: dict[int, Tensor]

    def size(self, value: int) -> int:
        """Number of components of a value."""

    def within(self, value: int, places: Tensor) -> Tensor:
        """Covariances (B, groups, n, n) within groups of components, with indices `places` (groups, n)."""

    def group_sums(self, value: int, groups: int) -> tuple[Tensor, Tensor]:
        """Sums of variances and of all covariances within groups of adjacent components, (B, groups, 1)."""

    def side_by_side(self, one: int, other: int, shape: torch.Size) -> Tensor:
        """Covariances of corresponding components of two values, both broadcast to an event, (B, *shape)."""


class Joint:
    """Means and covariance blocks of the live values during the walk through a net.

    Value 0 is the input of the net, given by its mean (B, *event), float64, and its covariance (B, n, n), or
    its variance (B, *event) if its components are independent. The matrix is then built only when an op needs
    it.
    """

    def __init__(
        self, mean: Tensor, *, covariance: Tensor | None = None, variance: Tensor | None = None
    ) -> None:
        self.means = {0: mean}
        self._variances = {} if variance is None else {0: variance.flatten(1)}
        # Only pairs i <= j; the others are their transposes.
        self._blocks = {} if covariance is None else {(0, 0): covariance}

    @property
    def live(self) -> tuple[int, ...]:
        return tuple(self.means)

    @property
    def entries(self) -> int:
        return sum(block.numel() for block in self._blocks.values())

    def independent(self, value: int) -> Tensor | None:
        """Variances (B, n) of a value whose matrix has not been built, otherwise None."""
        return None if (value, value) in self._blocks else self._variances[value]

    def block(self, i: int, j: int) -> Tensor:
        """Covariance (B, n_i, n_j) of values `i` and `j`."""
        if i == j and (i, i) not in self._blocks:
            self._blocks[i, i] = torch.diag_embed(self._variances[i])
        return self._blocks[i, j] if i <= j else self._blocks[j, i].mT

    def law(self, value: int) -> Gaussian:
        return unchecked(Gaussian, self.means[value], self.block(value, value))

    def law_of_all(self, values: Sequence[int]) -> Gaussian:
        """Joint law of several values, flattened and concatenated."""
        mean = torch.cat([self.means[v].flatten(1) for v in values], 1)
        rows = [torch.cat([self.block(i, j) for j in values], 2) for i in values]
        return unchecked(Gaussian, mean, torch.cat(rows, 1))

    def within(self, value: int, places: Tensor) -> Tensor:
        variance = self.independent(value)
        if variance is not None:
            return torch.diag_embed(variance[:, places])
        return self.block(value, value)[:, places.unsqueeze(2), places.unsqueeze(1)]

    def side_by_side(self, one: int, other: int, shape: torch.Size) -> Tensor:
        rows, columns = (
            torch.arange(self.size(v)).reshape(self.means[v].shape[1:]).expand(shape).flatten()
            for v in (one, other)
        )
        own = self.independent(one) if one == other else None
        taken = self.block(one, other)[:, rows, columns] if own is None else own[:, rows]
        return taken.reshape(-1, *shape)

    def group_sums(self, value: int, groups: int) -> tuple[Tensor, Tensor]:
        variance = self.independent(value)
        if variance is not None:
            trace = variance.reshape(len(variance), groups, -1).sum(-1, keepdim=True)
            return trace, trace
        own = self.within(value, torch.arange(self.size(value)).reshape(groups, -1))
        trace = own.diagonal(dim1=2, dim2=3).sum(-1, keepdim=True)
        return trace, own.sum((2, 3)).unsqueeze(-1)

    def size(self, value: int) -> int:
        return self.means[value][0].numel()

    def replace(self, old: int, new: int, mean: Tensor, variance: Tensor) -> None:
        """Replace the only value by one with independent components."""
        if self.live != (old,):
            raise ValueError(f"value {old} is not the only live one: {self.live}")
        self.means, self._variances, self._blocks = {new: mean}, {new: variance.flatten(1)}, {}

    def add(self, value: int, mean: Tensor, covariance: Tensor, cross: dict[int, Tensor]) -> None:
        """Add a value, with its covariance with each live one, (B, n_live, n)."""
        if any(other >= value for other in self.means):
            raise ValueError(f"value {value} does not come after the live ones: {self.live}")
        self.means[value] = mean
        self._blocks[value, value] = covariance
        self._blocks.update({(other, value): block for other, block in cross.items()})

    def drop(self, values: Iterable[int]) -> None:
        gone = set(values)
        self.means = {v: mean for v, mean in self.means.items() if v not in gone}
        self._blocks = {k: block for k, block in self._blocks.items() if not gone & set(k)}

    def rename(self, old: int, new: int, mean: Tensor) -> None:
        """Renumber value `old`, whose components keep their order in the new shape."""

        def name(v: int) -> int:
            return new if v == old else v

        blocks = {}
        for (i, j), block in self._blocks.items():
            a, b = name(i), name(j)
            blocks[(a, b) if a <= b else (b, a)] = block if a <= b else block.mT
        self._blocks = blocks
        self._variances = {name(v): variance for v, variance in self._variances.items()}
        self.means = {name(v): m for v, m in self.means.items()} | {new: mean}

    def linear_cross(self, inputs: Sequence[int], rows: Rows, others: Iterable[int]) -> dict[int, Tensor]:
        """Covariances (B, n_other, m) of the values `others` with the image of `inputs` under `rows`."""
        return {
            other: rows(*(self._rows(self.block(other, i), i) for i in inputs)).flatten(2) for other in others
        }

    def linear_covariance(self, inputs: Sequence[int], rows: Rows, cross: dict[int, Tensor]) -> Tensor:
        """Covariance (B, m, m) of the image of `inputs` under `rows`, given their covariance with it."""
        return rows(*(self._rows(cross[i].mT, i) for i in inputs)).flatten(2)

    def _rows(self, block: Tensor, value: int) -> Tensor:
        return block.reshape(*block.shape[:2], *self.means[value].shape[1:])
