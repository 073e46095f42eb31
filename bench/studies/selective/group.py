"""Models and uncertainty scores of selective prediction, and their groups of work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Dirichlet

import sdp_ref as sr
from sdp_ref import losses
from sdp_ref.rules import SDP, MarginalMomentMatching, MarginalSDP, Rule
from sdp_ref.rules.base import predicted

from ...datasets.sets import EMNIST_LETTERS
from ...experiments.replicates import Number, ReplicateExperiment, ReplicateGroup
from ...identity import SeedRoot, digest
from ...nets.training import numerics
from ...noise import CAUCHY, GAUSSIAN, Noise
from ...settings import Settings
from .. import selective as study
from ..classifiers import (
    BATCH,
    IN_TURN,
    Images,
    Model,
    Objective,
    TrainingImages,
    batches,
    load_images,
    measured,
    step_seconds,
    versions_of,
)
from .risk_coverage import risk_coverage

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

_ROWS = 250  # images at once; covariances of wide layers take the memory
_TINY = 1e-300  # a concentration of 0 has no entropy; every positive softmax in float64 is larger than this


def _scores(
    model: Model,
    objective: Objective,
    names: Sequence[str],
    pixels: Tensor,
    certificates: losses.OrthonormalCertificates | None,
) -> tuple[Tensor, dict[tuple[str, str], Tensor]]:
    """Return the locations of the outputs of some images, and uncertainties by score and reading, float64."""
    rule = objective.rule or PROPAGATED

    def law_of(noise: Noise, rule: Rule) -> Any:
        """Return the law of the outputs, of the family of the noise."""
        noisy = noise.law(pixels, objective.sigma or SIGMA)
        return predicted(rule, model.net, noisy).to(torch.float64)

    gaussian = law_of(GAUSSIAN, rule)
    cauchy = law_of(CAUCHY, STABLE if isinstance(rule, MarginalMomentMatching) else rule)
    # A reading of the paper in which the standard deviations under Gaussian noise are Cauchy scales.
    cauchy_of_deviations = sr.Cauchy(gaussian.location, gaussian.variance.clamp(min=0).sqrt())
    location = model.net(pixels).double() if rule == PROPAGATED else gaussian.location
    scores = {("softmax_entropy", ""): losses.softmax_entropy(location)}
    if "dirichlet" in names:
        alpha = losses.dirichlet(gaussian, model.offset, model.slope)
        scores["dirichlet", "law"] = Dirichlet(alpha.clamp(min=_TINY)).entropy()
        scores["dirichlet", "mean"] = losses.entropy(losses.dirichlet_probabilities(alpha))
        scores["dirichlet", "concentration"] = -alpha.sum(1).log()
    for name, law, prefix in (
        ("pairwise_gaussian", gaussian, ""),
        ("pairwise_cauchy", cauchy, ""),
        ("pairwise_cauchy", cauchy_of_deviations, "sd_"),
    ):
        for combine in study.COMBINED:
            pairs = losses.pairwise_scores(law, combine)  # type: ignore[arg-type]
            scores[name, prefix + combine] = losses.entropy(pairs)
    if certificates:
        features = model.net[:-1](pixels) - certificates.center
        squares = (features @ certificates.certificates).double().square()
        for count in study.CERTIFICATES:
            scores["orthonormal_certificates", str(count)] = squares[:, :count].sum(1)
    return location, scores


@torch.no_grad()
@numerics()
def evaluate(
    model: Model, objective: Objective, names: Sequence[str], digits: TrainingImages, pixels: Tensor
) -> tuple[Tensor, dict[tuple[str, str], Tensor]]:
    """Return predictions and uncertainties, both of shape (N,), of images `pixels`, (N, C, H, W), uint8.

    The predicted class has the largest location, for every score; pairwise, it beats all others.
    Uncertainties, by score and reading, are float64; larger is less certain. They include those of `names`,
    keys of `READINGS`. `digits` are the training images, to which certificates are fitted.

    Laws are propagated from the input by the rule and the noise scale of training, or by SDP if training had
    none, under Gaussian and under Cauchy noise. Cauchy noise is propagated by marginal SDP if training used
    moment matching.
    """
    device = next(model.net.parameters()).device
    certificates = None
    if "orthonormal_certificates" in names:
        parts = digits.pixels[:CERTIFIED].split(_ROWS)
        features = torch.cat([model.net[:-1](rows.to(device).float() / 255) for rows in parts])
        # The first k of the largest set are equal to a fit of k certificates.
        largest = min(study.CERTIFICATES[-1], features.shape[1])
        certificates = losses.OrthonormalCertificates.fit(features, largest)
    classes: list[Tensor] = []
    uncertainties: dict[tuple[str, str], list[Tensor]] = {}
    for rows in pixels.split(_ROWS):
        images = rows.to(device).float() / 255
        location, scores = _scores(model, objective, names, images, certificates)
        classes.append(location.argmax(1).cpu())
        for key, values in scores.items():
            uncertainties.setdefault(key, []).append(values.cpu())
    return torch.cat(classes), {key: torch.cat(values) for key, values in uncertainties.items()}


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("softmax"),
        Objective("dirichlet", MarginalMomentMatching(precision=1e-5), study.SCALE),
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
    return (*OBJECTIVES.values(), *OBJECTIVES["dirichlet"].at(study.OTHER_SCALES))


TESTED = 10_000
"""Most test digits, and test letters."""
POINTS = tuple(f"{percent / 100:.2f}" for percent in range(101))
"""Coverages at which the risk is recorded."""

_LAWS = 0.002  # s per scored image, one thread
_FIT = 120.0  # s, to fit certificates


def load(limit: int | None = None) -> Images:
    """Return at most `limit` images of MNIST to train on, digits to predict, and letters to abstain from.

    Of the test images, the first half are digits, and the second half are letters of EMNIST, with label -1,
    which is never predicted. Errors are those of `load_images`.
    """
    letters = EMNIST_LETTERS.load("test")
    digits = load_images("mnist", limit, min(limit or TESTED, TESTED, len(letters)))
    rows = letters.in_turn(len(digits.labels))
    alphabet = "".join(chr(64 + int(label)) for label in letters.labels[rows].unique())
    return Images(
        digits.train,
        torch.cat([digits.pixels, letters.kept[rows]]),
        torch.cat([digits.labels, torch.full((len(rows),), -1)]),
        f"{digits.description.removesuffix(IN_TURN)} and {len(rows)} of {letters.description}{IN_TURN}; "
        f"letters {alphabet}",
    )


def measure(
    model: Model,
    objective: Objective,
    images: Images,
    methods: Sequence[str],
    seeds: SeedRoot,  # noqa: ARG001
) -> Iterator[Number]:
    """Yield area and points of the risk-coverage curve by score and reading, and the accuracy on digits."""
    labels = images.labels
    classes, uncertainty = evaluate(model, objective, methods, images.train, images.pixels)
    wrong = (classes != labels).numpy()
    accuracy = float(1 - wrong[labels.numpy() >= 0].mean())
    for name in methods:
        for reading in study.READINGS[name]:
            curve = risk_coverage(uncertainty[name, reading].numpy(), wrong)
            yield name, "rcauc", curve.area, reading or None
            if reading == study.READINGS[name][0]:
                for point in POINTS:
                    yield name, "risk", float(curve.at(float(point))), point
        yield name, "accuracy", accuracy, None


def groups(experiment: ReplicateExperiment, settings: Settings) -> Iterator[ReplicateGroup]:
    """Yield the groups of the study: trained models, times seeds; errors are those of `load`."""
    size = experiment.size(settings)
    epochs, limit = size.epochs or study.EPOCHS, size.samples
    reader = partial(load, limit)
    images = reader()
    for objective in models():
        name, scale = objective.name, f"{objective.noise.parameter} {objective.sigma:g}"
        noise = f", {objective.rule.spec} at {scale}" if objective.rule else ""
        how = f"{name}{noise}, adam {objective.learning_rate:g}, {epochs} epochs of batch {BATCH}"
        identity = digest(
            images.train.pixels,
            images.train.labels,
            images.pixels,
            images.labels,
            epochs,
            BATCH,
            objective.label,
            objective.learning_rate,
            SIGMA,
            list(study.CERTIFICATES),
            CERTIFIED,
        )
        fit = _FIT if "orthonormal_certificates" in study.SCORES[name] else 0.0
        yield from experiment.by_seed(
            settings,
            partial(measured, reader, objective, epochs, measure),
            objective=name,
            versions=versions_of(experiment, objective),
            label=f"MNIST {name}",
            design=f"{images.description}; {how}",
            identity=identity[:16],
            activation="cnn3",
            depth=3,
            methods=study.SCORES[name],
            dataset="mnist",
            # the units of other scales than the objective's own are distinguished by it
            sigma=None if objective in OBJECTIVES.values() else objective.sigma,
            cost=batches(images, epochs) * step_seconds(objective) + len(images.labels) * _LAWS + fit,
        )
