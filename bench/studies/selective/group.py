"""Models and uncertainty scores of selective prediction, and their groups of work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import torch
from torch import Tensor
from torch.distributions import Dirichlet

import sdp_ref as sr
from sdp_bench.bench.datasets.base import LabelledExamples
from sdp_bench.bench.datasets.sets import EMNIST_LETTERS, MNIST
from sdp_bench.bench.experiments.base import Expansion
from sdp_bench.bench.experiments.predict import Scope
from sdp_bench.bench.experiments.replicates import Number, ReplicateExperiment, ReplicateGroup
from sdp_bench.bench.identity import digest
from sdp_bench.bench.nets.training import numerics
from sdp_bench.bench.noise import CAUCHY, GAUSSIAN, Noise
from sdp_bench.bench.studies.classifiers import (
    BATCH,
    ClassifierGroup,
    ImageSplits,
    Model,
    Objective,
    TrainingImages,
    versions_of,
)
from sdp_bench.bench.studies.selective import (
    CERTIFICATES,
    COMBINED,
    EPOCHS,
    OTHER_SCALES,
    READINGS,
    SCALE,
    SCORES,
)
from sdp_bench.bench.studies.selective.risk_coverage import risk_coverage
from sdp_ref import losses
from sdp_ref.rules import SDP, MarginalMomentMatching, MarginalSDP, Rule
from sdp_ref.rules.base import predicted

SIGMA = 0.1
"""Standard deviation, or Cauchy scale, of the input noise under SDP, in units of pixels in [0, 1]."""
PROPAGATED = SDP()
"""Rule for models that were trained without one."""
STABLE = MarginalSDP()
"""Rule for Cauchy noise of models trained with marginal moment matching, which does not support it: also
without covariances, and exact on linear layers.
"""
CERTIFIED = 20_000
"""Most training images for fitting certificates: features of one take 25 kB, and 5 times that in the fit."""

_ROWS = 250
_TINY = 1e-300  # a concentration of 0 has no entropy; every positive softmax in float64 is larger than this


@dataclass(frozen=True, eq=False)
class Scored:
    """Predictions and uncertainties of a classifier."""

    # shape (N,), int64; the class with the largest location for every score; pairwise, it beats all others
    predicted: Tensor
    uncertainty: dict[tuple[str, str], Tensor]  # shape (N,), float64; larger is less certain


@dataclass(frozen=True, eq=False)
class _View:
    """Lazily computed inputs of the scores of a few images, in float64; pairs have their own family."""

    model: Model
    objective: Objective
    pixels: Tensor
    certificates: losses.OrthonormalCertificates | None

    @cached_property
    def location(self) -> Tensor:
        if self.rule == PROPAGATED:
            return cast(Tensor, self.model.net(self.pixels)).double()
        return self.gaussian.location

    @cached_property
    def gaussian(self) -> sr.Gaussian | sr.DiagonalGaussian:
        return cast(sr.Gaussian | sr.DiagonalGaussian, self._law(GAUSSIAN, self.rule))  # like the noise

    @cached_property
    def cauchy(self) -> sr.Cauchy:
        stable = STABLE if isinstance(self.rule, MarginalMomentMatching) else self.rule
        return cast(sr.Cauchy, self._law(CAUCHY, stable))  # like the noise

    @property
    def rule(self) -> Rule:
        return self.objective.rule or PROPAGATED

    def _law(self, noise: Noise, rule: Rule) -> sr.Law:
        law = noise.law(self.pixels, self.objective.sigma or SIGMA)
        return predicted(rule, self.model.net, law).to(torch.float64)

    def score(self, name: str) -> dict[str, Tensor]:
        if name == "softmax_entropy":
            return {"": losses.softmax_entropy(self.location)}
        if name == "orthonormal_certificates":
            fitted = cast(losses.OrthonormalCertificates, self.certificates)  # provided by `evaluate`
            features = self.model.net[:-1](self.pixels) - fitted.center
            squares = (features @ fitted.certificates).double().square()
            return {str(count): squares[:, :count].sum(1) for count in CERTIFICATES}
        if name == "dirichlet":
            alpha = losses.dirichlet(self.gaussian, self.model.offset, self.model.slope)
            return {
                "law": Dirichlet(alpha.clamp(min=_TINY)).entropy(),
                "mean": losses.entropy(losses.dirichlet_probabilities(alpha)),
                "concentration": -alpha.sum(1).log(),
            }
        if name == "pairwise_gaussian":
            return self._pairwise(self.gaussian)
        borrowed = self._pairwise(
            sr.Cauchy(self.gaussian.location, self.gaussian.variance.clamp(min=0).sqrt())
        )
        return self._pairwise(self.cauchy) | {f"sd_{combine}": each for combine, each in borrowed.items()}

    def _pairwise(self, law: sr.Gaussian | sr.DiagonalGaussian | sr.Cauchy) -> dict[str, Tensor]:
        return {
            combine: losses.entropy(losses.pairwise_scores(law, combine))  # type: ignore[arg-type]
            for combine in COMBINED
        }


@torch.no_grad()
@numerics()
def evaluate(
    model: Model, objective: Objective, names: Sequence[str], digits: TrainingImages, pixels: Tensor
) -> Scored:
    """Return predictions and scores of images `pixels`, shape (N, C, H, W), uint8, on the CPU.

    Laws are propagated as in training, or by SDP if training had none. Cauchy noise is propagated by marginal
    SDP if training used moment matching. `names` are keys of `READINGS`, and `digits` are the training
    images, to which certificates are fitted.
    """
    device = next(model.net.parameters()).device
    certificates = None
    if "orthonormal_certificates" in names:
        parts = digits.pixels[:CERTIFIED].split(_ROWS)
        known = torch.cat([model.net[:-1](rows.to(device).float() / 255) for rows in parts])
        # The first k of the largest set are equal to a fit of k certificates.
        certificates = losses.OrthonormalCertificates.fit(known, min(CERTIFICATES[-1], known.shape[1]))
    scores: dict[tuple[str, str], list[Tensor]] = {}
    predicted = []
    for rows in pixels.split(_ROWS):
        view = _View(model, objective, rows.to(device).float() / 255, certificates)
        predicted.append(view.location.argmax(1).cpu())
        for name in names:
            for reading, values in view.score(name).items():
                scores.setdefault((name, reading), []).append(values.cpu())
    return Scored(torch.cat(predicted), {key: torch.cat(values) for key, values in scores.items()})


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("softmax"),
        Objective("dirichlet", MarginalMomentMatching(precision=1e-5), SCALE),
        Objective("pairwise_gaussian", SDP(), 0.1),
        Objective("pairwise_marginal", MarginalSDP(), 0.1),
        Objective("pairwise_cauchy", SDP(), 0.1, CAUCHY),
    )
}
"""Softmax cross-entropy, the Dirichlet likelihood of Gast & Roth, and the pairwise (PD) loss of a Gaussian
with and without covariances and of a Cauchy law.
"""


def models() -> tuple[Objective, ...]:
    """Return all trained models: each objective, and the Dirichlet likelihood also at other scales."""
    return (*OBJECTIVES.values(), *OBJECTIVES["dirichlet"].at(OTHER_SCALES))


TESTED = 10_000
"""Most test digits, and test letters."""
POINTS = (*(f"{percent / 100:.2f}" for percent in range(101)),)
"""Coverages at which the risk is recorded."""

# On one thread: s per training batch, and s per scored image.
_STEPS = {
    "softmax": 0.03,
    "dirichlet": 0.2,
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
class Images(ImageSplits):
    """Training images, digits to predict, and equally many letters to abstain from."""

    letters: LabelledExamples = field(kw_only=True)

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor]:
        """Rows of digits and of letters to score."""
        count = min(self.trained or TESTED, TESTED, len(self.test), len(self.letters))
        return self.test.in_turn(count), self.letters.in_turn(count)

    @cached_property
    def tests(self) -> tuple[Tensor, Tensor]:
        """Test images, digits first, and their labels; letters have label -1, which is never predicted."""
        digits, letters = self._rows
        labels = [self.test.labels[digits], torch.full((len(letters),), -1)]
        return torch.cat([self.test.kept[digits], self.letters.kept[letters]]), torch.cat(labels)

    @property
    def description(self) -> str:
        digits, letters = self._rows
        alphabet = "".join(chr(64 + int(label)) for label in self.letters.labels[letters].unique())
        return (
            f"trained on {len(self.problem.labels)} images of {self.train.description}; tested on "
            f"{len(digits)} of {self.test.description} and {len(letters)} of {self.letters.description}, "
            f"classes in turn; letters {alphabet}"
        )


def load(limit: int | None = None) -> Images:
    """Load MNIST and the EMNIST letters, at most `limit` images; a DataMissingError if a set is missing."""
    return Images(MNIST.load("train"), MNIST.load("test"), limit, letters=EMNIST_LETTERS.load("test"))


@dataclass(frozen=True, eq=False, kw_only=True)
class SelectiveGroup(ClassifierGroup):
    """One objective and seed: its model is trained, or taken from the cache, and scored.

    `steps`, `tested`: of training, and images to score.
    """

    @property
    def seconds(self) -> float:
        fit = _FIT if "orthonormal_certificates" in SCORES[self.objective] else 0.0
        return self.steps * _STEPS[self.objective] + (self.tested or 0) * _LAWS[self.objective] + fit

    def numbers(self, seed: int, methods: Sequence[str]) -> Iterator[Number]:
        images = load(self.trained)
        pixels, labels = images.tests
        scored = evaluate(self.model(images, seed), self.training, methods, images.problem, pixels)
        wrong = (scored.predicted != labels).numpy()
        accuracy = float(1 - wrong[labels.numpy() >= 0].mean())
        for name in methods:
            for reading in READINGS[name]:
                curve = risk_coverage(scored.uncertainty[name, reading].numpy(), wrong)
                yield name, "rcauc", curve.area, reading or None
                if reading == READINGS[name][0]:
                    for point in POINTS:
                        yield name, "risk", float(curve.at(float(point))), point
            yield name, "accuracy", accuracy, None


def expand(experiment: ReplicateExperiment, scope: Scope) -> Expansion:
    size = experiment.size(scope.settings)
    epochs, limit = size.epochs or EPOCHS, size.samples
    images = load(limit)
    pixels, labels = images.tests
    groups: list[ReplicateGroup] = []
    for objective in models():
        name, scale = objective.name, f"{objective.noise.parameter} {objective.sigma:g}"
        noise = f", {objective.rule.spec} at {scale}" if objective.rule else ""
        how = f"{name}{noise}, adam {objective.learning_rate:g}, {epochs} epochs of batch {BATCH}"
        identity = digest(
            *(images.problem.pixels, images.problem.labels, pixels, labels, epochs, BATCH),
            *(objective.label, objective.learning_rate, SIGMA, list(CERTIFICATES), CERTIFIED),
        )
        groups += experiment.by_seed(
            SelectiveGroup,
            scope.settings,
            label=f"MNIST {name}",
            design=f"{images.description}; {how}",
            identity=identity[:16],
            activation="cnn3",
            depth=3,
            versions=versions_of(experiment, objective),
            methods=SCORES[name],
            dataset="mnist",
            objective=name,
            # the units of other scales than the objective's own are distinguished by it
            sigma=None if objective in OBJECTIVES.values() else objective.sigma,
            training=objective,
            epochs=epochs,
            trained=limit,
            tested=len(labels),
            steps=epochs * -(-len(images.problem.labels) // BATCH),
        )
    return Expansion(groups)
