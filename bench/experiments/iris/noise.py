"""Noise that violates the rules' assumptions: Iris nets under five families with equal variance."""

from __future__ import annotations

from sdp_bench.bench.experiments.iris.nets import FOUR
from sdp_bench.bench.experiments.laws import LawExperiment
from sdp_bench.bench.noise import GAUSSIAN, noise_of
from sdp_bench.bench.settings import Size

SIGMAS = (0.1, 1.0, 10.0)
"""Noise as large as rounding, as the distance between classes, and far beyond."""

FAMILIES = (GAUSSIAN, *map(noise_of, ("laplace", "uniform", "student_t:5", "mixture:0.9*1+0.1*5")))
"""Families with tails from none to heavy; in the mixture, one flower in ten has five times the error."""

OTHER_FAMILIES = LawExperiment(
    name="iris-noise",
    description="noise that is not Gaussian: five families of one variance (not in the paper)",
    title="Noise of other families",
    about="The rules assume Gaussian noise. Here the noise on each flower has one mean and variance in five "
    "families: Gaussian, Laplace, uniform, Student’s t with 5 degrees of freedom, and a mixture in which one "
    "flower in ten is measured five times as badly as the others, in all its lengths. Rules of moments take "
    "each of them for the Gaussian with its mean and covariance, so they predict one law five times, and "
    "only the truth moves. What a rule loses from the Gaussian tables to the others is what its assumption "
    "costs. The paper does not ask this; what it prints stands beside the Gaussian tables alone.",
    rank=135,
    metrics=("tv_headline", "tv_class", "std_ratio", "quantile_mean", "quantile_max"),
    sigmas=SIGMAS,
    architectures=FOUR,
    noises=FAMILIES,
    presets={"quick": Size(1, 1, on_request=True)},
)
