"""Experiments on nets that classify Iris flowers; most of the paper's experiments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..metrics.references import ORACLE_AGAIN, ORACLE_MOMENTS, references
from ..nets.architectures import Architecture
from ..nets.recipes import Recipe
from ..noise import CAUCHY, GAUSSIAN, noise_of
from ..settings import Size
from .laws import (
    ALL_RULES,
    FULL_RULES,
    MARGINAL_RULES,
    REGULAR_DVIA,
    LawExperiment,
)

SIGMAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
W1_SIGMAS = (0.01, 0.1, 1.0)


def architectures(**depths: Sequence[int]) -> tuple[Architecture, ...]:
    """Return nets with hidden layers of 100 units, given depths by activation: ``relu=(1, 2)``."""
    nets = []
    for activation, depths_of_kind in depths.items():
        nets += [Architecture(depth, activation) for depth in depths_of_kind]
    return tuple(nets)


RELU = architectures(relu=(1, 2, 4, 6))
FOUR = architectures(relu=(4,))


SENSITIVITY = LawExperiment(
    name="iris-sensitivity",
    description="Table 1 under other recipes, bins and cells",
    rank=100,
    metrics=(
        "tv_headline",
        "tv_paper",
        "tv_class",
        "tv_headline:cells=64",
        "tv_headline:cells=4096",
        "tv_paper:bins=5",
        "tv_paper:bins=20",
        "tv_paper:bin_range=minmax",
        "tv_paper:bin_range=joint",
        "tv_single",
        "tv_single:bins=20",
        "std_ratio",
    ),
    sigmas=SIGMAS,
    architectures=FOUR,
    rules=(
        "sdp",
        "dvia",
        "dvia:means=regular_covariance",
        "moment_matching",
        "marginal_sdp",
        "monte_carlo:samples=100",
    ),
    paper=Size(5, 3),
    presets={"quick": Size(1, 1, on_request=True)},
    recipes=(
        Recipe("sgd", 1e-2),
        Recipe("adam", 1e-4),
        Recipe("adam", 1e-3),
        Recipe("sgd", 1e-2, features="standardised"),
        Recipe("adam", 1e-3, features="standardised"),
    ),
)


GAMMAS = (0.01, 0.1, 1.0)
"""Cauchy scales.

