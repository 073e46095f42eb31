"""Total variation on Iris nets."""

from __future__ import annotations

from sdp_bench.bench.experiments.iris.nets import RELU, SIGMAS, architectures
from sdp_bench.bench.experiments.laws import ALL_RULES, REGULAR_DVIA, LawExperiment
from sdp_bench.bench.settings import Size

_ABOUT = (
    "How much probability mass the predicted and the true output law share. 1 is perfect; the second "
    "column says what even the exact law would show, given that both sides are known by samples."
)
_METRICS = ("tv_headline", "tv_paper", "tv_class")
_OF_RELU = (*_METRICS, "tv_paper:bin_range=joint", "tv_single")
_RULES = (*ALL_RULES, *REGULAR_DVIA)

RELU_NETS = LawExperiment(
    name="iris-tv",
    description="total variation on ReLU nets (paper: Tables 1, 7-10, 15-18)",
    title="Total variation",
    about=_ABOUT,
    rank=10,
    metrics=(*_OF_RELU, "tv_difference"),
    rules=_RULES,
    sigmas=SIGMAS,
    architectures=RELU,
    presets={"quick": Size(1, 1)},
)

DEEP_NETS = LawExperiment(
    name="iris-tv-deep",
    description="total variation on deep ReLU nets (Tables 11-14)",
    title="Total variation, deep nets",
    about=_ABOUT,
    rank=20,
    metrics=_OF_RELU,
    rules=_RULES,
    sigmas=SIGMAS[:4],
    architectures=architectures(relu=(9, 14, 19, 24)),
    presets={"quick": Size(1, 1, depths=(9,))},
)

OTHER_ACTIVATIONS = LawExperiment(
    name="iris-tv-activations",
    description="total variation with other non-linearities (Tables 23-27, 29-36)",
    title="Total variation, other non-linearities",
    about=_ABOUT + " The paper has no moment matching for SiLU and GELU, and DVIA for ReLU only: columns "
    "of ours there stand beside no number of the paper.",
    rank=30,
    metrics=_METRICS,
    sigmas=SIGMAS,
    architectures=architectures(leaky_relu=(1, 2, 4, 6), sigmoid=(4,), silu=(1, 2, 4, 6), gelu=(1, 2, 4, 6)),
    presets={"quick": Size(1, 1, depths=(4,))},
)
