"""The architectures of the experiments: fully connected nets of constant hidden width, and classifiers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

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
        """Sizes of input, hidden layers and output."""
        return (self.inputs,) + (self.width,) * self.depth + (self.outputs,)

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

    def __post_init__(self) -> None:
        networks = SEQUENCE_NETWORKS if isinstance(self, SequenceArchitecture) else IMAGE_NETWORKS
        if self.name not in networks:
            raise ValueError(not_found("network", self.name, networks))
        if min(*self.event, self.classes, self.width) < 1:
            raise ValueError(f"sizes must be positive, got {self}")

    @property
    def event(self) -> tuple[int, ...]:
        """Shape of an input."""
        raise NotImplementedError

    @property
    def activation(self) -> str:
        """The network's name: like an activation, it determines which rules have a formula."""
        return self.name

    @property
    def depth(self) -> int:
        """Number of layers with weights on the longest path; a recurrent layer counts once."""
        return NETWORKS[self.name].depth

    def build(self, seed: int = 0) -> nn.Module:
        """Return a net of this architecture in evaluation mode; `seed` determines its initial weights.

        torch's global generator is not changed.
        """
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return NETWORKS[self.name].build(self).eval()


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

    @property
    def event(self) -> tuple[int, ...]:
        return (self.length, self.features)

    @property
    def label(self) -> str:
        """Short description: ``gru 8x2 to 10, width 16``."""
        return f"{self.name} {self.length}x{self.features} to {self.classes}, width {self.width}"


ClassifierArchitecture = ImageArchitecture | SequenceArchitecture


def network_of(name: str) -> Network:
    """Return the network with this name; a ValueError lists the available ones."""
    if name not in NETWORKS:
        raise ValueError(not_found("network", name, NETWORKS))
    return NETWORKS[name]


def architecture_of(network: str, event: tuple[int, ...], classes: int = 10) -> ClassifierArchitecture:
    """Return the project's default architecture of a network for inputs of a shape.

    `event` is (channels, size, size) for images and (length, features) for sequences. An unknown network, or
    one that does not accept such inputs, raises a ValueError.
    """
    known, is_sequence = network_of(network), len(event) == 2
    if is_sequence != (network in SEQUENCE_NETWORKS):
        raise ValueError(f"{known.title} does not take inputs of shape {event}")
    kind = SequenceArchitecture if is_sequence else ImageArchitecture
    return kind(network, event[0], event[1], classes, known.width)


@dataclass(frozen=True)
class Network:
    """A kind of classifier."""

    build: Callable[[Any], nn.Module]  # returns a net of an architecture
    title: str  # display name
    family: str  # main building block: "attention", "convolution", ...
    depth: int  # layers with weights on the longest path
    width: int = 64  # the project's default width; see `ImageArchitecture`
    # approximate time (s) of a rule with full covariances for one input; 0 if no such rule exists
    covariance_seconds: float = 0.0
    seconds: float = 5e-5  # approximate time (s) of a forward pass of one input
    # fields of its recipe that differ from the project's, and further ones for a few minutes on a CPU
    training: Mapping[str, Any] = field(default_factory=dict)
    short: Mapping[str, Any] = field(default_factory=dict)


_ADAM = {"optimizer": "adam", "momentum": 0.0, "weight_decay": 0.0}

_small = partial(Network, training={**_ADAM, "learning_rate": 3e-3, "epochs": 10}, short={"epochs": 3})
"""Return a network that is trained in minutes on a CPU."""

IMAGE_NETWORKS: dict[str, Network] = {
    "resnet18": Network(
        lambda a: zoo.ResNet(a.channels, a.classes, a.width),
        "ResNet-18",
        "convolution",
        18,
        seconds=0.02,
        short={"epochs": 5, "precision": "bfloat16"},
    ),
    "resnet18_max_pool": Network(
        lambda a: zoo.ResNet(a.channels, a.classes, a.width, max_pool=True),
        "ResNet-18 with max-pool",
        "convolution",
        18,
        seconds=0.003,
        short={"epochs": 40},
    ),
    "cnn3": Network(
        lambda a: zoo.cnn3(a.channels, a.size, a.classes, a.width),
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
    "vit": _small(lambda a: zoo.ViT(a.channels, a.size, a.classes, a.width), "ViT", "attention", 10, 32, 5.0),
    "mixer": _small(
        lambda a: zoo.Mixer(a.channels, a.size, a.classes, a.width), "MLP-Mixer", "MLP-Mixer", 10, 32, 8.0
    ),
    "convnext": _small(
        lambda a: zoo.ConvNeXt(a.channels, a.classes, a.width), "ConvNeXt", "convolution", 9, 16, 30.0
    ),
    "resnet8": _small(
        lambda a: zoo.ResNet(a.channels, a.classes, a.width, blocks=(1, 1, 1), max_pool=True),
        "ResNet-8 with max-pool",
        "convolution",
        8,
        8,
        8.0,
    ),
}

SEQUENCE_NETWORKS: dict[str, Network] = {
    "gru": _small(
        lambda a: zoo.GRUClassifier(a.features, a.classes, a.width), "GRU", "recurrence", 2, 16, 3.0
    ),
    "decoder": _small(
        lambda a: zoo.Decoder(a.features, a.length, a.classes, a.width),
        "Causal decoder",
        "attention",
        10,
        16,
        10.0,
    ),
}
NETWORKS: Mapping[str, Network] = {**IMAGE_NETWORKS, **SEQUENCE_NETWORKS}
