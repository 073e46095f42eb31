"""Two moons: the uncertainty of nets at seen points and elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments.base import Expansion
from sdp_bench.bench.experiments.replicates import Replicated, ReplicateExperiment, ReplicateGroup
from sdp_bench.bench.identity import digest
from sdp_bench.bench.settings import Size

if TYPE_CHECKING:
    from sdp_bench.bench.experiments.predict import Scope


@dataclass(frozen=True, kw_only=True)
class TwoMoons(ReplicateExperiment):
    """Uncertainty at seen and at far points, of nets trained with and without propagation."""

    def expand(self, scope: Scope) -> Expansion:
        """Return the groups, recipes times seeds; a UserError if there are more seeds than sets of points."""
        from sdp_bench.bench.experiments.versions import of_method
        from sdp_bench.bench.studies.two_moons import group as study
        from sdp_ref.rules import SDP

        size = self.size(scope.settings)
        seeds, steps = size.nets or 1, size.epochs or 1
        if seeds > study.TESTED:
            raise UserError(f"{self.name} has points for {study.TESTED} seeds, got {seeds}")
        groups: list[ReplicateGroup] = []
        for name, recipe in study.RECIPES.items():
            network = recipe.architecture.label
            text = (
                f"{study.POINTS} points; {network}, {recipe.label}; noise of scale {study.SCALE}; "
                f"adam {study.LEARNING_RATE:g}, {steps} steps of all points"
            )
            groups += self.by_seed(
                study.TwoMoonsGroup,
                scope.settings,
                Replicated(self.name, f"two moons {network}", text, digest(name, steps)[:16]),
                versions=of_method(self.version, rule=SDP()),  # uncertainties are those that it predicts
                methods=self.rules,
                dataset="two moons",
                objective=name,
                sigma=study.SCALE,
                steps=steps,
            )
        return Expansion(groups)


EXPERIMENT = TwoMoons(
    name="two-moons",
    description="uncertainty at seen points and far ones, by training (Figure 1)",
    rank=230,
    metrics=("far_over_seen", "accuracy", "entropy_seen", "entropy_far"),
    rules=("sdp",),
    paper=Size(nets=20, epochs=300),
    presets={"smoke": Size(nets=1, epochs=2), "quick": Size(nets=3, epochs=100)},
    options=frozenset({"epochs"}),
)
