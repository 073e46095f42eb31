"""Moments of the outputs of Iris nets."""

from __future__ import annotations

from sdp_bench.bench.experiments.iris.nets import RELU, SIGMAS
from sdp_bench.bench.experiments.laws import ALL_RULES, REGULAR_DVIA, LawExperiment
from sdp_bench.bench.settings import Size

STANDARD_DEVIATIONS = LawExperiment(
    name="iris-std",
    description="ratio of predicted to true standard deviations, and distances of moments (Table 28)",
    title="Moments",
    about="How well each rule gets the standard deviations of the outputs, and mean and covariance as a "
    "whole.",
    rank=60,
    metrics=("std_ratio", "bures", "gaussian_kl", "min_eigenvalue"),
    sigmas=SIGMAS,
    architectures=RELU,
    rules=(*ALL_RULES[:-1], *REGULAR_DVIA),
    presets={"quick": Size(1, 1)},
)
