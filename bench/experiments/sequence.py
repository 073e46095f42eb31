"""A recurrent net and a causal decoder on synthetic sequences."""

from __future__ import annotations

from sdp_bench.bench.experiments.laws import FULL_RULES, MARGINAL_RULES, LawExperiment
from sdp_bench.bench.experiments.vision.small import LOGIT_METRICS
from sdp_bench.bench.metrics.references import ORACLE_MOMENTS
from sdp_bench.bench.nets.architectures import SequenceArchitecture
from sdp_bench.bench.settings import Size

SIGMAS = (0.03, 0.1, 0.3, 1.0)
"""Noise levels for points at distances from .5 to 1.5 of the origin with noise of .1 in the data: below that
noise, equal to it, above it, and as large as the signal.
"""

SEQUENCE = LawExperiment(
    name="sequence",
    description="a GRU and a causal decoder on sequences of rotations (not in the paper)",
    title="Sequences",
    about="Eight points in the plane that turn by one of ten angles a step; the class is the angle. Noise on "
    "all coordinates reaches the scores through the gates of a GRU, or through causal attention, RMSNorm and "
    "SwiGLU of a decoder like Llama’s.",
    rank=144,
    metrics=LOGIT_METRICS,
    sigmas=SIGMAS,
    rules=(
        *FULL_RULES,
        "split:base=sdp,k=64",
        "split:base=unscented,k=64",
        *MARGINAL_RULES,
        *(f"monte_carlo:samples={k}" for k in (10, 100, 1000)),
        "control_variate:samples=100",
        ORACLE_MOMENTS.name,
    ),
    paper=Size(1, 20, samples=50_000),
    presets={
        "smoke": Size(samples=4096, on_request=True),
        "quick": Size(1, 3, samples=10_000, on_request=True),
    },
    classifiers=(SequenceArchitecture("gru"), SequenceArchitecture("decoder")),
)
