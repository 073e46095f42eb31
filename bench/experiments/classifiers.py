"""Experiments on classifiers of images and sequences."""

from __future__ import annotations

from ..metrics.references import ORACLE_MOMENTS
from ..nets.architectures import ImageArchitecture, SequenceArchitecture, architecture_of
from ..settings import Size
from .laws import FULL_RULES, MARGINAL_RULES, LawExperiment

VISION_SIGMAS = (0.01, 0.03, 0.1, 0.3)
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

_PRESETS = {
    "smoke": Size(samples=4096, on_request=True),
    "quick": Size(1, 3, samples=10_000, on_request=True),
}

NETWORKS = ("vit", "convnext", "resnet8", "mixer")
EVENTS = ((1, 28, 28), (3, 32, 32))

VISION = LawExperiment(
    name="vision",
    description="ViT, ConvNeXt, ResNet, MLP-Mixer on MNIST and CIFAR-10 under pixel noise (not in the paper)",
    title="Small image classifiers",
    about="Pixel noise on test images in [0, 1]. There are four small nets: ViT (attention), ConvNeXt "
    "(convolutions with LayerNorm), ResNet-8 (convolutions with ReLU and max-pooling), and MLP-Mixer. "
    "The smallest noise is a few grey levels. The largest is the standard deviation of the pixels and "
    "changes the class.",
    rank=142,
    metrics=LOGIT_METRICS,
    sigmas=VISION_SIGMAS,
    rules=(
        *FULL_RULES,
        "split:base=sdp,k=16",
        *MARGINAL_RULES,
        "monte_carlo:samples=10",
        "monte_carlo:samples=100",
        "monte_carlo:samples=1000",
        ORACLE_MOMENTS.name,
    ),
    paper=Size(1, 10, samples=50_000),
    presets=_PRESETS,
    classifiers=tuple(architecture_of(network, event) for event in EVENTS for network in NETWORKS),
)


RESNET_SIGMAS = (0.01, 0.02, 0.05, 0.1)
"""Noise levels on images in [0, 1]."""

RESNET = LawExperiment(
    name="resnet-tv",
    description="class distributions and logits of ResNet-18 on CIFAR-10 under pixel noise (Tables 3, 37)",
    title="ResNet-18 on CIFAR-10",
    about="Pixel noise on test images in [0, 1]. The page Nets lists training and accuracy of our nets. "
    "They differ from the paper’s net, so the numbers can differ too. The paper’s net has max-pooling and "
    "an unspecified stem. One of our nets has torchvision’s stem, and one has no pooling, as is usual for "
    "small images. The class probabilities of a predicted Gaussian are computed by sampling; the paper does "
    "not state its method. Below the floor’s 95 % point a rule is indistinguishable from the exact law. In "
    "the paper’s Table 37 each standard deviation over images exceeds the mean, so a run on fewer than the "
    "paper’s 500 images is a demonstration.",
    rank=140,
    metrics=(
        "tv_class",
        "tv_margin:pilot_samples=1000",
        "tv_pairs:pilot_samples=1000",
        "tv_sliced",
        "energy",
        "bures_logits",
    ),
    sigmas=RESNET_SIGMAS,
    rules=("sdp", *MARGINAL_RULES, "monte_carlo:samples=10", ORACLE_MOMENTS.name),
    paper=Size(1, 500, samples=5000),
    presets={"quick": Size(1, 4, samples=500, on_request=True)},
    classifiers=(ImageArchitecture("resnet18_max_pool"), ImageArchitecture("resnet18")),
)


SEQUENCE_SIGMAS = (0.03, 0.1, 0.3, 1.0)
"""Noise levels for points at distances from .5 to 1.5 of the origin with noise of .1 in the data: below that
noise, equal to it, above it, and as large as the signal.
"""

SEQUENCE = LawExperiment(
    name="sequence",
    description="a GRU and a causal decoder on sequences of rotations (not in the paper)",
    title="Sequences",
    about="A point in the plane rotates by one of ten angles per step, for eight steps. The class is the "
    "angle. All coordinates are noisy. The nets are a GRU, and a causal decoder like Llama (attention, "
    "RMSNorm, SwiGLU).",
    rank=144,
    metrics=LOGIT_METRICS,
    sigmas=SEQUENCE_SIGMAS,
    rules=(
        *FULL_RULES,
        "split:base=sdp,k=64",
        "split:base=unscented,k=64",
        *MARGINAL_RULES,
        "monte_carlo:samples=10",
        "monte_carlo:samples=100",
        "monte_carlo:samples=1000",
        "control_variate:samples=100",
        ORACLE_MOMENTS.name,
    ),
    paper=Size(1, 20, samples=50_000),
    presets=_PRESETS,
    classifiers=(SequenceArchitecture("gru"), SequenceArchitecture("decoder")),
)
