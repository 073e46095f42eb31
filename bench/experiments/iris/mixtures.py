"""Rules whose predictions are not Gaussian, compared with all others."""

from __future__ import annotations

from sdp_bench.bench.experiments.iris.nets import FOUR, SIGMAS
from sdp_bench.bench.experiments.laws import FULL_RULES, LawExperiment
from sdp_bench.bench.metrics.references import references
from sdp_bench.bench.settings import Size

SPLITS = (
    *(f"split:base=sdp,k={k}" for k in (9, 64)),
    *(f"split:base=divided_difference:step=1.25,k={k}" for k in (9, 64, 1024)),
)

MIXTURES = LawExperiment(
    name="iris-mixtures",
    description="mixtures of narrower laws, with all rules beside them (not in the paper)",
    title="Beyond one Gaussian",
    about="No Gaussian is near the law of the outputs where the noise is not small: the one with the "
    "oracle’s own mean and covariance shows how far the best of them gets. Splitting writes the input’s law "
    "as a mixture of up to k narrower ones and takes each through a base rule, all in one batch. Rules that "
    "place their points otherwise and Monte Carlo with a control variate stand here too.",
    rank=5,
    metrics=("tv_headline", "tv_class"),
    sigmas=SIGMAS,
    architectures=FOUR,
    rules=(
        *SPLITS,
        *FULL_RULES,
        *("cubature", "cubature:degree=5", "divided_difference"),
        *("monte_carlo:samples=100", "monte_carlo:samples=1000", "control_variate:samples=100"),
        *references(),
    ),
    presets={"quick": Size(1, 1, on_request=True)},
)
