"""Statements of the paper on ResNet-18 on CIFAR-10."""

from __future__ import annotations

from collections.abc import Mapping

from sdp_bench.bench.experiments.classifiers import RESNET
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

IMAGES = 500
"""Images in the paper. Fewer are a demonstration: the TV varies over images by more than its mean."""
_RIVALS = ("marginal_sdp", "marginal_moment_matching")


def _reduces(evidence: Evidence) -> Tried | None:
    """The paper's net has a max-pool; a net without it counts only if none with it was measured."""
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
    images, samples = int(net["input"].nunique()), int(net["samples"].max())
    ours = f"one {NETWORKS[network].title}, {labels.plural(images, 'image')}, {samples:,} oracle samples"
    said = f"{'a demonstration: ' if images < IMAGES else ''}{ours}; the paper: {IMAGES} images, 5,000"
    return tried(effects, "image", said, "#resnet-tv")


RULES: Mapping[str, Rule] = {
    "resnet": _reduces,
}
