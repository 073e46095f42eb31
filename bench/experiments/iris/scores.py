"""Scores, intervals and tails on Iris nets."""

from __future__ import annotations

from sdp_bench.bench.experiments.iris.nets import FOUR, SIGMAS
from sdp_bench.bench.experiments.laws import LawExperiment
from sdp_bench.bench.settings import Size

SCORES = LawExperiment(
    name="iris-scores",
    description="proper scores, intervals and tail probabilities on ReLU nets (not in the paper)",
    title="Scores, intervals and tails",
    about="What a prediction is worth to one who acts on it: proper scores, whether its intervals hold what "
    "they say, and whether rare outputs are as rare as it says.",
    rank=65,
    metrics=("log_score", "crps", "energy_score", "coverage", "interval_width", "tails"),
    sigmas=SIGMAS[:3],
    architectures=FOUR,
    presets={"quick": Size(1, 1, on_request=True)},
)
