"""Prediction intervals on eight regression sets (paper: Tables 4, 38 and 40)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sdp_bench.bench.datasets import dataset
from sdp_bench.bench.datasets.base import TabularRegression
from sdp_bench.bench.experiments.base import Expansion
from sdp_bench.bench.experiments.replicates import Replicated, ReplicateExperiment
from sdp_bench.bench.identity import keys
from sdp_bench.bench.settings import Size
from sdp_bench.bench.studies.uci import METHODS

if TYPE_CHECKING:
    from sdp_bench.bench.experiments.scope import Scope

PAPER = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "wine", "yacht")
"""The paper's data sets."""
EPOCHS = 5000
METRICS = (
    *("qualified", "picp", "mpiw", "nll", "validation_picp", "validation_mpiw"),
    *("learning_rate", "weight_decay", "input_variance"),
)


@dataclass(frozen=True, kw_only=True)
class PredictionIntervals(ReplicateExperiment):
    """Prediction intervals on regression sets."""

    def expand(self, scope: Scope) -> Expansion:
        from sdp_bench.bench.experiments.versions import of_method
        from sdp_bench.bench.studies.uci import intervals
        from sdp_bench.bench.studies.uci.group import UciGroup
        from sdp_bench.bench.studies.uci.intervals import GRID
        from sdp_bench.bench.studies.uci.stacked import VERSION

        size = self.size(scope.settings)
        seeds, epochs = tuple(range(size.nets or 0)), size.epochs or EPOCHS
        groups = []
        for name in size.datasets or ():
            data = dataset(name, TabularRegression).load()
            rows, features = data.features.shape
            intervals.splits(data, seeds[:1])  # raises for an unusable set before training
            identity = keys.digest(data.features, data.targets, epochs, [asdict(s) for s in GRID])[:16]
            text = f"{data.description}; {len(GRID)} settings, {epochs} epochs"
            replicated = Replicated(self.name, f"{name} {features}-64", text, identity)
            for objective in dict.fromkeys(METHODS[rule].objective for rule in self.rules):
                methods = tuple(rule for rule in self.rules if METHODS[rule].objective == objective)
                own = (self.name, self.metrics, of_method(self.version, VERSION), replicated)
                shared = (*own, methods, seeds, scope.settings.sampling.device)
                groups.append(UciGroup(*shared, name, objective, epochs, rows, features, GRID))
        return Expansion(groups)


EXPERIMENT = PredictionIntervals(
    name="uci",
    description="prediction intervals on eight regression sets (Tables 4, 38, 40)",
    rank=200,
    metrics=METRICS,
    rules=tuple(METHODS),
    paper=Size(nets=20, epochs=EPOCHS, datasets=PAPER),
    presets={
        "smoke": Size(epochs=20, datasets=("yacht",), on_request=True),
        "quick": Size(nets=3, epochs=500, datasets=("yacht", "boston"), on_request=True),
    },
    options=frozenset({"epochs", "datasets"}),
)
