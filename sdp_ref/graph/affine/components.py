"""Elementwise ops with constants, rearrangements and padding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sdp_ref.errors import NoLinearPartError
from sdp_ref.graph.affine.base import Affine
from sdp_ref.graph.ops import (
    Divide,
    Pad,
    Reshape,
    Scale,
    Shift,
)


class Elementwise(Affine):
    """Multiplication or division by a constant, or its addition."""

    diagonal = True

    def weight(self, x: Tensor) -> Tensor:
        constant: Tensor = self.module.of(x)
        match self.module:
            case Scale():
                return constant
            case Divide():
                return 1 / constant
        return torch.ones_like(constant)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        # A shift may also broadcast components, as the product with ones does.
        if isinstance(self.module, Shift) and torch.broadcast_shapes(x.shape, weight.shape) == x.shape:
            return x
        return x * weight


class Rearrangement(Affine):
    """Reshape, permute, slice, zero-pad: every output is one input or 0."""

    diagonal = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        if isinstance(module, nn.Flatten) and module.start_dim == 0:
            raise NoLinearPartError("a Flatten that does not keep the batch dimension")
        self.keeps_order = isinstance(module, nn.Flatten | nn.Unflatten | nn.Identity | Reshape)

    def check(self, x: Tensor) -> None:
        m = self.module
        if not isinstance(m, nn.Flatten | nn.Unflatten):
            return  # other ops that would move the batch are rejected where they are created
        if (m.start_dim if isinstance(m, nn.Flatten) else m.dim) % x.ndim == 0:
            raise NoLinearPartError(f"{type(m).__name__} over the batch dimension")

    def weight(self, x: Tensor) -> Tensor:
        return torch.ones((), dtype=x.dtype, device=x.device)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:  # noqa: ARG002
        y: Tensor = self.module(x)
        return y


class Padding(Rearrangement):
    """Padding with a constant or with components of the event."""

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:  # noqa: ARG002
        m = self.module
        if isinstance(m, Pad) and m.mode != "constant":
            y: Tensor = m(x)
            return y
        zeros: Tensor = Pad(m.pad if isinstance(m, Pad) else m.padding)(x)
        return zeros
