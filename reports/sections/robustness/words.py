"""Names of objectives and data sets, and findings on robust accuracies."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sdp_bench.reports.sections.robustness.row import ScaleRow
from sdp_bench.reports.style.labels import number
from sdp_bench.reports.style.theme import INK, LIGHT, Style, shade

SETS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
OBJECTIVES = {
    "softmax": Style("softmax cross-entropy", INK, "p"),
    "dirichlet": Style("Dirichlet, marginal moment matching", shade("#e69f00", LIGHT), "D"),
    "pairwise_gaussian": Style("PD Gauss, SDP", "#009e73", "o"),
    "pairwise_marginal": Style("PD Gauss, marginal SDP", shade("#56b4e9", LIGHT), "s"),
    "pairwise_cauchy": Style("PD Cauchy", "#0072b2", "^"),
}
"""Black is the baseline, as in the paper's figures."""
PAPER = {"pairwise_gaussian": 85, "softmax": 14}
"""Accuracies (per cent) under PGD within 16/255 on MNIST that the paper prints."""
_HIDDEN = 5.0
"""Lead in points of a gradient-free attack that indicates masked gradients."""


def finding(title: str, best: Sequence[ScaleRow], radius: str) -> str:
    """Finding in words, compared with the paper's, from each objective at its best scale."""
    rows = {name: row for name, style in OBJECTIVES.items() for row in best if row.objective == style.label}
    parts = []
    for name, printed in PAPER.items():
        row = rows.get(name)
        if row and not math.isnan(row.required):
            scale = f" at scale {row.scale:g}" if row.scale else ""
            paper = f" (the paper: {printed} %)" if title == SETS["mnist"] else ""
            parts.append(f"{number(row.required, 1)} % for {row.objective}{scale}{paper}")
    text = ""
    if parts:
        text = (
            f"On {title}, PGD within {radius}, with an attack counted as successful where its gradient is "
            f"zero, leaves {' and '.join(parts)}."
        )
    searched = [row for row in rows.values() if not math.isnan(row.square) and not math.isnan(row.required)]
    less = [row for row in searched if row.square < row.required - _HIDDEN]
    if less:
        shown = ", ".join(f"{row.objective} {number(row.square, 1)} %" for row in less)
        text += (
            f" The Square attack, which needs no gradient, leaves less for {len(less)} of {len(searched)}: "
            f"{shown}."
        )
    elif searched:
        text += (
            " The Square attack, which needs no gradient, leaves at most 5 points less for any of them: "
            "there vanishing gradients hide little from what is counted so."
        )
    leaders = [row for row in rows.values() if not math.isnan(row.weakest)]
    if leaders:
        first = max(leaders, key=lambda row: row.weakest)
        text += (
            f" By the weakest that any of the attacks leaves, the most robust is {first.objective}, "
            f"{number(first.weakest, 1)} %."
        )
    return text.strip()


def hidden(rows: Sequence[ScaleRow]) -> str:
    """Case in which vanishing gradients mislead PGD on the own loss most; empty if the effect is small."""
    known = [row for row in rows if not math.isnan(row.own - row.square)]
    most = max(known, key=lambda row: row.own - row.square, default=None)
    if most is None or most.own - most.square <= _HIDDEN:
        return ""
    scale = f" at scale {most.scale:g}" if most.scale else ""
    return (
        f"Gradients hide most from PGD as it is for {most.objective}{scale}: it leaves "
        f"{number(most.own, 1)} %, the Square attack {number(most.square, 1)} %, and PGD with gradients that "
        f"are not zero {number(most.required, 1)} %."
    )
