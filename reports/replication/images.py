"""What the paper says of ResNet-18 on CIFAR-10."""

from __future__ import annotations

from collections.abc import Mapping

from sdp_bench.bench.experiments.vision.resnet import RESNET
from sdp_bench.bench.nets.architectures import NETWORKS
from sdp_bench.reports.paper.printed import RESNETS
from sdp_bench.reports.replication.statement import (
    Effect,
    Evidence,
    Rule,
    Tried,
    finite,
    paired,
    tried,
)
from sdp_bench.reports.style import labels

_RIVALS = ("marginal_sdp", "marginal_moment_matching")


def _reduces(evidence: Evidence) -> Tried | None:
    """The paper's net has a max-pool; one without speaks where none with it was measured."""
    frame = evidence.of(RESNET.name, metric="tv_class")
    network = next((each for each in RESNETS if (frame["activation"] == each).any()), None)
    if network is None:
        return None
    net = frame[frame["activation"] == network]
    effects = []
    for sigma, own in net.groupby("sigma"):
        means = paired(own, ("net", "input"))
        for other in _RIVALS:
            if {"sdp", other} <= set(means):
                name = f"TV of {evidence.results.traits.label(other)} less that of SDP, σ = {sigma:g}"
                effects.append(Effect(name, finite(means[other] - means["sdp"])))
    images, samples = labels.plural(int(net["input"].nunique()), "image"), int(net["samples"].max())
    ours = f"one {NETWORKS[network].title}, {images}, {samples:,} oracle samples"
    return tried(effects, "image", f"{ours}; the paper: 500 images, 5,000", "#resnet-tv")


RULES: Mapping[str, Rule] = {
    "resnet": _reduces,
}
