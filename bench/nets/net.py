"""A common interface to fully connected nets, classifiers and the user's nets."""

from __future__ import annotations

from ..datasets import dataset
from ..datasets.base import (
    LabelledExamples,
    LabelledTable,
    SplitClassification,
    TabularClassification,
)
from . import storage
from .architectures import ClassifierArchitecture
from .classifiers import TrainedClassifier
from .fully_connected import TrainedNet
from .own.net import OwnNet

Net = TrainedNet | TrainedClassifier | OwnNet


def net_from_bytes(content: bytes, source: str) -> Net:
    """Inverse of ``to_bytes`` for any kind of net; a ValueError for any other content."""
    kinds: tuple[type[Net], ...] = (TrainedNet, TrainedClassifier, OwnNet)
    for kind in kinds:
        try:
            return kind.from_bytes(content, source)
        except ValueError as error:
            reason = error
    raise reason


def inputs_of(net: Net) -> LabelledTable | LabelledExamples:
    """Return the possible inputs of a net: all rows of its data set (the test split), or its own inputs."""
    if isinstance(net, OwnNet):
        return net.data
    if isinstance(net, TrainedClassifier):
        return dataset(net.recipe.dataset, SplitClassification).load("test")
    return dataset(net.recipe.dataset, TabularClassification).load(net.recipe.features)


def best_classifier(
    architecture: ClassifierArchitecture, net_source: str = "trained"
) -> TrainedClassifier | None:
    """Return the classifier of an architecture with the highest test accuracy, or None.

    Committed classifiers take precedence, because their weights are equal on every machine; with "committed"
    only these are considered. Damaged ones, and those of other versions, are skipped with a warning.
    """
    folders = {"committed": storage.COMMITTED}
    if net_source == "trained":
        folders["cache"] = storage.cache_folder()
    for source, folder in folders.items():
        paths = sorted(folder.glob(f"*-{architecture.name}-*.safetensors"))
        nets = [TrainedClassifier.load(path, source) for path in paths]
        if candidates := [net for net in nets if net and net.architecture == architecture]:
            return max(candidates, key=lambda net: net.accuracy)
    return None
