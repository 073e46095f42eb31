"""What the digit classifiers of selective prediction are trained by."""

from __future__ import annotations

from sdp_bench.bench.methods.classifiers import training
from sdp_bench.bench.methods.classifiers.training import Objective
from sdp_ref.rules import SDP, MarginalMomentMatching

OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("softmax"),
        Objective("dirichlet", MarginalMomentMatching(), 0.01),
        Objective("pairwise_gaussian", SDP(), 0.1),
    )
}
"""Softmax cross-entropy, the Dirichlet likelihood of Gast & Roth, and the pairwise (PD) loss."""
TRAINING = (*training.TRAINING, OBJECTIVES)
"""Code that decides what is trained."""
