"""One fully connected classifier with a law introduced at one layer, at one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from sdp_ref.rules import MarginalSDP

from ...experiments.replicates import Number, ReplicateExperiment, ReplicateGroup
from ...identity import SeedRoot
from ...nets.training import accuracy_of, numerics
from ...settings import Settings
from ..classifiers import Images, Model, Objective, batches, crossed, measured

LAYERS = 5
LEARNING_RATE = 1e-4
"""Adam's learning rate; the paper gives it for its robust nets and does not state one for these."""

OBJECTIVES = tuple(
    # flattening comes first, then each layer has two modules except the last, which has no activation
    Objective(
        f"layer_{layer}", MarginalSDP(), skipped=min(1 + 2 * layer, 2 * LAYERS), learning_rate=LEARNING_RATE
    )
    for layer in range(LAYERS + 1)
)
"""The pairwise loss of a Gaussian introduced after so many linear layers and activations."""

_STEP = 0.025  # s per batch, one thread
_FIXED = 1.0  # s, to read the images


def measure(
    model: Model,
    objective: Objective,  # noqa: ARG001
    images: Images,
    methods: Sequence[str],
    seeds: SeedRoot,  # noqa: ARG001
) -> Iterator[Number]:
    """Yield the accuracy of a model on the test images, for each method."""
    pixels = images.pixels.to(next(model.net.parameters()).device).float() / 255
    with numerics():  # the net's own value is the location of the law
        share = accuracy_of(model.net, pixels, images.labels)
    for method in methods:
        yield method, "accuracy", share, None


def groups(experiment: ReplicateExperiment, settings: Settings) -> Iterator[ReplicateGroup]:
    """Yield the groups of the study: data sets, objectives and noise scales, times seeds."""
    epochs = experiment.size(settings).epochs or 1
    for objective, images, load, fields in crossed(experiment, settings, OBJECTIVES, network="mlp"):
        numbers = partial(measured, load, objective, epochs, measure)
        seconds = _FIXED + _STEP * batches(images, epochs)
        yield from experiment.by_seed(settings, numbers, cost=seconds, **fields)
