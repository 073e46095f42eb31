"""Layer of introduction: accuracy over scale for each layer, and the best scale."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sdp_bench.bench.studies.introduction import EXPERIMENT
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.figure import Figure, label_ends, look, panels
from sdp_bench.reports.style.scales import Line, draw_over_scale
from sdp_bench.reports.style.theme import LIGHT, Style, shade

_LOOKS = (
    *(("#0072b2", "o"), ("#56b4e9", "s"), ("#009e73", "D")),
    *(("#e69f00", "^"), ("#d55e00", "v"), ("#cc79a7", "P")),
)
"""Colours and markers."""
_LEVEL = 0.5
"""Points within which an accuracy is tied with the best."""


@dataclass(frozen=True)
class LayerRow:
    """A layer: its best accuracy (per cent), the scales tied with it, and the accuracies at both ends."""

    layer: int
    best: float
    low: float
    high: float
    first: float
    last: float


@dataclass(frozen=True)
class Introduction:
    """Content of the section."""

    rows: tuple[LayerRow, ...]
    scales: tuple[float, float]
    finding: str
    figure: Figure
    runs: int
    recipe: str


def layer_of(objective: str) -> int:
    return int(objective.rpartition("_")[2])


def optimum(accuracies: pd.Series) -> tuple[float, float]:
    """Return the smallest and largest scale whose accuracy (per cent, by scale) is tied with the best."""
    level = accuracies.index[accuracies >= accuracies.max() - _LEVEL]
    return float(min(level)), float(max(level))


def introduction(frame: pd.DataFrame) -> Introduction | None:
    """Content of the section, from measurements of all experiments; None if it was not run."""
    own = frame[frame["experiment"] == EXPERIMENT.name]
    if own.empty:
        return None
    own = own.assign(layer=own["objective"].astype(str).map(layer_of))
    means = 100 * own.pivot_table("value", "sigma", "layer", aggfunc="mean", observed=True)
    spreads = 100 * own.pivot_table("value", "sigma", "layer", aggfunc="std", observed=True)
    rows = tuple(_row(int(layer), means[layer].dropna()) for layer in means.columns.tolist())
    recipes = list(dict.fromkeys(own.sort_values(["layer", "sigma"])["recipe"]))
    scales = float(means.index.min()), float(means.index.max())
    runs = int(own["seed"].nunique())
    return Introduction(rows, scales, _finding(rows, scales, runs), _figure(means, spreads), runs, recipes[0])


def _row(layer: int, accuracies: pd.Series) -> LayerRow:
    low, high = optimum(accuracies)
    ordered = accuracies.sort_index()
    return LayerRow(
        layer, float(accuracies.max()), low, high, float(ordered.iloc[0]), float(ordered.iloc[-1])
    )


def _finding(rows: tuple[LayerRow, ...], scales: tuple[float, float], runs: int) -> str:
    inner = [row for row in rows if scales[0] < row.low and row.high < scales[1]]
    text = (
        f"For {len(inner)} of {labels.plural(len(rows), 'layer')} the accuracy is largest at a scale between "
        "the smallest and the largest, as the paper says it is."
    )
    if len(rows) > 1:
        middles = [math.log10(math.sqrt(row.low * row.high)) for row in rows]
        order = np.diff(middles)
        falls, rises = int((order < 0).sum()), int((order > 0).sum())
        text += (
            f" From each layer to the next one the best scale falls {falls} times and rises {rises} times of "
            f"{len(order)}; by the paper it falls throughout, since the law shrinks in fewer layers."
        )
    return f"{text} (One run, so no spread is known.)" if runs == 1 else text


@look()
def _figure(means: pd.DataFrame, spreads: pd.DataFrame) -> Figure:
    looks = {layer: _LOOKS[int(layer) % len(_LOOKS)] for layer in means.columns}
    styles = {
        layer: Style(f"k = {layer}", shade(colour, LIGHT), marker)
        for layer, (colour, marker) in looks.items()
    }
    lines = [
        Line(style, style.label, means[layer].dropna(), spreads.get(layer)) for layer, style in styles.items()
    ]
    drawing, (axes,) = panels(["MNIST"], width=4.6, height=2.6, right=0.7)
    words = draw_over_scale(axes, lines)
    label_ends(
        axes,
        [(float(line.values.sort_index().iloc[-1]), line.style.label, line.style.colour) for line in lines],
    )
    return Figure(
        "figure-introduction",
        "Accuracy over the scale of the law",
        "Test accuracy, mean over runs, with bars of one standard deviation. k layers come before "
        "the law; at k = 5 it is that of the scores.",
        f"Line chart of accuracy over the scale. {words}.",
        drawing,
    )
