"""ResNet-18 under pixel noise."""

from __future__ import annotations

from sdp_bench.bench.experiments.laws import MARGINAL_RULES, LawExperiment
from sdp_bench.bench.metrics.references import ORACLE_MOMENTS
from sdp_bench.bench.nets.architectures import ImageArchitecture
from sdp_bench.bench.settings import Size

SIGMAS = (0.01, 0.02, 0.05, 0.1)
"""Noise levels on images in [0, 1]."""

RESNET = LawExperiment(
    name="resnet-tv",
    description="class distributions and logits of ResNet-18 on CIFAR-10 under pixel noise (Tables 3, 37)",
    title="ResNet-18 on CIFAR-10",
    about="Pixel noise on test images in [0, 1]. The nets are not the paper’s (see Nets for their training "
    "and accuracy), so their numbers need not be the paper’s. Its net has a max-pool, and a stem of which it "
    "says nothing: torchvision’s here, and beside it a net without pooling, as is usual for small images. A "
    "rule’s Gaussian over the ten scores becomes a distribution of classes by sampling; how the paper does "
    "it is left open there. Below the floor’s 95 % point a rule cannot be told from the exact law there. In "
    "the paper’s Table 37 each standard deviation over images is larger than the mean: a run on fewer than "
    "the paper’s 500 images is a demonstration.",
    rank=140,
    metrics=(
        "tv_class",
        "tv_margin:pilot_samples=1000",
        "tv_pairs:pilot_samples=1000",
        "tv_sliced",
        "energy",
        "bures_logits",
    ),
    sigmas=SIGMAS,
    rules=("sdp", *MARGINAL_RULES, "monte_carlo:samples=10", ORACLE_MOMENTS.name),
    paper=Size(1, 500, samples=5000),
    presets={"quick": Size(1, 4, samples=500, on_request=True)},
    classifiers=(ImageArchitecture("resnet18_max_pool"), ImageArchitecture("resnet18")),
)
