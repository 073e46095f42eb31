"""The nets of the suites: fully connected ones of equal hidden width, and two image classifiers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sdp_ref.activations import ACTIVATIONS, activation

PARAMETERS: dict[str, dict[str, float]] = {"leaky_relu": {"negative_slope": 0.1}}
"""Of activations in the paper's nets, where they differ from torch's defaults."""


@dataclass(frozen=True)
class Architecture:
    """A fully connected net.

    Parameters
    ----------
    depth : int
        Number of hidden layers, each followed by the activation.
    activation : str
        One of :data:`sdp_ref.activations.ACTIVATIONS`.
    width, inputs, outputs : int

    Raises
    ------
    ValueError
        If the activation is unknown or a size is not positive.
    """

    depth: int
    activation: str = "relu"
    width: int = 100
    inputs: int = 4
    outputs: int = 3

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation '{self.activation}'; choose from {', '.join(ACTIVATIONS)}")
        if min(self.depth, self.width, self.inputs, self.outputs) < 1:
            raise ValueError(f"depth and widths must be positive, got {self}")

    @property
    def widths(self) -> tuple[int, ...]:
        """Layer widths from input to output."""
        return (self.inputs, *[self.width] * self.depth, self.outputs)

    @property
    def label(self) -> str:
        """Widths as the paper writes them, ``4-100-100-3``."""
        return "-".join(map(str, self.widths))

    def build(self) -> nn.Sequential:
        """A net of this architecture, with torch's own initial weights."""
        layers: list[nn.Module] = []
        for n, m in zip(self.widths[:-1], self.widths[1:], strict=True):
            layers += [nn.Linear(n, m), self.nonlinearity()]
        return nn.Sequential(*layers[:-1]).eval()

    def nonlinearity(self) -> nn.Module:
        """A module that applies the activation."""
        return activation(self.activation, **PARAMETERS.get(self.activation, {})).build()


@dataclass(frozen=True)
class ImageArchitecture:
    """An image classifier of one of :data:`IMAGE_NETWORKS`.

    Parameters
    ----------
    name : str
    channels, size : int
        Of the images, which are square.
    classes : int
    width : int
        Channels of the first convolution; the others are multiples of it.

    Raises
    ------
    ValueError
        If the network is unknown or a size is not positive.
    """

    name: str = "resnet18"
    channels: int = 3
    size: int = 32
    classes: int = 10
    width: int = 64

    def __post_init__(self) -> None:
        if self.name not in IMAGE_NETWORKS:
            raise ValueError(f"unknown network '{self.name}'; choose from {', '.join(IMAGE_NETWORKS)}")
        if min(self.channels, self.size, self.classes, self.width) < 1:
            raise ValueError(f"sizes must be positive, got {self}")

    @property
    def activation(self) -> str:
        """The network itself: what decides which rules have a formula, as it does for plain nets."""
        return self.name

    @property
    def depth(self) -> int:
        """Layers with weights on the longest way through."""
        return IMAGE_DEPTHS[self.name]

    @property
    def label(self) -> str:
        """In few words: ``resnet18 3x32x32 to 10``, and the width where it is not 64."""
        width = "" if self.width == 64 else f", width {self.width}"
        return f"{self.name} {self.channels}x{self.size}x{self.size} to {self.classes}{width}"

    def build(self, seed: int = 0) -> nn.Module:
        """A net of this architecture in evaluation mode, with initial weights drawn by `seed`."""
        return IMAGE_NETWORKS[self.name](self, seed)


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


def resnet18(classes: int = 10, *, channels: int = 3, width: int = 64, seed: int = 0) -> ResNet18:
    """ResNet-18 for small images, in evaluation mode; 11 173 962 parameters by default.

    Initial weights are torchvision's (convolutions normal, by fan out). `seed` alone decides them;
    torch's global generator is left as it was.

    Returns
    -------
    ResNet18
        From images (B, channels, H, W) to scores (B, classes).
    """
    with _seeded(seed):
        return ResNet18(channels, classes, width).eval()


def cnn3(
    classes: int = 10, *, channels: int = 3, size: int = 32, width: int = 64, seed: int = 0
) -> nn.Sequential:
    """The paper's 3-layer CNN, in evaluation mode: 64 and 128 channels by 3x3 steps of 2, then linear.

    137 226 parameters on MNIST (1x28x28), 157 578 on CIFAR-10 (3x32x32). The paper leaves the
    padding open; it is 1 here, which halves the image as is usual and gives a largest layer of
    64x14x14 = 12 544 units on MNIST: the paper puts DVIA, whose cost it takes to be linear in the
    largest layer, at "over 12 500" passes there (10 816 without padding). torch's own initial
    weights, decided by `seed` alone.

    Returns
    -------
    Sequential
        From images (B, channels, size, size) to scores (B, classes).
    """
    with _seeded(seed):
        side = math.ceil(math.ceil(size / 2) / 2)
        return nn.Sequential(
            nn.Conv2d(channels, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * width * side**2, classes),
        ).eval()


IMAGE_NETWORKS: dict[str, Callable[[ImageArchitecture, int], nn.Module]] = {
    "resnet18": lambda a, seed: resnet18(a.classes, channels=a.channels, width=a.width, seed=seed),
    "cnn3": lambda a, seed: cnn3(a.classes, channels=a.channels, size=a.size, width=a.width, seed=seed),
}
IMAGE_DEPTHS = {"resnet18": 18, "cnn3": 3}


def _stage(channels: int, planes: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(channels, planes, stride), BasicBlock(planes, planes, 1))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Let `seed` decide what is drawn on the CPU inside; the global generator is put back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
