"""What the paper says of ResNet-18 on CIFAR-10."""

from __future__ import annotations

from collections.abc import Mapping

from sdp_bench.reports.replication.statement import (
    Effect,
    Evidence,
    Rule,
    Tried,
    finite,
    paired,
    tried,
)


def _reduces(evidence: Evidence) -> Tried | None:
    frame = evidence.of("resnet-tv", metric="tv_class")
    effects = []
    for sigma, own in frame.groupby("sigma"):
        means = paired(own, ("net", "input"))
        for other in ("marginal_sdp", "marginal_moment_matching"):
            if {"sdp", other} <= set(means):
                name = f"TV of {evidence.results.traits.label(other)} less that of SDP, σ = {sigma:g}"
                effects.append(Effect(name, finite(means[other] - means["sdp"])))
    samples = int(frame["samples"].max()) if len(frame) else 0
    images = frame["input"].nunique()
    fidelity = f"one net, {images} images, {samples:,} oracle samples; the paper: 500 images, 5,000"
    return tried(effects, "image", fidelity, "#resnet-tv")


RULES: Mapping[str, Rule] = {
    "resnet": _reduces,
}
