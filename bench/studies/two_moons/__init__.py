"""Two moons: the uncertainty of nets at seen points and elsewhere."""

from __future__ import annotations

from ...experiments.replicates import ReplicateExperiment
from ...settings import Size

EXPERIMENT = ReplicateExperiment(
    name="two-moons",
    study="sdp_bench.bench.studies.two_moons.group",
    description="uncertainty near and far from the training data, by training method (Figure 1)",
    rank=230,
    metrics=("far_over_seen", "accuracy", "entropy_seen", "entropy_far"),
    rules=("sdp",),
    paper=Size(nets=20, epochs=300),
    presets={"smoke": Size(nets=1, epochs=2), "quick": Size(nets=3, epochs=100)},
    options=frozenset({"device", "epochs", "nets"}),
)
