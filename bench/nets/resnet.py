"""ResNets."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al. 2016, figure 2), as in torchvision."""

    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, planes, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu2 = nn.ReLU()
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels != planes:
            projection = nn.Conv2d(channels, planes, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(planes))

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, H, W) to (B, planes, H / stride, W / stride)."""
        y = self.relu1(self.bn1(self.conv1(x)))
        z: Tensor = self.relu2(self.bn2(self.conv2(y)) + self.downsample(x))
        return z


class ResNet(nn.Module):
    """ResNet (He et al. 2016) of basic blocks for small images, by default ResNet-18.

    `blocks` is the number of blocks per stage; each stage has twice the channels and half the height and
    width of the previous one. The stem is one 3x3 convolution of stride 1 or, with `max_pool`, torchvision's:
    7x7 with stride 2, and 3x3 max-pooling with stride 2. All other layers and the names of weights are
    torchvision's.
    """

    def __init__(
        self,
        channels: int = 3,
        classes: int = 10,
        width: int = 64,
        *,
        blocks: tuple[int, ...] = (2, 2, 2, 2),
        max_pool: bool = False,
    ) -> None:
        super().__init__()
        size, stride = (7, 2) if max_pool else (3, 1)
        self.conv1 = nn.Conv2d(channels, width, size, stride, padding=size // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if max_pool else nn.Identity()
        self.stages = [f"layer{number}" for number in range(1, len(blocks) + 1)]
        before = planes = width
        for number, (name, count) in enumerate(zip(self.stages, blocks, strict=True)):
            planes = width * 2**number
            self.add_module(name, _stage(before, planes, 2 if number else 1, count))
            before = planes
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(planes, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, H, W) to scores (B, classes)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for name in self.stages:
            x = getattr(self, name)(x)
        scores: Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return scores


def _stage(channels: int, planes: int, stride: int, blocks: int) -> nn.Sequential:
    others = (BasicBlock(planes, planes, 1) for _ in range(blocks - 1))
    return nn.Sequential(BasicBlock(channels, planes, stride), *others)
