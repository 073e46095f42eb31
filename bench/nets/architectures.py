"""The nets of the suites: fully connected ones of equal hidden width, and two image classifiers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_ref.activations import ACTIVATIONS, activation

if TYPE_CHECKING:
    from torch import nn

    from sdp_bench.bench.nets.resnet import ResNet18

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
        from torch import nn

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


def resnet18(classes: int = 10, *, channels: int = 3, width: int = 64, seed: int = 0) -> ResNet18:
    """ResNet-18 for small images, in evaluation mode; 11 173 962 parameters by default.

    Initial weights are torchvision's (convolutions normal, by fan out). `seed` alone decides them;
    torch's global generator is left as it was.

    Returns
    -------
    ResNet18
        From images (B, channels, H, W) to scores (B, classes).
    """
    from sdp_bench.bench.nets.resnet import ResNet18

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
    from torch import nn

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


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Let `seed` decide what is drawn on the CPU inside; the global generator is put back."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
