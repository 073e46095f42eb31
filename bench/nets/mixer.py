"""MLP-Mixer."""

from __future__ import annotations

from torch import Tensor, nn

from sdp_bench.bench.nets.patches import GRID, Patches, mlp


class MixerBlock(nn.Module):
    """An MLP over tokens and one over channels, each after a LayerNorm and with a shortcut."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.tokens = nn.LayerNorm(width), mlp(tokens, 2 * tokens)
        self.norm2, self.channels = nn.LayerNorm(width), mlp(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).mT).mT
        z: Tensor = x + self.channels(self.norm2(x))
        return z


class Mixer(nn.Module):
    """MLP-Mixer (Tolstikhin et al. 2021) with two blocks on 4 x 4 patches.

    `width` is the size of a token; hidden layers are twice as wide as their input.
    """

    def __init__(self, channels: int = 1, size: int = 28, classes: int = 10, width: int = 32) -> None:
        super().__init__()
        self.patches = Patches(channels, size, width)
        self.blocks = nn.Sequential(*(MixerBlock(GRID**2, width) for _ in range(2)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.norm(self.blocks(self.patches(x))).mean(1))
        return scores
