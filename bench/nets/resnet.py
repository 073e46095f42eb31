"""ResNet-18 as modules of torch."""

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
        """Images of shape (B, channels, H, W) to (B, planes, H / stride, W / stride)."""
        y = self.relu1(self.bn1(self.conv1(x)))
        z: Tensor = self.relu2(self.bn2(self.conv2(y)) + self.downsample(x))
        return z


class ResNet18(nn.Module):
    """ResNet-18 (He et al. 2016) with the stem for small images.

    The stem is one 3x3 convolution of stride 1, without the max-pooling that follows torchvision's
    7x7 one; all else, and the names of the weights, are torchvision's.

    Parameters
    ----------
    channels, classes, width : int
    """

    def __init__(self, channels: int = 3, classes: int = 10, width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.layer1 = _stage(width, width, 1)
        self.layer2 = _stage(width, 2 * width, 2)
        self.layer3 = _stage(2 * width, 4 * width, 2)
        self.layer4 = _stage(4 * width, 8 * width, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Images of shape (B, channels, H, W) to scores of shape (B, classes)."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return scores


def _stage(channels: int, planes: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(channels, planes, stride), BasicBlock(planes, planes, 1))
