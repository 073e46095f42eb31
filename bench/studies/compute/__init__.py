"""Equal compute: rules against samplers of the same cost, in operations and processor time."""

from __future__ import annotations

from ...experiments.replicates import ReplicateExperiment
from ...settings import Size

ACTIVATIONS = ("relu", "gelu")
TRAININGS = ("trained", "random")
WIDTHS = (16, 64, 256, 1024)
KINK_DISTANCES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Noise levels, in units of the median distance of a unit's kink from the input."""
SAMPLERS = ("plain", "antithetic", "sobol", "control_variate", "whitened", "whitened_sobol")
SIZES = (16, 256, 4096)
RULES = (
    *("sdp", "dvia", "moment_matching", "third_cumulants", "edgeworth", "low_rank", "second_order"),
    *("marginal_sdp", "marginal_moment_matching", "marginal_sigma_points", "unscented"),
)
USES = ("mean", "standard_deviation", "whole_distribution", "class", "tail")
BRIER = "brier"
"""Metric of the class: the mean squared distance of its probabilities, with the oracle's noise subtracted."""
BATCH = 8
"""Inputs of the batch in which methods are timed, in addition to a single input."""


EXPERIMENT = ReplicateExperiment(
    name="compute",
    study="sdp_bench.bench.studies.compute.group",
    description="rules and samplers at equal cost, by depth, width and noise (not in the paper)",
    title="Equal compute",
    rank=240,
    metrics=("operations", *USES, BRIER, "accuracy", "noise", "kinks", "seconds"),
    rules=(
        "regular",
        "oracle",
        *RULES,
        *(f"{sampler}:samples={size}" for sampler in SAMPLERS for size in SIZES),
    ),
    paper=Size(nets=2, samples=2**17, depths=(1, 2, 4, 8, 16, 32)),
    presets={
        "smoke": Size(nets=1, samples=2**12, depths=(1,), on_request=True),
        "quick": Size(nets=1, samples=2**15, depths=(1, 4), on_request=True),
    },
    options=frozenset({"activation", "depths", "nets", "samples", "width"}),
)
