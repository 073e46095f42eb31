"""The effect of recipes, bins and cells."""

from __future__ import annotations

from sdp_bench.bench.experiments.iris.nets import FOUR, SIGMAS
from sdp_bench.bench.experiments.laws import LawExperiment
from sdp_bench.bench.nets.recipes import Recipe
from sdp_bench.bench.settings import Size

SENSITIVITY = LawExperiment(
    name="iris-sensitivity",
    description="Table 1 under other recipes, bins and cells",
    rank=100,
    metrics=(
        *("tv_headline", "tv_paper", "tv_class"),
        *("tv_headline:cells=64", "tv_headline:cells=4096"),
        *("tv_paper:bins=5", "tv_paper:bins=20", "tv_paper:bin_range=minmax", "tv_paper:bin_range=joint"),
        *("tv_single", "tv_single:bins=20"),
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
