"""Ops that read several components of a vector, for the checks beyond layers of units."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class Product(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :2] * x[:, 2:]


class Square(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x


class MatrixProduct(nn.Module):
    """The first two components, as a row, times the other four, as a matrix."""

    def forward(self, x: Tensor) -> Tensor:
        return (x[:, :2].reshape(-1, 1, 2) @ x[:, 2:].reshape(-1, 2, 2)).flatten(1)


class Maximum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :2].maximum(x[:, 2:])


class Minimum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :2].minimum(x[:, 2:])


class Largest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.amax(1, keepdim=True)


class Quotient(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :2] / x[:, 2:]


class Length(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        return length


class Attention(nn.Module):
    """One query of width 1, two keys, two values."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = x[:, :1, None], x[:, 1:3, None], x[:, 3:, None]
        return F.scaled_dot_product_attention(q, k, v).flatten(1)


OPS: dict[str, nn.Module] = {
    "product": Product(),
    "square": Square(),
    "matrix product": MatrixProduct(),
    "maximum": Maximum(),
    "minimum": Minimum(),
    "largest": Largest(),
    "quotient": Quotient(),
    "length": Length(),
    "softmax": nn.Softmax(1),
    "log softmax": nn.LogSoftmax(1),
    "layer norm": nn.LayerNorm(3, elementwise_affine=False),
    "RMS norm": nn.RMSNorm(3, eps=1e-5, elementwise_affine=False),
    "attention": Attention(),
}
