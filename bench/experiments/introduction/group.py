"""One fully connected classifier with a law introduced at one layer, at one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sdp_bench.bench.experiments.classifiers import ClassifierGroup, ImageSplits
from sdp_bench.bench.methods.classifiers.training import TrainingImages
from sdp_bench.bench.methods.introduction.training import FlatImages, accuracy

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
