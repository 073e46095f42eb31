"""ConvNeXt."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ChannelNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """A 7x7 convolution per channel, LayerNorm, two layers across channels, and a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = ChannelNorm(width)
        self.expand = nn.Conv2d(width, 4 * width, 1)
        self.gelu = nn.GELU()
        self.contract = nn.Conv2d(4 * width, width, 1)
        self.scale = nn.Parameter(torch.full((width, 1, 1), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.contract(self.gelu(self.expand(self.norm(self.depthwise(x)))))
        z: Tensor = x + self.scale * y
        return z


class ConvNeXt(nn.Module):
    """ConvNeXt (Liu et al. 2022) with two stages of one block each, for small images.

    `width` is the number of channels of the first stage; the second has twice as many.
    """

    def __init__(self, channels: int = 1, classes: int = 10, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 4, stride=4), ChannelNorm(width))
        self.stage1 = ConvNeXtBlock(width)
        self.downsample = nn.Sequential(ChannelNorm(width), nn.Conv2d(width, 2 * width, 2, stride=2))
        self.stage2 = ConvNeXtBlock(2 * width)
        self.norm = nn.LayerNorm(2 * width)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage2(self.downsample(self.stage1(self.stem(x))))
        scores: Tensor = self.head(self.norm(x.mean((2, 3))))
        return scores
