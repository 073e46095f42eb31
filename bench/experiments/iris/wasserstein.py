"""Wasserstein-1 distances on Iris nets."""

from __future__ import annotations

from sdp_bench.bench.experiments.iris.nets import RELU, W1_SIGMAS
from sdp_bench.bench.experiments.laws import FULL_RULES, MARGINAL_RULES, REGULAR_DVIA, LawExperiment
from sdp_bench.bench.metrics.references import ORACLE_MOMENTS
from sdp_bench.bench.settings import Size

SAMPLED = LawExperiment(
    name="iris-w1",
    description="Wasserstein-1 distance on ReLU nets (Tables 2, 19-22)",
    title="Wasserstein distance",
    about="How far the prediction is from the truth, in units of the outputs.",
    rank=40,
    metrics=("w1",),
    sigmas=W1_SIGMAS,
    architectures=RELU,
    rules=(*FULL_RULES, *MARGINAL_RULES, *REGULAR_DVIA, ORACLE_MOMENTS.name),
    presets={"quick": Size(1, 1)},
)

CERTIFIED = LawExperiment(
    name="iris-w1-certified",
    description="the same between 30 000 points a side, with proven bounds",
    title="Wasserstein distance, 30 000 points",
    about="The same at the paper’s number of points, between proven bounds.",
    rank=50,
    metrics=("w1_certified",),
    sigmas=W1_SIGMAS,
    architectures=RELU,
    rules=("sdp", "dvia", "moment_matching", *MARGINAL_RULES, *REGULAR_DVIA),
    paper=Size(10, 3),  # a flower of each class
    presets={"quick": Size(1, 1)},
)
