"""The oracle's own error: a second, independent oracle in the place of a rule."""

from __future__ import annotations

from sdp_bench.bench.experiments.iris.nets import FOUR, SIGMAS
from sdp_bench.bench.experiments.laws import LawExperiment
from sdp_bench.bench.metrics.references import ORACLE_AGAIN
from sdp_bench.bench.settings import Size

_METRICS = ("tv_headline", "tv_paper", "tv_class", "std_ratio")
_RULES = ("sdp", "moment_matching", ORACLE_AGAIN.name)

AGAIN = LawExperiment(
    name="iris-oracle",
    description="the oracle's own error: a second, independent oracle in the place of a rule",
    rank=110,
    metrics=_METRICS,
    sigmas=SIGMAS[::2],
    architectures=FOUR,
    rules=_RULES,
    paper=Size(2, 1),
    presets={"quick": Size(1, 1)},
)

TEN_TIMES = LawExperiment(
    name="iris-oracle-10x",
    description="the same cells from ten times the samples",
    rank=120,
    metrics=_METRICS,
    sigmas=SIGMAS[::2],
    architectures=FOUR,
    rules=_RULES,
    paper=Size(2, 1),
    presets={"quick": Size(1, 1)},
    scale=10,
)
