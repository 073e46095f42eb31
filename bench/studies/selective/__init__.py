"""Selective prediction: classifiers of digits, and their uncertainty about each image."""

from __future__ import annotations

from ...experiments.replicates import ReplicateExperiment
from ...settings import Size

CERTIFICATES = (100, 1000, 5000)
"""Numbers of orthonormal certificates; the first is the default of the authors' code."""

COMBINED = ("mean", "geometric", "minimum")
"""Ways to combine pairwise probabilities into class scores."""
_BORROWED = tuple(f"sd_{name}" for name in COMBINED)
READINGS: dict[str, tuple[str, ...]] = {
    "softmax_entropy": ("",),
    "orthonormal_certificates": tuple(str(count) for count in CERTIFICATES),
    "dirichlet": ("law", "mean", "concentration"),
    "pairwise_gaussian": COMBINED,
    "pairwise_cauchy": (*COMBINED, *_BORROWED),
}
"""Scores, with the readings of what the paper does not state; the first reading is the default.

For certificates: their number. For a Dirichlet output: the entropy of the law itself, the entropy of its mean
(which is softmax(mean) and does not depend on the variance), or minus the logarithm of its total
concentration. For pairwise probabilities: how they are combined into class scores
(`sdp_ref.losses.pairwise_scores`), whose entropy is the uncertainty. For Cauchy pairs also the scales: those
of propagated Cauchy noise or, with ``sd_``, the standard deviations of the propagated Gaussian law, since the
paper reports Cauchy scores also for moment matching, which does not support Cauchy noise. In that case Cauchy
noise is propagated by marginal SDP.
"""

_PAIRS = ("softmax_entropy", "pairwise_gaussian", "pairwise_cauchy")
SCORES = {
    "softmax": (
        "softmax_entropy",
        "orthonormal_certificates",
        "dirichlet",
        "pairwise_gaussian",
        "pairwise_cauchy",
    ),
    "dirichlet": ("dirichlet", "pairwise_gaussian", "pairwise_cauchy"),
    "pairwise_gaussian": _PAIRS,
    "pairwise_marginal": _PAIRS,
    "pairwise_cauchy": _PAIRS,
}
"""Scores for each kind of model: those that the paper mentions, in its Table 5 or elsewhere. It does not
train the last two kinds for that table.
"""

SCALE = 0.01
"""Standard deviation of the input noise of the paper's Dirichlet model, in units of pixels in [0, 1]."""
OTHER_SCALES = (0.001, 0.1, 1.0)
"""Other scales for that model, since the paper reports its own scale as the best: decades, from one below it
to noise as large as the pixels.
"""


EPOCHS = 100
METRICS = ("rcauc", "accuracy", "risk")
"""Area under risk over coverage, by reading; accuracy on digits; the default reading's risk by coverage."""

EXPERIMENT = ReplicateExperiment(
    name="selective",
    study="sdp_bench.bench.studies.selective.group",
    description="selective prediction on digits with letters as out-of-distribution data (Tables 5, 39)",
    rank=210,
    metrics=METRICS,
    rules=tuple(READINGS),
    paper=Size(nets=10, epochs=EPOCHS),
    presets={
        "smoke": Size(on_request=True),
        "quick": Size(nets=1, samples=10_000, epochs=2, on_request=True),
    },
    options=frozenset({"device", "epochs", "nets", "samples"}),
)
