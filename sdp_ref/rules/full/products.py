"""Moments of products of two jointly Gaussian values, by the theorem of Isserlis (1918).

For centred X, Y, Z, W: E[XY] = Cov(X, Y), and Cov(XY, ZW) = Cov(X, Z) Cov(Y, W) + Cov(X, W) Cov(Y, Z).
Nonzero means add a linear part, which alone determines the covariance of a product with a third value.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdp_ref.graph.ops import MatrixProduct, Multiply
from sdp_ref.rules.full.joint import Joint, Live, Rows
from sdp_ref.rules.full.steps import LinearStep


class ProductStep(LinearStep):
    """A product of two values, elementwise or of matrices.

    Mean, covariance, and covariances with values that are read later are exact under a jointly Gaussian law.
    """

    def __init__(self, module: Multiply | MatrixProduct) -> None:
        self.module = module
        self.quadratic = _of_matrices if isinstance(module, MatrixProduct) else _elementwise

    def bound(self, joint: Live, inputs: tuple[int, ...]) -> tuple[Tensor, Rows]:
        left, right = (joint.means[v] for v in inputs)

        def rows(of_left: Tensor, of_right: Tensor) -> Tensor:
            by_right: Tensor = self.module(left.unsqueeze(1), of_right)
            by_left: Tensor = self.module(of_left, right.unsqueeze(1))
            return by_left + by_right

        return self.module(left, right), rows

    def entries(self, joint: Joint, inputs: tuple[int, ...], mean: Tensor) -> int:
        a, b = (joint.size(v) for v in inputs)
        m = mean[0].numel()
        if not isinstance(self.module, MatrixProduct):
            return 4 * m * m
        left, right = (joint.means[v] for v in inputs)
        repeats = math.prod(mean.shape[1:-2])
        a, b = (repeats * math.prod(each.shape[-2:]) for each in (left, right))
        return a * a + b * b + 2 * a * b + 2 * m * m

    def completed(
        self, joint: Joint, inputs: tuple[int, ...], mean: Tensor, covariance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Add the contribution of the covariances to mean and covariance."""
        a, b = inputs
        events = joint.means[a].shape[1:], joint.means[b].shape[1:]
        blocks = joint.block(a, a), joint.block(b, b), joint.block(a, b)
        more, square = self.quadratic(events, mean.shape[1:], blocks)
        return mean + more.reshape(mean.shape), covariance + square


Blocks = tuple[Tensor, Tensor, Tensor]
"""Covariances (B, n, n') of the first value, of the second, and between the two."""

Events = tuple[torch.Size, torch.Size]


def _elementwise(events: Events, out: torch.Size, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """Contribution of covariances to mean (B, m) and covariance (B, m, m) of an elementwise product."""
    left, right, both = broadcast(blocks, *(places_in(event, out) for event in events))
    return both.diagonal(dim1=1, dim2=2), left * right + both * both.mT


def _of_matrices(events: Events, out: torch.Size, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """The same as :func:`_elementwise` for matrices (*heads, i, j) and (*heads, j, k)."""
    heads, (i, k), j = out[:-2], out[-2:], events[0][-1]
    h = math.prod(heads)
    of_left = places_in(events[0], (*heads, i, j))
    of_right = places_in(events[1], (*heads, j, k))
    left, right, both = broadcast(blocks, of_left, of_right)
    left = left.reshape(-1, h, i, j, h, i, j)
    right = right.reshape(-1, h, j, k, h, j, k)
    both = both.reshape(-1, h, i, j, h, j, k)
    mean = torch.einsum("bhijhjk->bhik", both).flatten(1)
    square = torch.einsum("bhijgpl,bhjkglq->bhikgpq", left, right)
    square = square + torch.einsum("bhijglq,bgplhjk->bhikgpq", both, both)
    return mean, square.reshape(-1, mean.shape[1], mean.shape[1])


def places_in(event: torch.Size, out: tuple[int, ...]) -> Tensor | None:
    """Index of the source component of each broadcast component; None for the identity."""
    if tuple(event) == tuple(out):
        return None
    return torch.arange(math.prod(event)).reshape(event).expand(out).flatten()


def broadcast(blocks: Blocks, of_left: Tensor | None, of_right: Tensor | None) -> Blocks:
    """Covariances of two values after broadcasting, given their :func:`places_in` the result."""

    def taken(block: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
        block = block if rows is None else block[:, rows.to(block.device)]
        return block if columns is None else block[:, :, columns.to(block.device)]

    left, right, both = blocks
    return taken(left, of_left, of_left), taken(right, of_right, of_right), taken(both, of_left, of_right)
