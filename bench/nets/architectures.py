"""The architectures of the suites: fully connected nets of constant hidden width, and classifiers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sdp_ref.activations import ACTIVATIONS, activation
from sdp_ref.errors import not_found
from sdp_ref.lazy import deferred

if TYPE_CHECKING:
    from torch import nn

zoo = deferred("sdp_bench.bench.nets.zoo")  # imports torch


PARAMETERS: dict[str, dict[str, float]] = {"leaky_relu": {"negative_slope": 0.1}}
"""Parameters of activations that differ from torch's defaults, as in the paper's nets."""


@dataclass(frozen=True)
class Architecture:
    """A fully connected net with `depth` hidden layers, each followed by the activation.

    `activation` is a key of `sdp_ref.activations.ACTIVATIONS`; an unknown one, or a size that is not
    positive, raises a ValueError.
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
        return (self.inputs, *[self.width] * self.depth, self.outputs)

    @property
    def label(self) -> str:
        """Widths as in the paper: ``4-100-100-3``."""
        return "-".join(map(str, self.widths))

    def build(self) -> nn.Sequential:
        """Return a net of this architecture, with torch's initial weights."""
        from torch import nn

        layers: list[nn.Module] = []
        for n, m in zip(self.widths[:-1], self.widths[1:], strict=True):
            layers += [nn.Linear(n, m), self.nonlinearity()]
        return nn.Sequential(*layers[:-1]).eval()

    def nonlinearity(self) -> nn.Module:
        return activation(self.activation, **PARAMETERS.get(self.activation, {})).build()


class _Classifier:
    """What classifiers of images and of sequences have in common."""

    name: str
    classes: int
    width: int

    def _check(self, networks: Mapping[str, Any], *sizes: int) -> None:
        if self.name not in networks:
            raise ValueError(not_found("network", self.name, networks))
        if min(*sizes, self.classes, self.width) < 1:
            raise ValueError(f"sizes must be positive, got {self}")

    @property
    def activation(self) -> str:
        """The network's name: like an activation, it determines which rules have a formula."""
        return self.name

    @property
    def depth(self) -> int:
        """Number of layers with weights on the longest path; a recurrent layer counts once."""
        return NETWORKS[self.name].depth

    def build(self, seed: int = 0) -> nn.Module:
        """Return a net of this architecture in evaluation mode; `seed` determines its initial weights."""
        return NETWORKS[self.name].build(self, seed)


@dataclass(frozen=True)
class ImageArchitecture(_Classifier):
    """An image classifier, one of `IMAGE_NETWORKS`.

    Images are square, with `size` pixels a side. `width` is the number of channels of the first convolution
    (later layers have multiples of it), or the size of a token. An unknown network, or a size that is not
    positive, raises a ValueError.
    """

    name: str = "resnet18"
    channels: int = 3
    size: int = 32
    classes: int = 10
    width: int = 64

    def __post_init__(self) -> None:
        self._check(IMAGE_NETWORKS, self.channels, self.size)

    @property
    def event(self) -> tuple[int, ...]:
        return (self.channels, self.size, self.size)

    @property
    def label(self) -> str:
        """Short description: ``resnet18 3x32x32 to 10``, and the width unless it is 64."""
        width = "" if self.width == 64 else f", width {self.width}"
        return f"{self.name} {self.channels}x{self.size}x{self.size} to {self.classes}{width}"


@dataclass(frozen=True)
class SequenceArchitecture(_Classifier):
    """A classifier of sequences, one of `SEQUENCE_NETWORKS`.

    Sequences have `length` steps of `features` numbers, and `width` is the size of the state or of a token.
    An unknown network, or a size that is not positive, raises a ValueError.
    """

    name: str
    length: int = 8
    features: int = 2
    classes: int = 10
    width: int = 16

    def __post_init__(self) -> None:
        self._check(SEQUENCE_NETWORKS, self.length, self.features)

    @property
    def event(self) -> tuple[int, ...]:
        return (self.length, self.features)

    @property
    def label(self) -> str:
        """Short description: ``gru 8x2 to 10, width 16``."""
        return f"{self.name} {self.length}x{self.features} to {self.classes}, width {self.width}"


ClassifierArchitecture = ImageArchitecture | SequenceArchitecture


def network_of(name: str) -> Network[Any]:
    """Return the network with this name; a ValueError lists the available ones."""
    if name not in NETWORKS:
        raise ValueError(not_found("network", name, NETWORKS))
    return NETWORKS[name]


