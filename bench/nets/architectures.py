"""The nets of the suites: fully connected ones of equal hidden width, and image classifiers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sdp_ref.activations import ACTIVATIONS, activation

if TYPE_CHECKING:
    from torch import nn

    from sdp_bench.bench.nets.resnet import ResNet

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
        Channels of the first convolution, the others being multiples of it, or of a token.

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
        return IMAGE_NETWORKS[self.name].depth

    @property
    def event(self) -> tuple[int, ...]:
        """Shape of one image."""
        return (self.channels, self.size, self.size)

    @property
    def label(self) -> str:
        """In few words: ``resnet18 3x32x32 to 10``, and the width where it is not 64."""
        width = "" if self.width == 64 else f", width {self.width}"
        return f"{self.name} {self.channels}x{self.size}x{self.size} to {self.classes}{width}"

    def build(self, seed: int = 0) -> nn.Module:
        """A net of this architecture in evaluation mode, with initial weights drawn by `seed`."""
        return IMAGE_NETWORKS[self.name].build(self, seed)


@dataclass(frozen=True)
class SequenceArchitecture:
    """A classifier of sequences, one of :data:`SEQUENCE_NETWORKS`.

    Parameters
    ----------
    name : str
    length, features : int
        Steps, and numbers in each.
    classes : int
    width : int
        Of the state, or of a token.

    Raises
    ------
    ValueError
        If the network is unknown or a size is not positive.
    """

    name: str
    length: int = 8
    features: int = 2
    classes: int = 10
    width: int = 16

    def __post_init__(self) -> None:
        if self.name not in SEQUENCE_NETWORKS:
            raise ValueError(f"unknown network '{self.name}'; choose from {', '.join(SEQUENCE_NETWORKS)}")
        if min(self.length, self.features, self.classes, self.width) < 1:
            raise ValueError(f"sizes must be positive, got {self}")

    @property
    def activation(self) -> str:
        """The network itself, as for images."""
        return self.name

    @property
    def depth(self) -> int:
        """Layers with weights on the longest way through, a recurrent one counted once."""
        return SEQUENCE_NETWORKS[self.name].depth

    @property
    def event(self) -> tuple[int, ...]:
        """Shape of one sequence."""
        return (self.length, self.features)

    @property
    def label(self) -> str:
        """In few words: ``gru 8x2 to 10, width 16``."""
        return f"{self.name} {self.length}x{self.features} to {self.classes}, width {self.width}"

    def build(self, seed: int = 0) -> nn.Module:
        """A net of this architecture in evaluation mode, with initial weights drawn by `seed`."""
        return SEQUENCE_NETWORKS[self.name].build(self, seed)


ClassifierArchitecture = ImageArchitecture | SequenceArchitecture


def network_of(name: str) -> Network[Any]:
    """Network by name.

    Raises
    ------
    ValueError
        If there is none; the message lists those that there are.
    """
    if name not in NETWORKS:
        raise ValueError(f"unknown network '{name}'; choose from {', '.join(NETWORKS)}")
    return NETWORKS[name]


def architecture_of(network: str, event: tuple[int, ...], classes: int = 10) -> ClassifierArchitecture:
    """The project's own size of a network for inputs of a shape.

    Parameters
    ----------
    network : str
        One of :data:`NETWORKS`.
    event : tuple of int
        (channels, size, size) of images, (length, features) of sequences.
    classes : int

    Raises
    ------
    ValueError
        If there is no such network, or it does not take such inputs.
    """
    known = network_of(network)
    if (len(event) == 2) != (network in SEQUENCE_NETWORKS):
        raise ValueError(f"{known.title} does not take inputs of shape {event}")
    kind: type[ClassifierArchitecture] = SequenceArchitecture if len(event) == 2 else ImageArchitecture
    return kind(network, event[0], event[1], classes, known.width)


def architecture_from(values: Mapping[str, Any]) -> ClassifierArchitecture:
    """Inverse of ``dataclasses.asdict``."""
    kind: type[ClassifierArchitecture] = SequenceArchitecture if "length" in values else ImageArchitecture
    return kind(**values)


def resnet18(classes: int = 10, *, channels: int = 3, width: int = 64, seed: int = 0) -> ResNet:
    """ResNet-18 for small images, in evaluation mode; 11 173 962 parameters by default.

    Initial weights are torchvision's (convolutions normal, by fan out). `seed` alone decides them;
    torch's global generator is left as it was.

    Returns
    -------
    ResNet
        From images (B, channels, H, W) to scores (B, classes).
    """
    from sdp_bench.bench.nets.resnet import ResNet

    with _seeded(seed):
        return ResNet(channels, classes, width).eval()


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


def _resnet18_max_pool(architecture: ImageArchitecture) -> nn.Module:
    from sdp_bench.bench.nets.resnet import ResNet

    a = architecture
    return ResNet(a.channels, a.classes, a.width, max_pool=True)


def _resnet8(architecture: ImageArchitecture) -> nn.Module:
    from sdp_bench.bench.nets.resnet import ResNet

    a = architecture
    return ResNet(a.channels, a.classes, a.width, blocks=(1, 1, 1), max_pool=True)


def _vit(architecture: ImageArchitecture) -> nn.Module:
    from sdp_bench.bench.nets.transformers import ViT

    a = architecture
    return ViT(a.channels, a.size, a.classes, a.width)


def _mixer(architecture: ImageArchitecture) -> nn.Module:
    from sdp_bench.bench.nets.mixer import Mixer

    a = architecture
    return Mixer(a.channels, a.size, a.classes, a.width)


def _convnext(architecture: ImageArchitecture) -> nn.Module:
    from sdp_bench.bench.nets.convnext import ConvNeXt

    a = architecture
    return ConvNeXt(a.channels, a.classes, a.width)


def _gru(architecture: SequenceArchitecture) -> nn.Module:
    from sdp_bench.bench.nets.recurrent import GRUClassifier

    a = architecture
    return GRUClassifier(a.features, a.classes, a.width)


def _decoder(architecture: SequenceArchitecture) -> nn.Module:
    from sdp_bench.bench.nets.transformers import Decoder

    a = architecture
    return Decoder(a.features, a.length, a.classes, a.width)


ArchitectureT = TypeVar("ArchitectureT")


@dataclass(frozen=True)
class Network(Generic[ArchitectureT]):
    """A kind of classifier.

    Attributes
    ----------
    build : callable
        A net of an architecture, with initial weights drawn by a seed.
    title : str
        For people.
    family : str
        What it is made of: "attention", "convolution", ...
    depth : int
        Layers with weights on the longest way through.
    width : int
        What the project takes: channels of the first convolution, the others being multiples of it.
    seconds : float
        A forward pass of one input takes (s), about.
    covariance_seconds : float
        A rule that takes whole covariances through it takes for one input (s), about; 0 if none can.
    training, short : mapping of str
        Fields in which its recipe departs from the project's, and further ones for a CPU and minutes.
    """

    build: Callable[[ArchitectureT, int], nn.Module]
    title: str
    family: str
    depth: int
    width: int = 64
    seconds: float = 5e-5
    covariance_seconds: float = 0.0
    training: Mapping[str, Any] = field(default_factory=dict)
    short: Mapping[str, Any] = field(default_factory=dict)


def _with_seed(
    build: Callable[[ArchitectureT], nn.Module],
) -> Callable[[ArchitectureT, int], nn.Module]:
    """Builder whose draws a seed decides, of nets in evaluation mode."""

    def seeded(architecture: ArchitectureT, seed: int) -> nn.Module:
        with _seeded(seed):
            return build(architecture).eval()

    return seeded


_ADAM = {"optimizer": "adam", "momentum": 0.0, "weight_decay": 0.0}
_MINUTES: dict[str, Any] = {
    "training": {**_ADAM, "learning_rate": 3e-3, "epochs": 10},
    "short": {"epochs": 3},
}

IMAGE_NETWORKS: dict[str, Network[ImageArchitecture]] = {
    "resnet18": Network(
        lambda a, seed: resnet18(a.classes, channels=a.channels, width=a.width, seed=seed),
        "ResNet-18",
        "convolution",
        18,
        seconds=0.02,
        short={"epochs": 5, "precision": "bfloat16"},
    ),
    "resnet18_max_pool": Network(
        _with_seed(_resnet18_max_pool),
        "ResNet-18 with max-pool",
        "convolution",
        18,
        seconds=0.003,
        short={"epochs": 40},
    ),
    "cnn3": Network(
        lambda a, seed: cnn3(a.classes, channels=a.channels, size=a.size, width=a.width, seed=seed),
        "Three-layer CNN",
        "convolution",
        3,
        seconds=0.0005,
        training={
            **_ADAM,
            "learning_rate": 1e-3,
            "schedule": "constant",
            "warmup": 0.0,
            "augmentation": "none",
        },
        short={"epochs": 10},
    ),
    "vit": Network(_with_seed(_vit), "ViT", "attention", 10, width=32, covariance_seconds=5.0, **_MINUTES),
    "mixer": Network(
        _with_seed(_mixer), "MLP-Mixer", "mixing MLPs", 10, width=32, covariance_seconds=8.0, **_MINUTES
    ),
    "convnext": Network(
        _with_seed(_convnext), "ConvNeXt", "convolution", 9, width=16, covariance_seconds=30.0, **_MINUTES
    ),
    "resnet8": Network(
        _with_seed(_resnet8),
        "ResNet-8 with max-pool",
        "convolution",
        8,
        width=8,
        covariance_seconds=8.0,
        **_MINUTES,
    ),
}

SEQUENCE_NETWORKS: dict[str, Network[SequenceArchitecture]] = {
    "gru": Network(_with_seed(_gru), "GRU", "recurrence", 2, width=16, covariance_seconds=3.0, **_MINUTES),
    "decoder": Network(
        _with_seed(_decoder), "Causal decoder", "attention", 10, width=16, covariance_seconds=10.0, **_MINUTES
    ),
}
NETWORKS: Mapping[str, Network[Any]] = {**IMAGE_NETWORKS, **SEQUENCE_NETWORKS}


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Let `seed` decide what is drawn on the CPU inside; the global generator is put back."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
