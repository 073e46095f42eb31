"""The paper's claims, with nets as independent replicates."""

from __future__ import annotations

from dataclasses import replace

from sdp_bench.bench.experiments.iris.nets import FOUR, SIGMAS, W1_SIGMAS, architectures
from sdp_bench.bench.experiments.iris.sensitivity import SENSITIVITY
from sdp_bench.bench.experiments.laws import MARGINAL_RULES, REGULAR_DVIA, LawExperiment
from sdp_bench.bench.nets.recipes import Recipe
from sdp_bench.bench.settings import Size

_RULES = ("sdp", "dvia", "moment_matching", *MARGINAL_RULES, *REGULAR_DVIA, "monte_carlo:samples=100")

CLAIMS = LawExperiment(
    name="iris-claims",
    description="the paper's claims: nets as replicates, each with inputs of its own",
    rank=70,
    metrics=("tv_headline", "tv_paper", "tv_paper:bin_range=joint", "tv_single", "tv_class", "std_ratio"),
    sigmas=SIGMAS,
    architectures=FOUR,
    rules=_RULES,
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
    rules=_RULES[:-1],
    paper=Size(30, 1),
    presets={"quick": Size(3, 1, on_request=True)},
    own_inputs=True,
)

OTHER_RECIPE = replace(
    CLAIMS,
    name="iris-claims-recipe",
    description="the paper's claims on nets trained in another way",
    rank=90,
    paper=Size(30, 1),
    recipes=(Recipe("adam", 1e-3),),
)

STANDARDISED = replace(
    CLAIMS,
    name="iris-claims-features",
    description="the paper's claims on nets of standardised features",
    rank=95,
    paper=Size(30, 1),
    recipes=(Recipe(features="standardised"),),
)

OTHER_WASSERSTEIN = replace(
    WASSERSTEIN,
    name="iris-claims-w1-recipes",
    description="Wasserstein-1 distances on nets trained in other ways",
    rank=97,
    architectures=FOUR,
    paper=Size(10, 1),
    presets={"quick": Size(1, 1, on_request=True)},
    recipes=SENSITIVITY.recipes[1:],
)
