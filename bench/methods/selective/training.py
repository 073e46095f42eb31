"""Training objectives of the digit classifiers."""

from __future__ import annotations

from sdp_bench.bench.methods.classifiers.training import Objective
from sdp_bench.bench.methods.selective import OTHER_SCALES, SCALE
from sdp_bench.bench.noise import CAUCHY
from sdp_ref.rules import SDP, MarginalMomentMatching, MarginalSDP

OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("softmax"),
        Objective("dirichlet", MarginalMomentMatching(), SCALE),
        Objective("pairwise_gaussian", SDP(), 0.1),
        Objective("pairwise_marginal", MarginalSDP(), 0.1),
        Objective("pairwise_cauchy", SDP(), 0.1, CAUCHY),
    )
}
"""Softmax cross-entropy, the Dirichlet likelihood of Gast & Roth, and the pairwise (PD) loss of a Gaussian
with and without covariances and of a Cauchy law.
"""


def models() -> tuple[Objective, ...]:
    """Return all trained models: each objective, and the Dirichlet likelihood also at other scales."""
    return (*OBJECTIVES.values(), *OBJECTIVES["dirichlet"].at(OTHER_SCALES))
