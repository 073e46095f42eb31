"""Kinds of nets, as pages name and order them."""

from __future__ import annotations

from dataclasses import dataclass

from sdp_bench.bench.nets.architectures import NETWORKS
from sdp_ref.activations import ACTIVATIONS

_LAST = 100  # rank of what is no non-linearity, as of one that has none of its own
_OWN = "own"  # what a user's net has before its name, in the place of an activation


@dataclass(frozen=True)
class NetKind:
    """Nets of one non-linearity and depth, an image classifier, or a user's net.

    Attributes
    ----------
    activation : str
        As records have it: name of the non-linearity, with its parameters, or of the image classifier.
    depth : int
        Hidden layers.
    """

    activation: str
    depth: int

    @property
    def label(self) -> str:
        """For people: ``4 ReLU layers``, or the name of an image classifier or a user's net."""
        if self.is_classifier:
            return NETWORKS[self.activation].title
        kind, _, name = self.activation.partition(":")
        if kind == _OWN:
            return name
        return f"{self.depth} {activation_label(self.activation)} layer{'' if self.depth == 1 else 's'}"

    @property
    def family(self) -> str:
        """What a classifier is made of, attention or convolution say; empty for other nets."""
        return NETWORKS[self.activation].family if self.is_classifier else ""

    @property
    def is_classifier(self) -> bool:
        """Whether it is a classifier of images or sequences, whose accuracy is that on their test split."""
        return self.activation in NETWORKS


def activation_label(activation: str) -> str:
    """Name of a non-linearity, or of a classifier, for people."""
    name, _, parameters = activation.partition(":")
    if name in NETWORKS:
        return NETWORKS[name].title
    label = ACTIVATIONS.written(name, "label", str) if name in ACTIVATIONS else name
    return f"{label} ({parameters})" if parameters else label


def activation_rank(activation: str) -> int:
    """Rank of a non-linearity in the order that tables use."""
    name = activation.partition(":")[0]
    return ACTIVATIONS.written(name, "rank", int) if name in ACTIVATIONS else _LAST
