"""One fully connected classifier with a law introduced at one layer, at one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sdp_bench.bench.experiments.replicates import Number
from sdp_bench.bench.nets.training import numerics
from sdp_bench.bench.studies.classifiers import ClassifierGroup, Model, Objective
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

_ROWS = 2000
_STEP = 0.025  # s per batch, one thread
_FIXED = 1.0  # s, to read the images


@torch.no_grad()
@numerics()
def accuracy(model: Model, pixels: Tensor, labels: Tensor) -> float:
    """Return the share of images, shape (N, C, H, W), uint8, classified correctly by the net's own value.

    The net's own value is the location of the law. `labels` has shape (N,).
    """
    device = next(model.net.parameters()).device
    predicted = [model.net(rows.to(device).float() / 255).argmax(1).cpu() for rows in pixels.split(_ROWS)]
    return float((torch.cat(predicted) == labels).double().mean())


@dataclass(frozen=True, eq=False, kw_only=True)
class IntroductionGroup(ClassifierGroup):
    """A layer, a scale and a seed."""

    network: ClassVar[str] = "mlp"

    @property
    def seconds(self) -> float:
        return _FIXED + self.batches * _STEP

    def numbers(self, seed: int, methods: Sequence[str]) -> Iterator[Number]:
        images = self.images
        share = accuracy(self.model(images, seed), *images.tests)
        for method in methods:
            yield method, "accuracy", share, None
