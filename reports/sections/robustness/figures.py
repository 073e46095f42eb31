"""Figures of robustness: accuracies over the scale in training, and under each attack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pandas as pd

from sdp_bench.bench.studies.robustness import METRICS, RADII
from sdp_bench.reports.sections.robustness.words import OBJECTIVES, SETS
from sdp_bench.reports.style.figure import Figure, look, panels
from sdp_bench.reports.style.scales import DASHED, DOTTED, Line, draw_over_scale
from sdp_bench.reports.style.theme import Style

_NOISE = ("0.5", "0.75")
_ATTACKS = (
    ("clean", METRICS[0], Style("no attack", "#7a7a7a", "p")),
    ("pgd_own", METRICS[0], Style("PGD, own loss", "#0072b2", "o")),
    ("pgd_own", METRICS[1], Style("the same, gradient not zero", "#0072b2", "s", DASHED)),
    ("pgd_own", METRICS[2], Style("the same, at no pixel", "#0072b2", "^", DOTTED)),
    ("pgd_ce", METRICS[0], Style("PGD, cross-entropy", "#009e73", "D")),
    ("square", METRICS[0], Style("Square attack", "#d55e00", "X")),
)
"""Method, metric, and style of the line."""


def figures(name: str, table: pd.DataFrame, spread: pd.DataFrame) -> Iterator[Figure]:
    """Yield the figures of a data set: accuracies under noise and attack as in the paper, and all attacks.

    `table` and `spread` are means over runs and standard deviations, from `accuracies`.
    """
    strengths = [
        *((f"noise of σ = {sigma}", "noise", sigma) for sigma in _NOISE),
        *((f"PGD within {radius}/255", "pgd", f"{radius}/255") for radius in reversed(RADII[name])),
        *((f"Square attack within {radius}/255", "square", f"{radius}/255") for radius in RADII[name][-1:]),
    ]
    drawn = {
        title: list(_accuracies(table, spread, method, strength)) for title, method, strength in strengths
    }
    drawn = {title: lines for title, lines in drawn.items() if any(line.style.dashes for line in lines)}
    if drawn:
        yield _figure(
            f"figure-robustness-{name}",
            f"{SETS[name]}: accuracy and robust accuracy",
            "Solid: test accuracy. Dashed: accuracy under noise or attack; of PGD, on the model’s own loss, "
            "an attack with a zero gradient counts as successful. Softmax has no scale.",
            drawn,
            [style for objective, style in OBJECTIVES.items() if objective in table.index],
        )
    drawn = dict(_attacks(name, table, spread))
    if drawn:
        yield _figure(
            f"figure-attacks-{name}",
            f"{SETS[name]}: accuracy under each attack",
            f"Accuracy within {RADII[name][-1]}/255 of the images: attacks on the loss that a model "
            "was trained by and on cross-entropy, with and without the requirement that gradients are not "
            "zero, and one without gradients.",
            drawn,
            [style for _, _, style in _ATTACKS],
        )


@look()
def _figure(
    anchor: str, title: str, caption: str, drawn: Mapping[str, list[Line]], legend: Iterable[Style]
) -> Figure:
    drawing, every = panels(list(drawn), legend)
    words = [
        f"Line chart for {name}: {draw_over_scale(axes, lines)}."
        for axes, (name, lines) in zip(every, drawn.items(), strict=True)
    ]
    return Figure(anchor, title, caption, " ".join(words), drawing)


def _accuracies(table: pd.DataFrame, spread: pd.DataFrame, method: str, strength: str) -> Iterator[Line]:
    """Test accuracy of every objective, and accuracy under noise or attack."""
    for objective, style in OBJECTIVES.items():
        if objective not in table.index:
            continue
        own = table.loc[objective]
        attack = ("pgd_ce" if objective == "softmax" else "pgd_own") if method == "pgd" else method
        metric = METRICS[1] if method == "pgd" else METRICS[0]
        for column, dashes, what in (
            (("clean", METRICS[0], ""), (), "accuracy"),
            ((attack, metric, strength), DASHED, "left"),
        ):
            if column in own and own[column].notna().any():
                around = spread.loc[objective].get(column) if objective in spread.index else None
                yield Line(
                    replace(style, dashes=dashes), f"{style.label}, {what}", own[column].dropna(), around
                )


def _attacks(name: str, table: pd.DataFrame, spread: pd.DataFrame) -> Iterator[tuple[str, list[Line]]]:
    radius = f"{RADII[name][-1]}/255"
    for objective, style in OBJECTIVES.items():
        if objective == "softmax" or objective not in table.index:
            continue
        own = table.loc[objective]
        around = spread.loc[objective] if objective in spread.index else pd.DataFrame()
        lines = [
            Line(drawn, drawn.label, own[column].dropna(), around.get(column))
            for method, metric, drawn in _ATTACKS
            if (column := (method, metric, "" if method == "clean" else radius)) in own
            and own[column].notna().any()
        ]
        if lines:
            yield style.label, lines
