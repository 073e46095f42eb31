"""Robustness of classifiers trained with propagated laws (paper: Figures 5 to 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments.base import Expansion
from sdp_bench.bench.experiments.replicates import ReplicateExperiment
from sdp_bench.bench.settings import Settings, Size
from sdp_bench.bench.studies import SCALES
from sdp_bench.bench.studies.robustness import METHODS, METRICS, NOISE, QUERIES, RADII

if TYPE_CHECKING:
    from sdp_bench.bench.experiments.scope import Scope


@dataclass(frozen=True, kw_only=True)
class Robustness(ReplicateExperiment):
    """Accuracy under noise and attacks, by training objective."""

    def check(self, settings: Settings) -> None:
        """Raise a UserError if the attack radii of a data set are not known."""
        for name in self.size(settings).datasets or ():
            if name not in RADII:
                raise UserError(f"{self.name} attacks images of {', '.join(RADII)}, not of '{name}'")

    def expand(self, scope: Scope) -> Expansion:
        from sdp_bench.bench.studies.classifiers import expanded
        from sdp_bench.bench.studies.robustness.attacks import RESTARTS
        from sdp_bench.bench.studies.robustness.group import OBJECTIVES, RobustnessGroup

        self.check(scope.settings)
        design = (NOISE, RADII, QUERIES, RESTARTS)
        return expanded(self, scope, RobustnessGroup, OBJECTIVES, design)


EXPERIMENT = Robustness(
    name="robustness",
    description="accuracy under noise and attacks, by objective and scale in training (Figures 5-9)",
    rank=215,
    metrics=METRICS,
    rules=METHODS,
    paper=Size(nets=3, epochs=100, datasets=tuple(RADII), sigmas=SCALES, steps=40),
    presets={
        "smoke": Size(samples=256, epochs=1, datasets=("mnist",), sigmas=(0.1,), steps=2),
        "quick": Size(
            *(1, 100),
            samples=2000,
            epochs=5,
            datasets=("mnist",),
            sigmas=(1e-3, 0.1, 10.0),
            steps=20,
            on_request=True,
        ),
    },
    options=frozenset({"datasets", "epochs", "inputs", "samples", "sigmas"}),
)
