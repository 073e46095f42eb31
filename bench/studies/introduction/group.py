"""One fully connected classifier with a law introduced at one layer, at one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sdp_bench.bench.experiments.base import Expansion
from sdp_bench.bench.experiments.predict import Scope
from sdp_bench.bench.experiments.replicates import Number, ReplicateExperiment
from sdp_bench.bench.nets.training import accuracy_of, numerics
from sdp_bench.bench.studies.classifiers import ClassifierGroup, Objective, expanded
from sdp_ref.rules import MarginalSDP

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


@dataclass(frozen=True, eq=False, kw_only=True)
class IntroductionGroup(ClassifierGroup):
    """A layer, a scale and a seed."""

    network: ClassVar[str] = "mlp"

    @property
    def seconds(self) -> float:
        return _FIXED + self.batches * _STEP

    def numbers(self, seed: int, methods: Sequence[str]) -> Iterator[Number]:
        images = self.images
        net, pixels = self.model(images, seed).net, images.pixels.to(self.device).float() / 255
        with numerics():  # the net's own value is the location of the law
            share = accuracy_of(net, pixels, images.labels)
        for method in methods:
            yield method, "accuracy", share, None


def expand(experiment: ReplicateExperiment, scope: Scope) -> Expansion:
    return expanded(experiment, scope, IntroductionGroup, OBJECTIVES)
