"""Location of the batch in a tensor of the net.

Nets move the batch: sequences first, heads folded into it, windows. Every value of a trace is stored as
(N, *event); a layout describes its shape in the net.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Tensor dimension `dim` that contains the batch, of size ``outer`` x B x ``inner``.

    Other dimensions of these sizes are folded into it before and after the batch.
    """

    dim: int = 0
    outer: int = 1
    inner: int = 1

    @property
    def folded(self) -> int:
        """Entries of the dimension per example."""
        return self.outer * self.inner

    @property
    def plain(self) -> bool:
        """Whether the first dimension is the batch and nothing else."""
        return self == Layout()

    def event_first(self, x: Tensor) -> Tensor:
        """Convert a value (N, *event) to its shape in the net."""
        if self.plain:
            return x
        n = len(x)
        inside = x.movedim(0, self.dim + (self.outer > 1))
        shape = list(inside.shape)
        width = 1 + (self.outer > 1) + (self.inner > 1)
        shape[self.dim : self.dim + width] = [self.outer * n * self.inner]
        return inside.reshape(shape)

    def batch_first(self, x: Tensor) -> Tensor:
        """Convert a tensor of the net to (N, *event)."""
        if self.plain:
            return x
        shape = list(x.shape)
        parts = [self.outer, shape[self.dim] // self.folded, self.inner]
        kept = [size for place, size in enumerate(parts) if place == 1 or size > 1]
        shape[self.dim : self.dim + 1] = kept
        return x.reshape(shape).movedim(self.dim + (self.outer > 1), 0)

    def place(self, dim: int, ndim: int) -> int | None:
        """Convert a dimension of the net's tensor to one of (N, *event); None for that of the batch."""
        dim %= max(ndim, 1)
        if dim == self.dim:
            return None
        extra = (self.outer > 1) + (self.inner > 1)
        return dim + 1 if dim < self.dim else dim + extra


def batch_dimension(
    first: tuple[int, ...], second: tuple[int, ...], sizes: tuple[int, int]
) -> tuple[int, int] | None:
    """Find the dimension that grows with the batch, from the shapes of a tensor for two batch sizes."""
    if len(first) != len(second):
        return None
    moved = [d for d, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    if len(moved) != 1:
        return None
    (dim,) = moved
    folded, rest = divmod(first[dim], sizes[0])
    if rest or folded * sizes[1] != second[dim]:
        return None
    return dim, folded


def row_of(first: Tensor, second: Tensor, sizes: tuple[int, int]) -> tuple[Layout, Tensor] | None:
    """Return the part for one example of a constant that is repeated for each example of a batch."""
    found = batch_dimension(tuple(first.shape), tuple(second.shape), sizes)
    if found is None:
        return None
    dim, folded = found
    for outer in {1, folded}:
        layout = Layout(dim, outer, folded // outer)
        rows = torch.cat([layout.batch_first(first), layout.batch_first(second)])
        if bool((rows == rows[:1]).all() if rows.numel() else True):
            return layout, layout.batch_first(first)[:1]
    return None