def architecture_of(network: str, event: tuple[int, ...], classes: int = 10) -> ClassifierArchitecture:
    """Return the project's default architecture of a network for inputs of a shape.

    `event` is (channels, size, size) for images and (length, features) for sequences. An unknown network, or
    one that does not accept such inputs, raises a ValueError.
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


def resnet18(classes: int = 10, *, channels: int = 3, width: int = 64, seed: int = 0) -> nn.Module:
    """Return a ResNet-18 for small images, in evaluation mode; 11 173 962 parameters by default.

    It maps images (B, channels, H, W) to scores (B, classes). Initial weights follow torchvision
    (convolutions normal, by fan out) and depend on `seed` only; torch's global generator is not changed.
    """
    with _seeded(seed):
        net: nn.Module = zoo.ResNet(channels, classes, width).eval()
    return net


def cnn3(
    classes: int = 10, *, channels: int = 3, size: int = 32, width: int = 64, seed: int = 0
) -> nn.Sequential:
    """Return the paper's 3-layer CNN, in evaluation mode: 3x3 convolutions of stride 2, then a linear layer.

    It has 64 and 128 channels, maps images (B, channels, size, size) to scores (B, classes), and has 137 226
    parameters on MNIST (1x28x28) and 157 578 on CIFAR-10 (3x32x32). Initial weights are torch's and depend on
    `seed` only.

    The paper does not state the padding. It is 1 here, which halves the image as usual and gives a largest
    layer of 64x14x14 = 12 544 units on MNIST. The paper puts the cost of DVIA, which it takes to be linear in
    the largest layer, at "over 12 500" passes there; without padding the largest layer has 10 816 units.
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


ArchitectureT = TypeVar("ArchitectureT")


@dataclass(frozen=True)
class Network(Generic[ArchitectureT]):
    """A kind of classifier."""

    # returns a net of an architecture, with initial weights given by a seed
    build: Callable[[ArchitectureT, int], nn.Module]
    title: str  # display name
    family: str  # main building block: "attention", "convolution", ...
    depth: int  # layers with weights on the longest path
    width: int = 64  # the project's default width; see `ImageArchitecture`
    seconds: float = 5e-5  # approximate time (s) of a forward pass of one input
    # approximate time (s) of a rule with full covariances for one input; 0 if no such rule exists
    covariance_seconds: float = 0.0
    # fields of its recipe that differ from the project's, and further ones for a few minutes on a CPU
    training: Mapping[str, Any] = field(default_factory=dict)
    short: Mapping[str, Any] = field(default_factory=dict)


def _with_seed(
    build: Callable[[ArchitectureT], nn.Module],
) -> Callable[[ArchitectureT, int], nn.Module]:
    """Return a builder of nets in evaluation mode whose initial weights depend on a seed."""

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
        _with_seed(lambda a: zoo.ResNet(a.channels, a.classes, a.width, max_pool=True)),
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
    "vit": Network(
        _with_seed(lambda a: zoo.ViT(a.channels, a.size, a.classes, a.width)),
        "ViT",
        "attention",
        10,
        width=32,
        covariance_seconds=5.0,
        **_MINUTES,
    ),
    "mixer": Network(
        _with_seed(lambda a: zoo.Mixer(a.channels, a.size, a.classes, a.width)),
        "MLP-Mixer",
        "mixing MLPs",
        10,
        width=32,
        covariance_seconds=8.0,
        **_MINUTES,
    ),
    "convnext": Network(
        _with_seed(lambda a: zoo.ConvNeXt(a.channels, a.classes, a.width)),
        "ConvNeXt",
        "convolution",
        9,
        width=16,
        covariance_seconds=30.0,
        **_MINUTES,
    ),
    "resnet8": Network(
        _with_seed(lambda a: zoo.ResNet(a.channels, a.classes, a.width, blocks=(1, 1, 1), max_pool=True)),
        "ResNet-8 with max-pool",
        "convolution",
        8,
        width=8,
        covariance_seconds=8.0,
        **_MINUTES,
    ),
}

SEQUENCE_NETWORKS: dict[str, Network[SequenceArchitecture]] = {
    "gru": Network(
        _with_seed(lambda a: zoo.GRUClassifier(a.features, a.classes, a.width)),
        "GRU",
        "recurrence",
        2,
        width=16,
        covariance_seconds=3.0,
        **_MINUTES,
    ),
    "decoder": Network(
        _with_seed(lambda a: zoo.Decoder(a.features, a.length, a.classes, a.width)),
        "Causal decoder",
        "attention",
        10,
        width=16,
        covariance_seconds=10.0,
        **_MINUTES,
    ),
}
NETWORKS: Mapping[str, Network[Any]] = {**IMAGE_NETWORKS, **SEQUENCE_NETWORKS}


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the CPU generator during the block, and restore its state afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
