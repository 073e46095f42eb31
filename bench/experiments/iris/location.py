"""Predicted locations of the outputs of Iris nets, compared with the nets' own outputs."""

from __future__ import annotations

from sdp_bench.bench.experiments.iris.nets import RELU, SIGMAS
from sdp_bench.bench.experiments.laws import FULL_RULES, MARGINAL_RULES, LawExperiment
from sdp_bench.bench.settings import Size

LOCATIONS = LawExperiment(
    name="iris-location",
    description="class of a rule's location beside that of a plain pass (Section 2)",
    title="Location and class",
    about="Whether a net that was trained without noise still names the same class when a law is propagated "
    "through it.",
    rank=65,
    metrics=("moved_class",),
    sigmas=SIGMAS,
    architectures=RELU,
    rules=(*FULL_RULES, *MARGINAL_RULES, "monte_carlo:samples=100"),
    # the metric uses no samples, so the oracle is minimal
    paper=Size(10, 10, samples=1000),
    presets={"quick": Size(3, 10, samples=1000)},
)
