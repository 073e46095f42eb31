"""One classifier, trained with one objective at one scale, under noise and attacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sdp_bench.bench.identity.keys import SeedRoot
from sdp_bench.bench.noise import CAUCHY
from sdp_bench.bench.studies.classifiers import BATCH, ClassifierGroup, ImageSplits, Objective
from sdp_bench.bench.studies.robustness import QUERIES, RADII
from sdp_bench.bench.studies.robustness.attacks import RESTARTS
from sdp_bench.bench.studies.robustness.evaluation import Victim, evaluate
from sdp_ref.rules import SDP, MarginalMomentMatching, MarginalSDP

_objective = partial(Objective, learning_rate=1e-4)

OBJECTIVES = (
    _objective("softmax"),
    # The net computes in float32, whose rounding errors exceed those of the short formulas.
    _objective("dirichlet", MarginalMomentMatching(precision=1e-5)),
    _objective("pairwise_gaussian", SDP()),
    _objective("pairwise_marginal", MarginalSDP()),
    _objective("pairwise_cauchy", MarginalSDP(), noise=CAUCHY),
)
"""Softmax cross-entropy, the Dirichlet likelihood of Gast & Roth, and the pairwise loss of a Gaussian with
and without covariances and of a Cauchy law, whose scales go from layer to layer as in the paper's theorem."""


# s for 128 MNIST images on one thread: a training step, a gradient of the own loss, the scores only.
_TIMES = {
    "softmax": (0.04, 0.03, 0.015),
    "dirichlet": (0.25, 0.15, 0.07),
    "pairwise_gaussian": (0.45, 0.25, 0.015),
    "pairwise_marginal": (0.1, 0.07, 0.015),
    "pairwise_cauchy": (0.1, 0.07, 0.015),
}
_STANDING = 0.5  # average share of attacked images that are not yet misclassified, over steps


@dataclass(frozen=True, eq=False)
class RobustnessGroup(ClassifierGroup):
    """A data set, an objective, a scale and a seed."""

    @classmethod
    def methods_of(cls, objective: Objective, methods: tuple[str, ...]) -> tuple[str, ...]:
        """Return the methods; cross-entropy is the model's own loss, so it is attacked once."""
        return methods if objective.rule else tuple(name for name in methods if name != "pgd_own")

    @property
    def seconds(self) -> float:
        step, gradient, scores = _TIMES[self.objective.name]
        attacked = _STANDING * len(RADII[self.dataset]) * self.steps * (self.tested or 10_000) / BATCH
        by_gradients = RESTARTS * (gradient + max(2 * scores, _TIMES["softmax"][1]))
        return self.batches * step + attacked * (by_gradients + QUERIES * scores)

    def numbers(
        self, images: ImageSplits, seed: int, methods: Sequence[str]
    ) -> Iterator[tuple[str, str, float, str | None]]:
        victim = Victim(self.model(images, seed), self.objective)
        seeds = SeedRoot(self.replicated.key(seed))
        yield from evaluate(victim, methods, *images.tests, RADII[self.dataset], self.steps, seeds)
