"""Total variation on Iris nets."""

from __future__ import annotations

from sdp_bench.bench.experiments.iris.nets import RELU, SIGMAS, architectures
from sdp_bench.bench.experiments.laws import LawExperiment
from sdp_bench.bench.settings import Size

_METRICS = ("tv_headline", "tv_paper", "tv_class")

RELU_NETS = LawExperiment(
    name="iris-tv",
    description="total variation on ReLU nets (paper: Tables 1, 7-10, 15-18)",
    rank=10,
    metrics=(*_METRICS, "tv_difference"),
    sigmas=SIGMAS,
    architectures=RELU,
    presets={"quick": Size(2, 1)},
)

DEEP_NETS = LawExperiment(
    name="iris-tv-deep",
    description="total variation on deep ReLU nets (Tables 11-14)",
    rank=20,
    metrics=_METRICS,
    sigmas=SIGMAS[:4],
    architectures=architectures(relu=(9, 14, 19, 24)),
    presets={"quick": Size(1, 1)},
)

OTHER_ACTIVATIONS = LawExperiment(
    name="iris-tv-activations",
    description="total variation with other non-linearities (Tables 23-27, 29-36)",
    rank=30,
    metrics=_METRICS,
    sigmas=SIGMAS,
    architectures=architectures(leaky_relu=(1, 2, 4, 6), sigmoid=(4,), silu=(1, 2, 4, 6), gelu=(1, 2, 4, 6)),
    presets={"quick": Size(1, 1)},
)
