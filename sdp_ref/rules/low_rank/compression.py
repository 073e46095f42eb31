"""Compression of a factor with many columns to one with few, using matrix-vector products only.

An op that mixes n independent components turns them into n columns, M = [A L, A sqrt(D)] in total. They are
projected on a few orthonormal directions W, and the resulting law is that of M W plus independent components:

    M W W^T M^T + diag(M (I - W W^T) M^T).

For any W, the diagonal is not negative, since I - W W^T is positive semidefinite, and variances are those of
M M^T: only covariances are lost. W spans the image under M^T M M^T of random directions in the output space,
a randomised range finder with one subspace iteration (Halko, Martinsson and Tropp 2011, algorithm 4.4, for
M^T), so that only products with M are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sdp_ref.rules.joint import Rows

Values = dict[int, Tensor]

_PROBES = 8
"""Number of random sign vectors that estimate the norm of the dropped part; exact for as few components."""


@dataclass(frozen=True)
class Expansion:
    """M, the map from standard normal components to the live values after an op.

    `factors` (B, R, *event) are those of the values before the op, and `roots` (B, *event) the standard
    deviations of the independent parts that become components. `others` are values that stay live unchanged.
    The op computes value `number` from `inputs`, with linear part `rows`.
    """

    factors: Mapping[int, Tensor]
    roots: Mapping[int, Tensor]
    others: tuple[int, ...]
    number: int | None = None
    inputs: tuple[int, ...] = ()
    rows: Rows | None = None

    @property
    def latent(self) -> int:
        """Number of components that the values already share, R."""
        return next(iter(self.factors.values())).shape[1]

    @property
    def width(self) -> int:
        return self.latent + sum(root[0].numel() for root in self.roots.values())

    def image(self, sources: Mapping[int, Tensor]) -> Values:
        """Rows of all live values, (B, q, *event) each, from those of the values before the op."""
        live = {v: sources[v] for v in self.others}
        if self.rows is not None and self.number is not None:
            live[self.number] = self.rows(*(sources[v] for v in self.inputs))
        return live

    def apply(self, columns: Tensor) -> Values:
        """M times columns, shape (B, K, q), as rows (B, q, *event) of each value."""
        shared, *own = columns.split([self.latent, *(root[0].numel() for root in self.roots.values())], 1)
        sources = {}
        for v, factor in self.factors.items():
            sources[v] = _combined(factor, shared)
        for (v, root), part in zip(self.roots.items(), own, strict=True):
            sources[v] = sources[v] + root.unsqueeze(1) * part.mT.reshape(sources[v].shape)
        return self.image(sources)

    def transpose(self, live: Mapping[int, Tensor]) -> Tensor:
        """M^T times rows (B, q, *event) of all live values, shape (B, K, q)."""
        pulled = {v: live[v] for v in self.others}
        if self.rows is not None and self.number is not None:
            by_input = adjoint(self.rows, [self.factors[v].shape[2:] for v in self.inputs], live[self.number])
            for v, rows in zip(self.inputs, by_input, strict=True):
                pulled[v] = pulled[v] + rows if v in pulled else rows
        shared = torch.stack(
            [
                torch.einsum("brn,bqn->brq", self.factors[v].flatten(2), rows.flatten(2))
                for v, rows in pulled.items()
            ]
        ).sum(0)
        own = [(root.unsqueeze(1) * pulled[v]).flatten(2).mT for v, root in self.roots.items()]
        return torch.cat([shared, *own], 1)

    @torch.no_grad()
    def basis(self, columns: int, generator: torch.Generator) -> Tensor:
        """Orthonormal directions of M's components, shape (B, K, at most `columns`).

        It is complete if there are no more components or values than columns.
        """
        like = self._like()
        size = sum(value[0].numel() for value in like.values())
        first = next(iter(like.values()))
        if self.width <= min(size, columns):
            return torch.eye(self.width).to(first).expand(len(first), -1, -1)
        if size <= columns:
            return _orthonormal(self.transpose(_identity(like)))
        found = _orthonormal(self.transpose(_drawn(torch.randn, columns, like, generator)))
        return _orthonormal(self.transpose(self.apply(found)))  # one subspace iteration

    @torch.no_grad()
    def dropped(
        self, basis: Tensor, linear: Tensor | None, kept: Values, generator: torch.Generator
    ) -> Tensor:
        """Frobenius norm of the covariances that a basis drops, relative to that of M M^T."""
        if basis.shape[2] == self.width:
            return basis.new_zeros(len(basis))
        variances = {v: self._variance(v) for v in self.others}
        if linear is not None and self.number is not None:
            variances[self.number] = linear
        size = sum(value[0].numel() for value in variances.values())
        signs = _identity(variances) if size <= _PROBES else _drawn(_signs, _PROBES, variances, generator)
        pulled = self.transpose(signs)
        inside = basis.mT @ pulled
        rest = self.apply(pulled - basis @ inside)
        whole = _norm({v: each + _combined(kept[v], inside) for v, each in rest.items()})
        missing = {
            v: each - (variances[v] - kept[v].square().sum(1)).unsqueeze(1) * signs[v]
            for v, each in rest.items()
        }
        return torch.where(whole > 0, _norm(missing) / torch.where(whole > 0, whole, 1.0), 0.0)

    def _variance(self, value: int) -> Tensor:
        """Variance (B, *event) from M of a value that the op does not change."""
        common = self.factors[value].square().sum(1)
        return common + self.roots[value].square() if value in self.roots else common

    def _like(self) -> Values:
        return {
            v: rows[:, 0]
            for v, rows in self.image(
                {v: f.new_zeros(len(f), 1, *f.shape[2:]) for v, f in self.factors.items()}
            ).items()
        }


def _combined(factor: Tensor, columns: Tensor) -> Tensor:
    """Combinations (B, q, *event) of rows (B, R, *event) by columns (B, R, q)."""
    rows = torch.einsum("brn,brq->bqn", factor.flatten(2), columns)
    return rows.reshape(*rows.shape[:2], *factor.shape[2:])


def adjoint(rows: Rows, events: list[torch.Size], cotangents: Tensor) -> tuple[Tensor, ...]:
    """Transpose of a linear map of several values, applied to rows (B, q, *out)."""
    with torch.enable_grad():
        shapes = ((*cotangents.shape[:2], *event) for event in events)
        inputs = [
            torch.zeros(shape, dtype=cotangents.dtype, device=cotangents.device, requires_grad=True)
            for shape in shapes
        ]
        image = rows(*inputs)
    if not image.requires_grad:  # it does not depend on the inputs
        return tuple(torch.zeros_like(each, requires_grad=False) for each in inputs)
    found = torch.autograd.grad(image, inputs, cotangents, allow_unused=True, materialize_grads=True)
    return tuple(each.detach() for each in found)


def _orthonormal(columns: Tensor) -> Tensor:
    basis: Tensor = torch.linalg.qr(columns)[0]
    return basis


def _identity(like: Values) -> Values:
    """All components of all values, one per row."""
    sizes = [value[0].numel() for value in like.values()]
    first = next(iter(like.values()))
    parts = torch.eye(sum(sizes)).to(first).split(sizes, 1)
    return {
        v: part.reshape(1, -1, *value.shape[1:]).expand(len(value), -1, *value.shape[1:])
        for (v, value), part in zip(like.items(), parts, strict=True)
    }


def _drawn(draw: Callable[..., Tensor], count: int, like: Values, generator: torch.Generator) -> Values:
    """Random rows that are the same for each law of the batch, so that laws do not depend on each other."""
    return {
        v: draw(1, count, *value.shape[1:], generator=generator, dtype=value.dtype)
        .to(value.device)
        .expand(len(value), -1, *value.shape[1:])
        for v, value in like.items()
    }


def _signs(*shape: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return torch.randint(0, 2, shape, generator=generator).to(dtype) * 2 - 1


def _norm(values: Values) -> Tensor:
    return torch.stack([value.flatten(1).square().sum(1) for value in values.values()]).sum(0).sqrt()
