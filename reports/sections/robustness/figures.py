"""Robustness, drawn: accuracies over the scale in training, and what each attack leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sdp_bench.bench.methods.robustness import METRICS, RADII
from sdp_bench.reports.sections.robustness.words import OBJECTIVES, SETS
from sdp_bench.reports.style.drawing import Figure, Panel, Style, legend_of, look
from sdp_bench.reports.style.scales import DASHED, DOTTED, Line, panel_of

_NOISE = ("0.5", "0.75")
_ATTACKS = (
    ("clean", METRICS[0], "no attack", "#7a7a7a", ()),
    ("pgd_own", METRICS[0], "PGD, own loss", "#0072b2", ()),
    ("pgd_own", METRICS[1], "the same, gradient not zero", "#0072b2", DASHED),
    ("pgd_own", METRICS[2], "the same, at no pixel", "#0072b2", DOTTED),
    ("pgd_ce", METRICS[0], "PGD, cross-entropy", "#009e73", ()),
    ("square", METRICS[0], "Square attack", "#d55e00", ()),
)
"""Method, metric, label, colour and dashes."""


def figures(name: str, table: pd.DataFrame) -> Iterator[Figure]:
    """Figures of a set of images.

    Parameters
    ----------
    name : str
    table : DataFrame
        As `accuracies` gives it.

    Yields
    ------
    Figure
        Accuracies beside those under noise and under attack, as the paper draws them; and all attacks.
    """
    strengths = [
        *((f"noise of σ = {sigma}", "noise", sigma) for sigma in _NOISE),
        *((f"PGD within {radius}/255", "pgd", f"{radius}/255") for radius in reversed(RADII[name])),
        *((f"Square attack within {radius}/255", "square", f"{radius}/255") for radius in RADII[name][-1:]),
    ]
    drawn = [(title, list(_accuracies(table, method, strength))) for title, method, strength in strengths]
    panels = [
        panel_of(title, lines, f"robustness-{name}-{number}")
        for number, (title, lines) in enumerate(drawn)
        if any(line.dashes for line in lines)
    ]
    there = {objective: style for objective, style in OBJECTIVES.items() if objective in table.index}
    if panels:
        with look():
            legend = legend_of(there.values(), f"robustness-{name}-swatch")
        yield Figure(
            anchor=f"figure-robustness-{name}",
            title=f"{SETS[name]}: accuracy and robust accuracy",
            caption="Solid: test accuracy. Dashed: what is still right; of PGD, on the model’s own loss, an "
            "attack that met a gradient of zero counts as successful. Softmax has no scale.",
            panels=tuple(panels),
            legend=legend,
        )
    panels = list(_attacks(name, table))
    if panels:
        with look():
            styles = [Style(label, colour, "o", dashes) for _, _, label, colour, dashes in _ATTACKS]
            legend = legend_of(styles, f"robustness-{name}-attacks-swatch")
        yield Figure(
            anchor=f"figure-attacks-{name}",
            title=f"{SETS[name]}: what each attack leaves",
            caption=f"Accuracy within {RADII[name][-1]}/255 of the images: attacks on the loss that a model "
            "was trained by and on cross-entropy, with and without the requirement that gradients are not "
            "zero, and one without gradients.",
            panels=tuple(panels),
            legend=legend,
        )


def _accuracies(table: pd.DataFrame, method: str, strength: str) -> Iterator[Line]:
    """Test accuracy and what is left of it, of every objective."""
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
                yield Line(style, f"{style.label}, {what}", own[column].dropna(), dashes)


def _attacks(name: str, table: pd.DataFrame) -> Iterator[Panel]:
    radius = f"{RADII[name][-1]}/255"
    for number, (objective, style) in enumerate(OBJECTIVES.items()):
        if objective == "softmax" or objective not in table.index:
            continue
        own = table.loc[objective]
        lines = [
            Line(Style(label, colour, "o", dashes), label, own[column].dropna(), dashes)
            for method, metric, label, colour, dashes in _ATTACKS
            if (column := (method, metric, "" if method == "clean" else radius)) in own
            and own[column].notna().any()
        ]
        if lines:
            yield panel_of(style.label, lines, f"robustness-{name}-attacks-{number}")
