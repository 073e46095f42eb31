"""Training objectives of the robustness experiments."""

from __future__ import annotations

from functools import partial

from sdp_bench.bench.methods.classifiers.training import Objective
from sdp_bench.bench.noise import CAUCHY
from sdp_ref.rules import SDP, MarginalMomentMatching, MarginalSDP

_objective = partial(Objective, learning_rate=1e-4)

OBJECTIVES = (
    _objective("softmax"),
    # The net computes in float32, whose rounding errors exceed those of the short formulas.
    _objective("dirichlet", MarginalMomentMatching(precision=1e-5)),
    _objective("pairwise_gaussian", SDP()),
    _objective("pairwise_marginal", MarginalSDP()),
    _objective("pairwise_cauchy", MarginalSDP(), noise=CAUCHY),
)
"""Softmax cross-entropy, the Dirichlet likelihood of Gast & Roth, and the pairwise loss of a Gaussian with
and without covariances and of a Cauchy law, whose scales go from layer to layer as in the paper's theorem."""
