"""Affine functions with an explicit matrix: general ones, and interpolation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.affine.base import CHUNK, Affine, check_ndim

_DENSE = 2**26
"""Maximum number of entries of an explicit matrix: 512 MB in float64."""


class Dense(Affine):
    """An affine function whose matrix, and its powers, are built from a basis of its inputs."""

    def weight(self, x: Tensor) -> Tensor:
        n = x[0].numel()
        zero: Tensor = self.module(x.new_zeros(1, *x.shape[1:]))
        if n * zero.numel() > _DENSE:
            text = f"a matrix of {zero.numel()} by {n} components, more than {_DENSE:,} entries"
            raise NoFormulaError(f"{self.module.text} with {text}")
        step = max(1, CHUNK // max(n, zero.numel()))
        parts = torch.eye(n, dtype=x.dtype, device=x.device).split(step)
        columns = [(self.module(part.reshape(-1, *x.shape[1:])) - zero).flatten(1) for part in parts]
        return torch.cat(columns).mT

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        y: Tensor = F.linear(x.flatten(1), weight)
        shape: tuple[int, ...] = self.module(x[:1]).shape[1:]
        return y.reshape(len(x), *shape)

    def rows(self, x: Tensor) -> Tensor:
        y: Tensor = self.module(x) - self.module(torch.zeros_like(x[:1]))
        return y


class Interpolation(Affine):
    """Resizing of images: one matrix per spatial dimension, whose product is A."""

    def check(self, x: Tensor) -> None:
        if x.ndim < 3:
            check_ndim(self.module, x, 3)

    def weight(self, x: Tensor) -> Tensor:
        """The matrices of all dimensions, concatenated."""
        weight = torch.cat([matrix.flatten() for matrix in self._matrices(x)])
        probe = torch.linspace(0, 9, x[0, 0].numel(), dtype=x.dtype, device=x.device).sin()
        probe = probe.reshape(1, 1, *x.shape[2:])
        if not torch.allclose(self.module(probe), self.linear(probe, weight), atol=1e-4):
            raise NoFormulaError("an interpolation that does not take the dimensions of space one by one")
        return weight

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        space = self.module(x[:1, :1]).shape[2:]
        shapes = [torch.Size(pair) for pair in zip(space, x.shape[2:], strict=True)]
        parts = weight.split([shape.numel() for shape in shapes])
        for dim, (shape, part) in enumerate(zip(shapes, parts, strict=True), start=2):
            x = torch.tensordot(x, part.reshape(shape), ([dim], [1])).movedim(-1, dim)
        return x

    def rows(self, x: Tensor) -> Tensor:
        y: Tensor = self.module(x)
        return y

    def _matrices(self, x: Tensor) -> list[Tensor]:
        """For each dimension, the image (out, in) of its basis, constant along the others."""
        space, matrices = x.shape[2:], []
        for d, n in enumerate(space):
            basis = torch.eye(n, dtype=x.dtype, device=x.device)
            shape = [n if other == d else 1 for other in range(len(space))]
            images = basis.reshape(n, 1, *shape).expand(n, 1, *space)
            columns = self.module(images).squeeze(1).movedim(d + 1, -1)  # (in, *others, out)
            matrices.append(columns.reshape(n, -1, columns.shape[-1])[:, 0].mT)
        return matrices
