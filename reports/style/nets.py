"""Names and order of kinds of nets on pages."""

from __future__ import annotations

from dataclasses import dataclass

from sdp_bench.bench.nets.architectures import NETWORKS
from sdp_ref.activations import ACTIVATIONS

_LAST = 100  # rank of a classifier, and of a non-linearity without a rank
_OWN = "own"  # prefix of the name of a user's net, in place of an activation


@dataclass(frozen=True)
class NetKind:
    """Nets of one non-linearity and depth, an image classifier, or a user's net.

    `activation` is stored in records: the name of the non-linearity with its parameters, or of the
    classifier. `depth` is the number of hidden layers.
    """

    activation: str
    depth: int

    @property
    def label(self) -> str:
        """Name for readers: ``4 ReLU layers``, or the name of a classifier or of a user's net."""
        if self.is_classifier:
            return NETWORKS[self.activation].title
        kind, _, name = self.activation.partition(":")
        if kind == _OWN:
            return name
        return f"{self.depth} {activation_label(self.activation)} layer{'' if self.depth == 1 else 's'}"

    @property
    def family(self) -> str:
        """Building block of a classifier, such as attention or convolution; empty for other nets."""
        return NETWORKS[self.activation].family if self.is_classifier else ""

    @property
    def is_classifier(self) -> bool:
        """Whether this is a classifier of images or sequences, evaluated on their test split."""
        return self.activation in NETWORKS


def activation_label(activation: str) -> str:
    name, _, parameters = activation.partition(":")
    if name in NETWORKS:
        return NETWORKS[name].title
    label = ACTIVATIONS.written(name, "label", str) if name in ACTIVATIONS else name
    return f"{label} ({parameters})" if parameters else label


def activation_rank(activation: str) -> int:
    name = activation.partition(":")[0]
    return ACTIVATIONS.written(name, "rank", int) if name in ACTIVATIONS else _LAST
