"""Nets of all kinds, fully connected ones, image classifiers and the user's own, behind one face."""

from __future__ import annotations

from dataclasses import asdict

from sdp_bench.bench.datasets import dataset
from sdp_bench.bench.datasets.base import (
    ImageClassification,
    LabelledImages,
    LabelledTable,
    TabularClassification,
)
from sdp_bench.bench.nets import storage
from sdp_bench.bench.nets.architectures import ImageArchitecture
from sdp_bench.bench.nets.classifiers import ImageRecipe, TrainedClassifier, taken
from sdp_bench.bench.nets.fully_connected import TrainedNet
from sdp_bench.bench.nets.own.net import OwnNet
from sdp_bench.bench.results.record import StoredNet

Net = TrainedNet | TrainedClassifier | OwnNet


def net_from_bytes(content: bytes, source: str) -> Net:
    """Inverse of ``to_bytes``, whichever kind of net it is.

    Returns
    -------
    TrainedNet, TrainedClassifier or OwnNet

    Raises
    ------
    ValueError
        If `content` is no such file.
    """
    kinds: tuple[type[Net], ...] = (TrainedNet, TrainedClassifier, OwnNet)
    for kind in kinds:
        try:
            return kind.from_bytes(content, source)
        except ValueError as error:
            reason = error
    raise reason


def stored(net: Net) -> StoredNet:
    """A net as a results file keeps it."""
    architecture = net.architecture
    return StoredNet(
        net.digest,
        architecture.label,
        architecture.activation,
        architecture.depth,
        net.seed,
        net.accuracy,
        asdict(net.recipe),
        net.recipe.label,
        net.source,
        net.to_bytes(),
    )


def inputs_of(net: Net) -> LabelledTable | LabelledImages:
    """What a net is asked about: the table or the test images of its data set, or what came with it.

    Returns
    -------
    LabelledTable or LabelledImages
        All rows: which of them are asked about is the experiment's choice.

    Raises
    ------
    DataMissingError
        If the images are not there.
    """
    if isinstance(net, OwnNet):
        return net.data
    if isinstance(net.recipe, ImageRecipe):
        return dataset(net.recipe.dataset, ImageClassification).load("test")
    return dataset(net.recipe.dataset, TabularClassification).load(net.recipe.features)


def best_classifier(architecture: ImageArchitecture) -> TrainedClassifier | None:
    """Of the cached classifiers of an architecture that with the highest accuracy on the test images."""
    paths = sorted(storage.cache_folder().glob(f"*-{architecture.name}-*.safetensors"))
    # One that is damaged, or written by another version, is told and left out.
    nets = (storage.read(path, taken) for path in paths)
    found = [net for net in nets if net and net.architecture == architecture]
    return max(found, key=lambda net: net.accuracy, default=None)
