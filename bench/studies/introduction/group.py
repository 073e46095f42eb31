"""One fully connected classifier with a law introduced at one layer, at one scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.training import numerics
from sdp_bench.bench.studies.classifiers import (
    ClassifierGroup,
    ImageSplits,
    Model,
    Objective,
    TrainingImages,
)
from sdp_ref.rules import MarginalSDP

LAYERS = 5
WIDTH = 256
LEARNING_RATE = 1e-4
"""Adam's learning rate; the paper gives it for its robust nets and does not state one for these."""

_ROWS = 2000


class FlatImages(TrainingImages):
    """Images for a fully connected net."""

    @property
    def architecture(self) -> Architecture:
        """The paper's 784-256-256-256-256-10, for images of any size."""
        inputs = math.prod(self.pixels.shape[1:])
        return Architecture(LAYERS - 1, width=WIDTH, inputs=inputs, outputs=self.classes)

    def build(self, seed: int) -> nn.Sequential:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return nn.Sequential(nn.Flatten(), *self.architecture.build()).eval()


def _introduced(layer: int) -> Objective:
    """Return the pairwise loss of a Gaussian introduced after `layer` linear layers and activations."""
    # flattening comes first, and no activation follows the last layer
    modules = min(1 + 2 * layer, 2 * LAYERS)
    return Objective(f"layer_{layer}", MarginalSDP(), skipped=modules, learning_rate=LEARNING_RATE)


OBJECTIVES = tuple(_introduced(layer) for layer in range(LAYERS + 1))


@torch.no_grad()
@numerics()
def accuracy(model: Model, pixels: Tensor, labels: Tensor) -> float:
    """Return the share of images, shape (N, C, H, W), uint8, classified correctly by the net's own value.

    The net's own value is the location of the law. `labels` has shape (N,).
    """
    device = next(model.net.parameters()).device
    predicted = [model.net(rows.to(device).float() / 255).argmax(1).cpu() for rows in pixels.split(_ROWS)]
    return float((torch.cat(predicted) == labels).double().mean())


_STEP = 0.025  # s per batch, one thread
_FIXED = 1.0  # s, to read the images


@dataclass(frozen=True, eq=False)
class IntroductionGroup(ClassifierGroup):
    """A layer, a scale and a seed."""

    kind: ClassVar[type[TrainingImages]] = FlatImages

    @property
    def seconds(self) -> float:
        return _FIXED + self.batches * _STEP

    def numbers(
        self, images: ImageSplits, seed: int, methods: Sequence[str]
    ) -> Iterator[tuple[str, str, float, str | None]]:
        share = accuracy(self.model(images, seed), *images.tests)
        for method in methods:
            yield method, "accuracy", share, None
