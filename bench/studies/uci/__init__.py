"""Prediction intervals on regression sets: methods, nets, training and scores."""

from __future__ import annotations

from dataclasses import dataclass

from ...experiments.replicates import ReplicateExperiment
from ...settings import Size


@dataclass(frozen=True)
class Method:
    """A method to predict intervals."""

    objective: str  # training objective of its nets
    propagates: bool = False  # whether it uses noise of the inputs, whose variance is scanned
    own_variance: bool = False  # whether it uses a variance predicted by the net
    samples: int = 0  # number of noisy inputs that estimate the effect of noise; 0 if it is linearised
    members: int = 1  # number of nets whose predictions are mixed


METHODS = {
    "sdp": Method("squared_error", propagates=True),
    "sdp_nll": Method("sdp_nll", propagates=True),
    "sdp+pnn": Method("pnn", propagates=True, own_variance=True),
    "pnn": Method("pnn", own_variance=True),
    "ensemble:members=5": Method("pnn", own_variance=True, members=5),
    "sqr_ends": Method("sqr_ends"),
    "sqr": Method("sqr"),
    **{
        f"monte_carlo:samples={k}": Method("squared_error", propagates=True, samples=k)
        for k in (5, 10, 100, 1000)
    },
}
"""`sdp` propagates through a net trained by squared error; `sdp_nll` through one trained by the likelihood of
the propagated law. `sqr_ends` learns the two quantiles of its interval, as the published code of Tagasovska
and Lopez-Paz does, and `sqr` all of them, as in their text.
"""

LEVELS = (0.025, 0.975)
"""Levels of the quantiles that enclose the central 95 % of a law."""

READINGS = ("set_scan", "set_variance", None)
"""Readings of the paper's "(for each data set) used 11 variances [...] around the best initial variance", as
components of the measurements; the most literal reading comes first.

One scan per set: the best decade in one run (seed 0) and eleven variances around it; each seed selects among
these and the settings. One variance per set: the best of these eleven in the one run. And a separate scan for
each seed and setting, which has more candidates for few validation rows.
"""


PAPER = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "wine", "yacht")
"""The paper's data sets."""
EPOCHS = 5000
METRICS = (
    "qualified",
    "picp",
    "mpiw",
    "nll",
    "validation_picp",
    "validation_mpiw",
    "learning_rate",
    "weight_decay",
    "input_variance",
)

EXPERIMENT = ReplicateExperiment(
    name="uci",
    study="sdp_bench.bench.studies.uci.group",
    description="prediction intervals on eight regression sets (Tables 4, 38, 40)",
    rank=200,
    metrics=METRICS,
    rules=tuple(METHODS),
    paper=Size(nets=20, epochs=EPOCHS, datasets=PAPER),
    presets={
        "smoke": Size(epochs=20, datasets=("yacht",), on_request=True),
        "quick": Size(nets=3, epochs=500, datasets=("yacht", "boston"), on_request=True),
    },
    options=frozenset({"datasets", "device", "epochs", "nets"}),
)
