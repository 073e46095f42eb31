"""Transformers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_bench.bench.nets.patches import GRID, Patches, mlp

HEADS = 4


class SelfAttention(nn.Module):
    """Scaled dot-product attention with four heads among the tokens of an example (Vaswani et al. 2017).

    `width` is the size of a token, a multiple of the number of heads. With `causal` a token attends only to
    itself and to earlier tokens.
    """

    def __init__(self, width: int, *, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            project(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for project in (self.q, self.k, self.v)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        z: Tensor = self.out(seen.transpose(1, 2).flatten(2))
        return z


class EncoderBlock(nn.Module):
    """Attention and an MLP, each after a LayerNorm and with a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), SelfAttention(width)
        self.norm2, self.mlp = nn.LayerNorm(width), mlp(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        z: Tensor = x + self.mlp(self.norm2(x))
        return z


class ViT(nn.Module):
    """Vision transformer (Dosovitskiy et al. 2021) with two blocks on 4 x 4 patches and mean pooling."""

    def __init__(self, channels: int = 1, size: int = 28, classes: int = 10, width: int = 32) -> None:
        super().__init__()
        self.patches = Patches(channels, size, width)
        self.position = nn.Parameter(0.02 * torch.randn(GRID**2, width))
        self.blocks = nn.Sequential(*(EncoderBlock(width) for _ in range(2)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.patches(x) + self.position)
        scores: Tensor = self.head(self.norm(x).mean(1))
        return scores


class SwiGLU(nn.Module):
    """Gated linear unit with SiLU (Shazeer 2020), with equal input and output size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return z


class DecoderBlock(nn.Module):
    """Causal attention and SwiGLU, each after an RMSNorm and with a shortcut, as in Llama."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.RMSNorm(width, eps=1e-6), SelfAttention(width, causal=True)
        self.norm2, self.mlp = nn.RMSNorm(width, eps=1e-6), SwiGLU(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        z: Tensor = x + self.mlp(self.norm2(x))
        return z


class Decoder(nn.Module):
    """Causal transformer with two blocks (Touvron et al. 2023); the last token gives the scores."""

    def __init__(self, features: int = 2, length: int = 12, classes: int = 10, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Linear(features, width)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(*(DecoderBlock(width) for _ in range(2)))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences (B, length, features) to scores (B, classes)."""
        x = self.blocks(self.embedding(x) + self.position)
        scores: Tensor = self.head(self.norm(x)[:, -1])
        return scores
