"""Selective prediction: predict digits, abstain from letters (paper: Tables 5 and 39)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_bench.bench.experiments.base import Expansion
from sdp_bench.bench.experiments.replicates import Replicated, ReplicateExperiment
from sdp_bench.bench.identity import keys
from sdp_bench.bench.settings import Size
from sdp_bench.bench.studies.selective import CERTIFICATES, READINGS, SCORES

if TYPE_CHECKING:
    from sdp_bench.bench.experiments.scope import Scope

EPOCHS = 100
METRICS = ("rcauc", "accuracy", "risk")
"""Area under risk over coverage, by reading; accuracy on digits; the default reading's risk by coverage."""


@dataclass(frozen=True, kw_only=True)
class SelectivePrediction(ReplicateExperiment):
    """Choice of the predictions to abstain from."""

    def expand(self, scope: Scope) -> Expansion:
        from sdp_bench.bench.experiments.versions import of_method
        from sdp_bench.bench.studies.classifiers import BATCH, VERSION
        from sdp_bench.bench.studies.selective.group import SelectiveGroup, load
        from sdp_bench.bench.studies.selective.scores import CERTIFIED, SIGMA, models

        size = self.size(scope.settings)
        epochs, limit = size.epochs or EPOCHS, size.samples
        images = load(limit)
        pixels, labels = images.tested
        steps = epochs * -(-len(images.problem.labels) // BATCH)
        groups = []
        for objective in models():
            name, scale = objective.name, f"{objective.noise.parameter} {objective.sigma:g}"
            noise = f", {objective.rule.name} at {scale}" if objective.rule else ""
            how = f"{name}{noise}, adam {objective.learning_rate:g}, {epochs} epochs of batch {BATCH}"
            identity = keys.digest(
                *(images.problem.pixels, images.problem.labels, pixels, labels, epochs, BATCH),
                *(objective.learning_rate, SIGMA, list(CERTIFICATES), CERTIFIED),
            )
            text = f"{images.description}; {how}"
            replicated = Replicated(self.name, f"MNIST {name}", text, identity[:16], "cnn3", 3)
            versions = of_method(self.version, VERSION, objective.rule)
            for seed in range(size.nets or 0):
                own = (self.name, self.metrics, versions, replicated)
                shared = (*own, SCORES[name], (seed,), scope.settings.sampling.device)
                groups.append(SelectiveGroup(*shared, objective, epochs, limit, steps, len(labels)))
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
