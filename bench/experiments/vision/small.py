"""Small image classifiers of four kinds, attention among them, under pixel noise."""

from __future__ import annotations

from sdp_bench.bench.experiments.laws import FULL_RULES, MARGINAL_RULES, LawExperiment
from sdp_bench.bench.metrics.references import ORACLE_MOMENTS
from sdp_bench.bench.nets.architectures import architecture_of
from sdp_bench.bench.settings import Size

SIGMAS = (0.01, 0.03, 0.1, 0.3)
"""Noise levels on images in [0, 1]: from a few grey levels to the pixels' own spread (.31 in MNIST), at which
predicted classes change.
"""

LOGIT_METRICS = (
    "tv_principal:cells=64,pilot_samples=8192",
    "tv_output:output_bins=50,pilot_samples=8192",
    "tv_class",
    "tv_margin:pilot_samples=8192",
    "std_ratio",
    "bures_logits",
)
"""Metrics of ten scores: jointly, singly, the decision, and the moments."""

NETWORKS = ("vit", "convnext", "resnet8", "mixer")
EVENTS = ((1, 28, 28), (3, 32, 32))

VISION = LawExperiment(
    name="vision",
    description="ViT, ConvNeXt, ResNet, MLP-Mixer on MNIST and CIFAR-10 under pixel noise (not in the paper)",
    title="Small image classifiers",
    about="Pixel noise on test images in [0, 1], through four kinds of small nets: attention (ViT), "
    "convolutions with LayerNorm (ConvNeXt), convolutions with ReLU and max-pooling (ResNet-8), and mixing "
    "MLPs (MLP-Mixer). The smallest noise is a few grey levels; the largest, as large as the pixels’ own "
    "spread, changes the class.",
    rank=142,
    metrics=LOGIT_METRICS,
    sigmas=SIGMAS,
    rules=(
        *FULL_RULES,
        "split:base=sdp,k=16",
        *MARGINAL_RULES,
        *(f"monte_carlo:samples={k}" for k in (10, 100, 1000)),
        ORACLE_MOMENTS.name,
    ),
    paper=Size(1, 10, samples=50_000),
    presets={
        "smoke": Size(samples=4096, on_request=True),
        "quick": Size(1, 3, samples=10_000, on_request=True),
    },
    classifiers=tuple(architecture_of(network, event) for event in EVENTS for network in NETWORKS),
)
