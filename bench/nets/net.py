"""Nets of all kinds, fully connected ones, image classifiers and the user's own, behind one face."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from sdp_bench.bench.datasets import dataset
from sdp_bench.bench.datasets.base import (
    LabelledExamples,
    LabelledTable,
    SplitClassification,
    TabularClassification,
)
from sdp_bench.bench.nets import storage
from sdp_bench.bench.nets.architectures import ClassifierArchitecture
from sdp_bench.bench.nets.classifiers import TrainedClassifier, taken
from sdp_bench.bench.nets.fully_connected import TrainedNet
from sdp_bench.bench.nets.own.net import OwnNet
from sdp_bench.bench.results.record import StoredNet

Net = TrainedNet | TrainedClassifier | OwnNet


def net_from_bytes(content: bytes, source: str) -> Net:
    """Inverse of ``to_bytes``, whichever kind of net it is.

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


def inputs_of(net: Net) -> LabelledTable | LabelledExamples:
    """What a net is asked about: the table or the test split of its data set, or what came with it.

    Returns
    -------
    LabelledTable or LabelledExamples
        All rows: which of them are asked about is the experiment's choice.

    Raises
    ------
    DataMissingError
        If the images are not there.
    """
    if isinstance(net, OwnNet):
        return net.data
    if isinstance(net, TrainedClassifier):
        return dataset(net.recipe.dataset, SplitClassification).load("test")
    return dataset(net.recipe.dataset, TabularClassification).load(net.recipe.features)


def kept_classifiers(network: str, source: str) -> list[TrainedClassifier]:
    """Classifiers of a network that are at hand.

    Parameters
    ----------
    network : str
        Its name.
    source : {"committed", "cache"}
        Those that come with the package, or those that were trained here.

    Returns
    -------
    list of TrainedClassifier
        One that is damaged, or written by another version, is told and left out.
    """
    folder = storage.COMMITTED if source == "committed" else storage.cache_folder()
    paths = sorted(folder.glob(f"*-{network}-*.safetensors"))
    nets = (storage.read(path, partial(taken, source=source)) for path in paths)
    return [net for net in nets if net]


def best_classifier(
    architecture: ClassifierArchitecture, net_source: str = "trained"
) -> TrainedClassifier | None:
    """The classifier of an architecture with the highest accuracy on the test split.

    Parameters
    ----------
    architecture : ClassifierArchitecture
    net_source : {"trained", "committed"}
        "committed" are those alone that come with the package. They go before the cache in any case: their
        weights are the same on every machine.

    Returns
    -------
    TrainedClassifier or None
        None if there is none.
    """
    for source in ("committed", "cache") if net_source == "trained" else ("committed",):
        kept = kept_classifiers(architecture.name, source)
        if found := [net for net in kept if net.architecture == architecture]:
            return max(found, key=lambda net: net.accuracy)
    return None
