"""Selective prediction: classifiers of digits, and their uncertainty about each image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_bench.bench.experiments.base import Expansion
from sdp_bench.bench.experiments.replicates import Replicated, ReplicateExperiment, ReplicateGroup
from sdp_bench.bench.identity import digest
from sdp_bench.bench.settings import Size

if TYPE_CHECKING:
    from sdp_bench.bench.experiments.predict import Scope


CERTIFICATES = (100, 1000, 5000)
"""Numbers of orthonormal certificates; the first is the default of the authors' code."""

COMBINED = ("mean", "geometric", "minimum")
"""Ways to combine pairwise probabilities into class scores."""
_BORROWED = tuple(f"sd_{name}" for name in COMBINED)
READINGS: dict[str, tuple[str, ...]] = {
    "softmax_entropy": ("",),
    "orthonormal_certificates": tuple(str(count) for count in CERTIFICATES),
    "dirichlet": ("law", "mean", "concentration"),
    "pairwise_gaussian": COMBINED,
    "pairwise_cauchy": (*COMBINED, *_BORROWED),
}
"""Scores, with the readings of what the paper does not state; the first reading is the default.

For certificates: their number. For a Dirichlet output: the entropy of the law itself, the entropy of its mean
(which is softmax(mean) and does not depend on the variance), or minus the logarithm of its total
concentration. For pairwise probabilities: how they are combined into class scores
(`sdp_ref.losses.pairwise_scores`), whose entropy is the uncertainty. For Cauchy pairs also the scales: those
of propagated Cauchy noise or, with ``sd_``, the standard deviations of the propagated Gaussian law, since the
paper reports Cauchy scores also for moment matching, which does not support Cauchy noise. In that case Cauchy
noise is propagated by marginal SDP.
"""

_PAIRS = ("softmax_entropy", "pairwise_gaussian", "pairwise_cauchy")
SCORES = {
    "softmax": (
        *("softmax_entropy", "orthonormal_certificates"),
        *("dirichlet", "pairwise_gaussian", "pairwise_cauchy"),
    ),
    "dirichlet": ("dirichlet", "pairwise_gaussian", "pairwise_cauchy"),
    "pairwise_gaussian": _PAIRS,
    "pairwise_marginal": _PAIRS,
    "pairwise_cauchy": _PAIRS,
}
"""Scores for each kind of model: those that the paper mentions, in its Table 5 or elsewhere. It does not
train the last two kinds for that table.
"""

SCALE = 0.01
"""Standard deviation of the input noise of the paper's Dirichlet model, in units of pixels in [0, 1]."""
OTHER_SCALES = (0.001, 0.1, 1.0)
"""Other scales for that model, since the paper reports its own scale as the best: decades, from one below it
to noise as large as the pixels.
"""


EPOCHS = 100
METRICS = ("rcauc", "accuracy", "risk")
"""Area under risk over coverage, by reading; accuracy on digits; the default reading's risk by coverage."""


@dataclass(frozen=True, kw_only=True)
class SelectivePrediction(ReplicateExperiment):
    """Choice of the predictions to abstain from."""

    def expand(self, scope: Scope) -> Expansion:
        from sdp_bench.bench.experiments.versions import of_method
        from sdp_bench.bench.studies.classifiers import BATCH, VERSION
        from sdp_bench.bench.studies.selective import group as study

        size = self.size(scope.settings)
        epochs, limit = size.epochs or EPOCHS, size.samples
        images = study.load(limit)
        pixels, labels = images.tests
        groups: list[ReplicateGroup] = []
        for objective in study.models():
            name, scale = objective.name, f"{objective.noise.parameter} {objective.sigma:g}"
            noise = f", {objective.rule.spec} at {scale}" if objective.rule else ""
            how = f"{name}{noise}, adam {objective.learning_rate:g}, {epochs} epochs of batch {BATCH}"
            identity = digest(
                *(images.problem.pixels, images.problem.labels, pixels, labels, epochs, BATCH),
                *(objective.label, objective.learning_rate, study.SIGMA, list(CERTIFICATES), study.CERTIFIED),
            )
            text = f"{images.description}; {how}"
            groups += self.by_seed(
                study.SelectiveGroup,
                scope.settings,
                Replicated(self.name, f"MNIST {name}", text, identity[:16], "cnn3", 3),
                versions=of_method(self.version, VERSION, objective.rule),
                methods=SCORES[name],
                dataset="mnist",
                objective=name,
                # the units of other scales than the objective's own are distinguished by it
                sigma=None if objective in study.OBJECTIVES.values() else objective.sigma,
                training=objective,
                epochs=epochs,
                trained=limit,
                tested=len(labels),
                steps=epochs * -(-len(images.problem.labels) // BATCH),
            )
        return Expansion(groups)


EXPERIMENT = SelectivePrediction(
    name="selective",
    description="selective prediction on digits with letters as out-of-distribution data (Tables 5, 39)",
    rank=210,
    metrics=METRICS,
    rules=tuple(READINGS),
    paper=Size(nets=10, epochs=EPOCHS),
    presets={
        "smoke": Size(on_request=True),
        "quick": Size(nets=1, samples=10_000, epochs=2, on_request=True),
    },
    options=frozenset({"epochs", "samples"}),
)
