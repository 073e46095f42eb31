"""One classifier of digits: trained or cached, and scored on digits and letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from sdp_bench.bench.datasets.base import LabelledImages
from sdp_bench.bench.datasets.emnist import EMNIST_LETTERS
from sdp_bench.bench.datasets.mnist import MNIST
from sdp_bench.bench.errors import UserError, outside
from sdp_bench.bench.experiments.replicates import ReplicateGroup
from sdp_bench.bench.results.record import Record, Unit
from sdp_bench.bench.studies.classifiers import Objective, TrainingImages, get_model
from sdp_bench.bench.studies.selective import READINGS, SCORES
from sdp_bench.bench.studies.selective.risk_coverage import risk_coverage
from sdp_bench.bench.studies.selective.scores import OBJECTIVES, Scored, evaluate

TESTED = 10_000
"""Test digits, and test letters."""
POINTS = (*(f"{percent / 100:.2f}" for percent in range(101)),)
"""Coverages at which the risk is recorded."""

# On one thread: s per training batch, and s per scored image.
_STEPS = {
    "softmax": 0.03,
    "dirichlet": 0.7,
    "pairwise_gaussian": 0.42,
    "pairwise_marginal": 0.1,
    "pairwise_cauchy": 0.42,
}
_LAWS = {
    "softmax": 0.002,
    "dirichlet": 0.003,
    "pairwise_gaussian": 0.002,
    "pairwise_marginal": 0.0005,
    "pairwise_cauchy": 0.002,
}
_FIT = 120.0  # s, to fit certificates


@dataclass(frozen=True, eq=False)
class Images:
    """Training images, digits to predict, and letters to abstain from.

    At most `limit` images of each are used, cycling through the classes, each in a fixed shuffle. There are
    at most 10 000 test digits and equally many letters. A UserError is raised if the limit is not positive,
    labels are not digits, or all training images have the same class.
    """

    train: LabelledImages
    digits: LabelledImages
    letters: LabelledImages
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise UserError(f"images to train on must be positive, got {self.limit}")
        if self.digits.shape != self.train.shape or self.letters.shape != self.train.shape:
            shapes = ", ".join(str(part.shape) for part in (self.train, self.digits, self.letters))
            raise UserError(f"images of digits and letters must have one shape, got {shapes}")
        _ = self.problem
        if bool(((self.digits.labels < 0) | (self.digits.labels > 9)).any()):
            raise UserError("labels of the digits to test on must lie in 0..9")

    @cached_property
    def problem(self) -> TrainingImages:
        rows = self.train.in_turn(self.limit)
        return TrainingImages(self.train.pixels[rows], self.train.labels[rows])

    @cached_property
    def tested(self) -> tuple[Tensor, Tensor]:
        """Test images, digits first, and their labels; letters have label -1, which is never predicted."""
        digits, letters = self.digits.in_turn(self._half), self.letters.in_turn(self._half)
        labels = [self.digits.labels[digits], torch.full((len(letters),), -1)]
        return torch.cat([self.digits.pixels[digits], self.letters.pixels[letters]]), torch.cat(labels)

    @property
    def alphabet(self) -> str:
        rows = self.letters.in_turn(self._half)
        return "".join(chr(64 + int(label)) for label in self.letters.labels[rows].unique())

    @property
    def _half(self) -> int:
        return min(self.limit or TESTED, TESTED, len(self.digits), len(self.letters))

    @property
    def description(self) -> str:
        labels = self.tested[1]
        trained, digits, letters = len(self.problem.labels), int((labels >= 0).sum()), int((labels < 0).sum())
        return (
            f"trained on {trained} images of {self.train.description}; tested on {digits} of "
            f"{self.digits.description} and {letters} of {self.letters.description}, classes in turn; "
            f"letters {self.alphabet}"
        )


def load(limit: int | None = None) -> Images:
    """Load MNIST and the EMNIST letters; a DataMissingError if one is not available."""
    return Images(MNIST.load("train"), MNIST.load("test"), EMNIST_LETTERS.load("test"), limit)


@dataclass(frozen=True, eq=False)
class SelectiveGroup(ReplicateGroup):
    """One objective and seed: its model is trained, or taken from the cache, and scored.

    `limit`: as :class:`Images` takes it. `steps`, `tested`: of training, and images to score.
    """

    objective: Objective = field(repr=False)
    epochs: int
    limit: int | None  # as in `Images`
    # training steps, and images to score
    steps: int
    tested: int

    @property
    def scale(self) -> float | None:
        """Scale of the input noise if it is not the objective's own, else None."""
        return None if self.objective in OBJECTIVES.values() else self.objective.sigma

    def unit(self, seed: int) -> Unit:
        return Unit(
            self.replicated.key(seed),
            sigma=self.scale,
            dataset="mnist",
            objective=self.objective.name,
            seed=seed,
            design=self.replicated.text,
        )

    @property
    def title(self) -> str:
        scale = f" at {self.scale:g}" if self.scale else ""
        return f"selective {self.objective.name}{scale} seed {self.seeds[0]}"

    @property
    def seconds(self) -> float:
        name = self.objective.name
        fit = _FIT if "orthonormal_certificates" in SCORES[name] else 0.0
        return self.steps * _STEPS[name] + self.tested * _LAWS[name] + fit

    def records(self, methods: Sequence[str]) -> Iterator[Record]:
        (seed,) = self.seeds
        with outside():
            images = load(self.limit)
            pixels, labels = images.tested
            model = get_model(images.problem, self.objective, seed, self.epochs, self.device)
            scored = evaluate(model, self.objective, methods, images.problem, pixels)
        for name, metric, value, component in numbers_of(scored, labels, methods):
            yield self.record(seed, name, metric, value, component)


def numbers_of(
    scored: Scored, labels: Tensor, names: Sequence[str]
) -> Iterator[tuple[str, str, float, str | None]]:
    """Yield score, metric, value and component of each measurement of one model."""
    wrong = (scored.predicted != labels).numpy()
    accuracy = float(1 - wrong[labels.numpy() >= 0].mean())
    for name in names:
        for reading in READINGS[name]:
            curve = risk_coverage(scored.uncertainty[name, reading].numpy(), wrong)
            yield name, "rcauc", curve.area, reading or None
            if reading == READINGS[name][0]:
                for point in POINTS:
                    yield name, "risk", float(curve.at(float(point))), point
        yield name, "accuracy", accuracy, None