Flowers are measured to 0.1 cm, and classes lie about 1 cm apart. The scales put nearly all mass near the
flower, are as large as rounding (yet with 6 % of the mass beyond 1 cm), and as large as the distance of
classes. From 10 on, nearly all mass is far from every flower, where a net is linear along each ray.
"""

HEAVY_TAILS = LawExperiment(
    name="iris-cauchy",
    description="Cauchy noise on ReLU nets: total variation and quantiles (not in the paper)",
    title="Cauchy noise",
    about="Cauchy noise of scale γ on every input. It has neither mean nor variance, and W1 between laws of "
    "different scales is infinite. Laws are therefore compared by shared mass and quantiles. SDP predicts a "
    "Cauchy law of scale |J|γ for each output, and the law of f(x) + Jε for all outputs jointly, which is "
    "sampled here. Marginal SDP assumes independent outputs. The paper proposes SDP for Cauchy noise but has "
    "no numbers to compare with.",
    rank=130,
    metrics=("tv_joint", "tv_output", "tv_class", "quantile_mean", "quantile_max", "iqr_ratio"),
    sigmas=GAMMAS,
    architectures=RELU,
    rules=("sdp", "marginal_sdp", ORACLE_AGAIN.name),
    presets={"quick": Size(1, 1)},
    noises=(CAUCHY,),
)


_CLAIM_RULES = ("sdp", "dvia", "moment_matching", *MARGINAL_RULES, *REGULAR_DVIA, "monte_carlo:samples=100")

CLAIMS = LawExperiment(
    name="iris-claims",
    description="the paper's claims: nets as replicates, with different inputs for each net",
    rank=70,
    metrics=("tv_headline", "tv_paper", "tv_paper:bin_range=joint", "tv_single", "tv_class", "std_ratio"),
    sigmas=SIGMAS,
    architectures=FOUR,
    rules=_CLAIM_RULES,
    paper=Size(30, 3),
    presets={"quick": Size(4, 1, on_request=True)},
    own_inputs=True,
)

WASSERSTEIN = LawExperiment(
    name="iris-claims-w1",
    description="the paper's claims about Wasserstein-1 distances",
    rank=80,
    metrics=("w1",),
    sigmas=W1_SIGMAS,
    architectures=architectures(relu=(4, 6)),
    rules=_CLAIM_RULES[:-1],
    paper=Size(30, 1),
    presets={"quick": Size(3, 1, on_request=True)},
    own_inputs=True,
)

OTHER_RECIPE = replace(
    CLAIMS,
    name="iris-claims-recipe",
    description="the paper's claims on nets with another training recipe",
    rank=90,
    paper=Size(30, 1),
    recipes=(Recipe("adam", 1e-3),),
)

STANDARDISED = replace(
    CLAIMS,
    name="iris-claims-features",
    description="the paper's claims on nets trained on standardised features",
    rank=95,
    paper=Size(30, 1),
    recipes=(Recipe(features="standardised"),),
)

OTHER_WASSERSTEIN = replace(
    WASSERSTEIN,
    name="iris-claims-w1-recipes",
    description="Wasserstein-1 distances on nets with other training recipes",
    rank=97,
    architectures=FOUR,
    paper=Size(10, 1),
    presets={"quick": Size(1, 1, on_request=True)},
    recipes=SENSITIVITY.recipes[1:],
)


LOCATIONS = LawExperiment(
    name="iris-location",
    description="class of a rule's location compared with that of a plain pass (Section 2)",
    title="Location and class",
    about="Share of inputs for which propagation changes the predicted class of a net trained without noise.",
    rank=65,
    metrics=("moved_class",),
    sigmas=SIGMAS,
    architectures=RELU,
    rules=(*FULL_RULES, *MARGINAL_RULES, "monte_carlo:samples=100"),
    # the metric uses no samples, so the oracle is minimal
    paper=Size(10, 10, samples=1000),
    presets={"quick": Size(3, 10, samples=1000)},
)


SPLITS = (
    "split:base=sdp,k=9",
    "split:base=sdp,k=64",
    "split:base=divided_difference:step=1.25,k=9",
    "split:base=divided_difference:step=1.25,k=64",
    "split:base=divided_difference:step=1.25,k=1024",
)

MIXTURES = LawExperiment(
    name="iris-mixtures",
    description="mixtures of narrower laws, compared with all rules (not in the paper)",
    title="Beyond one Gaussian",
    about="Unless the noise is small, no Gaussian is close to the law of the outputs, not even the one with "
    "the oracle’s mean and covariance. Splitting approximates the input law by a mixture of up to k "
    "narrower laws and propagates each by a base rule, in one batch. The tables also have other rules that "
    "evaluate points, and Monte Carlo with a control variate.",
    rank=5,
    metrics=("tv_headline", "tv_class"),
    sigmas=SIGMAS,
    architectures=FOUR,
    rules=(
        *SPLITS,
        *FULL_RULES,
        "cubature",
        "cubature:degree=5",
        "divided_difference",
        "monte_carlo:samples=100",
        "monte_carlo:samples=1000",
        "control_variate:samples=100",
        *references(),
    ),
    presets={"quick": Size(1, 1, on_request=True)},
)


STANDARD_DEVIATIONS = LawExperiment(
    name="iris-std",
    description="ratio of predicted to true standard deviations, and distances of moments (Table 28)",
    title="Moments",
    about="Errors of the predicted standard deviations, and of mean and covariance jointly.",
    rank=60,
    metrics=("std_ratio", "bures", "gaussian_kl", "min_eigenvalue"),
    sigmas=SIGMAS,
    architectures=RELU,
    rules=(*ALL_RULES[:-1], *REGULAR_DVIA),
    presets={"quick": Size(1, 1)},
)


NOISE_SIGMAS = (0.1, 1.0, 10.0)
"""Noise as large as rounding, as the distance between classes, and far beyond."""

FAMILIES = (GAUSSIAN, *map(noise_of, ("laplace", "uniform", "student_t:5", "mixture:0.9*1+0.1*5")))
"""Families with tails from none to heavy; in the mixture, one flower in ten has five times the error."""

OTHER_FAMILIES = LawExperiment(
    name="iris-noise",
    description="five noise families with equal variance (not in the paper)",
    title="Noise of other families",
    about="The rules assume Gaussian noise. Here the noise has the same mean and variance in five families: "
    "Gaussian, Laplace, uniform, Student’s t with 5 degrees of freedom, and a mixture. In the mixture, one "
    "flower in ten has noise with five times the standard deviation in all components. Rules based on "
    "moments replace every family by a Gaussian, so their prediction is the same for all five. The loss of "
    "accuracy compared with the Gaussian tables is the cost of this assumption. The paper has numbers for "
    "the Gaussian tables only.",
    rank=135,
    metrics=("tv_headline", "tv_class", "std_ratio", "quantile_mean", "quantile_max"),
    sigmas=NOISE_SIGMAS,
    architectures=FOUR,
    noises=FAMILIES,
    presets={"quick": Size(1, 1, on_request=True)},
)


AGAIN = LawExperiment(
    name="iris-oracle",
    description="the oracle's own error: a second, independent oracle instead of a rule",
    rank=110,
    metrics=("tv_headline", "tv_paper", "tv_class", "std_ratio"),
    sigmas=SIGMAS[::2],
    architectures=FOUR,
    rules=("sdp", "moment_matching", ORACLE_AGAIN.name),
    paper=Size(2, 1),
    presets={"quick": Size(1, 1)},
)

TEN_TIMES = replace(
    AGAIN,
    name="iris-oracle-10x",
    description="the same measurements with ten times the samples",
    rank=120,
    presets={"quick": Size(1, 1, on_request=True)},
    scale=10,
)


SCORES = LawExperiment(
    name="iris-scores",
    description="proper scores, intervals and tail probabilities on ReLU nets (not in the paper)",
    title="Scores, intervals and tails",
    about="Value of a prediction for decisions: proper scores, coverage of its intervals, and probabilities "
    "of rare outputs.",
    rank=65,
    metrics=("log_score", "crps", "energy_score", "coverage", "interval_width", "tails"),
    sigmas=SIGMAS[:3],
    architectures=FOUR,
    presets={"quick": Size(1, 1, on_request=True)},
)


_ABOUT = (
    "Probability mass that the predicted and the true output law share; 1 is perfect. The row “exact law” "
    "has the value of the exact law, which is below 1 because both laws are sampled."
)
_METRICS = ("tv_headline", "tv_paper", "tv_class")
_OF_RELU = (*_METRICS, "tv_paper:bin_range=joint", "tv_single")

RELU_NETS = LawExperiment(
    name="iris-tv",
    description="total variation on ReLU nets (paper: Tables 1, 7-10, 15-18)",
    title="Total variation",
    about=_ABOUT,
    rank=10,
    metrics=(*_OF_RELU, "tv_difference"),
    rules=(*ALL_RULES, *REGULAR_DVIA),
    sigmas=SIGMAS,
    architectures=RELU,
    presets={"quick": Size(1, 1)},
)

DEEP_NETS = replace(
    RELU_NETS,
    name="iris-tv-deep",
    description="total variation on deep ReLU nets (Tables 11-14)",
    title="Total variation, deep nets",
    rank=20,
    metrics=_OF_RELU,
    sigmas=SIGMAS[:4],
    architectures=architectures(relu=(9, 14, 19, 24)),
    presets={"quick": Size(1, 1, depths=(9,))},
)

OTHER_ACTIVATIONS = LawExperiment(
    name="iris-tv-activations",
    description="total variation with other non-linearities (Tables 23-27, 29-36)",
    title="Total variation, other non-linearities",
    about=_ABOUT + " The paper has no moment matching for SiLU and GELU, and DVIA for ReLU only, so "
    "there are no printed values for these columns.",
    rank=30,
    metrics=_METRICS,
    sigmas=SIGMAS,
    architectures=architectures(leaky_relu=(1, 2, 4, 6), sigmoid=(4,), silu=(1, 2, 4, 6), gelu=(1, 2, 4, 6)),
    presets={"quick": Size(1, 1, depths=(4,))},
)


SAMPLED = LawExperiment(
    name="iris-w1",
    description="Wasserstein-1 distance on ReLU nets (Tables 2, 19-22)",
    title="Wasserstein distance",
    about="Distance between prediction and truth, in units of the outputs.",
    rank=40,
    metrics=("w1",),
    sigmas=W1_SIGMAS,
    architectures=RELU,
    rules=(*FULL_RULES, *MARGINAL_RULES, *REGULAR_DVIA, ORACLE_MOMENTS.name),
    presets={"quick": Size(1, 1)},
)

CERTIFIED = replace(
    SAMPLED,
    name="iris-w1-certified",
    description="Wasserstein-1 distance with 30,000 points per side and proven bounds",
    title="Wasserstein distance, 30,000 points",
    about="Distance between prediction and truth with the paper’s number of points, between proven bounds.",
    rank=50,
    metrics=("w1_certified",),
    rules=("sdp", "dvia", "moment_matching", *MARGINAL_RULES, *REGULAR_DVIA),
    paper=Size(10, 3),  # a flower of each class
)
