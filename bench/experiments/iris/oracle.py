"""The oracle's own error: a second, independent oracle measured like a rule."""

from __future__ import annotations

from dataclasses import replace

from sdp_bench.bench.experiments.iris.nets import FOUR, SIGMAS
from sdp_bench.bench.experiments.laws import LawExperiment
from sdp_bench.bench.metrics.references import ORACLE_AGAIN
from sdp_bench.bench.settings import Size

AGAIN = LawExperiment(
    name="iris-oracle",
    description="the oracle's own error: a second, independent oracle in the place of a rule",
    rank=110,
    metrics=("tv_headline", "tv_paper", "tv_class", "std_ratio"),
    sigmas=SIGMAS[::2],
    architectures=FOUR,
    rules=("sdp", "moment_matching", ORACLE_AGAIN.name),
    paper=Size(2, 1),
    presets={"quick": Size(1, 1)},
)

TEN_TIMES = replace(
    AGAIN,
    name="iris-oracle-10x",
    description="the same cells from ten times the samples",
    rank=120,
    presets={"quick": Size(1, 1, on_request=True)},
    scale=10,
)
