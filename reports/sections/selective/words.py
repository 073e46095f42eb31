"""Labels and styles of models, scores and their readings."""

from __future__ import annotations

from typing import NamedTuple

from sdp_bench.bench.studies import selective
from sdp_bench.reports.style.theme import LIGHT, Style, shade


class _Model(NamedTuple):
    """Label of a model by training objective, and style of its curves."""

    label: str
    dashes: tuple[float, ...] = ()


MODELS = {
    "softmax": _Model("softmax"),
    "dirichlet": _Model("Dirichlet", (4.0, 1.5)),
    "pairwise_gaussian": _Model("PD loss Gauss"),
    "pairwise_marginal": _Model("PD loss Gauss, marginal", (1.5, 1.5)),
    "pairwise_cauchy": _Model("PD loss Cauchy", (6.0, 1.5, 1.5, 1.5)),
}
SCORE_STYLES = {
    "softmax_entropy": Style("softmax entropy", "#d55e00", "s"),
    "orthonormal_certificates": Style("orthonormal certificates", "#8c564b", "X"),
    "dirichlet": Style("Dirichlet", shade("#e69f00", LIGHT), "D"),
    "pairwise_gaussian": Style("PD Gauss", "#009e73", "o"),
    "pairwise_cauchy": Style("PD Cauchy", "#0072b2", "^"),
}
# The paper has entropies of "the categorical probabilities of the Dirichlet outputs", and averages the losses
# of pairs: the geometric mean is the softmax of minus that average.
_FIRST = {"dirichlet": "mean", "pairwise_gaussian": "geometric", "pairwise_cauchy": "geometric"}
READINGS = {
    score: tuple(sorted(readings, key=lambda reading: reading != _FIRST.get(score)))
    for score, readings in selective.READINGS.items()
}
"""Readings of each score in the order of tables and rulings, the one closest to the paper's text first."""
_LABELS = {
    "orthonormal_certificates": "{} certificates",
    "law": "entropy of the law",
    "mean": "entropy of its mean",
    "concentration": "total concentration",
}


def reading_label(score: str, reading: str) -> str:
    """Label of a reading of a score; empty if there is only one."""
    if score in ("pairwise_gaussian", "pairwise_cauchy"):
        return f"{reading[3:]}, Gaussian scales" if reading.startswith("sd_") else reading
    return _LABELS.get(score, _LABELS.get(reading, "")).format(reading)
