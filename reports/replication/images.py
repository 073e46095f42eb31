"""What the paper says of ResNet-18 on CIFAR-10."""

from __future__ import annotations

from collections.abc import Mapping

from sdp_bench.bench.experiments.vision.resnet import RESNET
from sdp_bench.reports.paper.printed import RESNETS
from sdp_bench.reports.replication.statement import (
    Convention,
    Effect,
    Evidence,
    Rule,
    Tried,
    finite,
    paired,
)
from sdp_bench.reports.style import labels

_NETS = {"resnet18_max_pool": "max-pool", "resnet18": "no max-pool"}
_RIVALS = ("marginal_sdp", "marginal_moment_matching")


def _reduces(evidence: Evidence) -> Tried | None:
    """The paper's net has a max-pool, whose place and stem it does not tell."""
    frame = evidence.of(RESNET.name, metric="tv_class")
    effects: dict[Convention, list[Effect]] = {}
    fidelity = []
    for network in RESNETS:
        net = frame[frame["activation"] == network]
        if not len(net):
            continue
        parts = effects[_NETS[network],] = []
        for sigma, own in net.groupby("sigma"):
            means = paired(own, ("net", "input"))
            for other in _RIVALS:
                if {"sdp", other} <= set(means):
                    name = f"TV of {evidence.results.traits.label(other)} less that of SDP, σ = {sigma:g}"
                    parts.append(Effect(name, finite(means[other] - means["sdp"])))
        images = labels.plural(int(net["input"].nunique()), "image")
        fidelity.append(f"{_NETS[network]}: one net, {images}, {int(net['samples'].max()):,} oracle samples")
    said = "; ".join((*fidelity, "the paper: 500 images, 5,000"))
    return Tried.of(effects, "image", said, "#resnet-tv")


RULES: Mapping[str, Rule] = {
    "resnet": _reduces,
}
