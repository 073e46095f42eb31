"""The section on accuracy by the layer at which a distribution is introduced."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ....bench.studies.introduction import EXPERIMENT
from ...section import Context, Study
from ...statement import Answer, Effect, Evidence, Rule, finite
from ...style import labels
from ...style.figure import Figure, Line, over_scale
from ...style.names import RuleTraits
from ...style.theme import LIGHT, Style, shade

_LOOKS = (
    ("#0072b2", "o"),
    ("#56b4e9", "s"),
    ("#009e73", "D"),
    ("#e69f00", "^"),
    ("#d55e00", "v"),
    ("#cc79a7", "P"),
)
"""Colours and markers."""
_LEVEL = 0.5
"""Points within which an accuracy is tied with the best."""


def layer_of(objective: str) -> int:
    """Return the number of the layer in the name of an objective."""
    return int(objective.rpartition("_")[2])


def optimum(accuracies: pd.Series) -> tuple[float, float]:
    """Return the smallest and largest scale whose accuracy (per cent, by scale) is tied with the best."""
    level = accuracies.index[accuracies >= accuracies.max() - _LEVEL]
    return float(min(level)), float(max(level))


class LayerOfIntroduction(Study):
    name = "introduction"
    title = "Layer of introduction"
    order = 114
    experiments = (EXPERIMENT.name,)

    def content(self, measurements: pd.DataFrame, traits: RuleTraits) -> Context:  # noqa: ARG002
        """Return the template's variables.

        A row has the `best` accuracy of a layer (per cent), the scales tied with it, `low` to `high`, and the
        accuracies at the `first` and `last` scale.
        """
        measurements = measurements.assign(layer=measurements["objective"].astype(str).map(layer_of))
        means = 100 * measurements.pivot_table("value", "sigma", "layer", aggfunc="mean", observed=True)
        spreads = 100 * measurements.pivot_table("value", "sigma", "layer", aggfunc="std", observed=True)
        rows = []
        for layer in means.columns.tolist():
            curve = means[layer].dropna().sort_index()
            low, high = optimum(curve)
            row = {"layer": int(layer), "best": float(curve.max()), "low": low, "high": high}
            rows.append(row | {"first": float(curve.iloc[0]), "last": float(curve.iloc[-1])})
        scales = float(means.index.min()), float(means.index.max())
        runs = int(measurements["seed"].nunique())
        return {
            "rows": rows,
            "scales": scales,
            "finding": _finding(rows, scales, runs),
            "figure": _figure(means, spreads),
            "runs": runs,
            "recipe": measurements.sort_values(["layer", "sigma"])["recipe"].iloc[0],
        }


def _finding(rows: Sequence[Context], scales: tuple[float, float], runs: int) -> str:
    inner = [row for row in rows if scales[0] < row["low"] and row["high"] < scales[1]]
    text = (
        f"For {len(inner)} of {labels.plural(len(rows), 'layer')} the accuracy is largest at a scale between "
        "the smallest and the largest, as the paper says it is."
    )
    if len(rows) > 1:
        middles = [math.log10(math.sqrt(row["low"] * row["high"])) for row in rows]
        order = np.diff(middles)
        falls, rises = int((order < 0).sum()), int((order > 0).sum())
        text += (
            f" From each layer to the next one the best scale falls {falls} times and rises {rises} times of "
            f"{len(order)}; by the paper it falls throughout, since the law shrinks in fewer layers."
        )
    return f"{text} (One run, so no spread is known.)" if runs == 1 else text


def _figure(means: pd.DataFrame, spreads: pd.DataFrame) -> Figure:
    lines = []
    for layer in means.columns:
        colour, marker = _LOOKS[int(layer) % len(_LOOKS)]
        style = Style(f"k = {layer}", shade(colour, LIGHT), marker)
        lines.append(Line(style, means[layer].dropna(), spreads.get(layer)))
    return over_scale(
        "figure-introduction",
        "Accuracy over the scale of the law",
        "Test accuracy, mean over runs, with bars of one standard deviation. k layers come before "
        "the law; at k = 5 it is that of the scores.",
        {"MNIST": lines},
        [line.style for line in lines],
        width=4.6,
        height=2.6,
    )


_FEWEST = 3
"""Smallest number of scales for one to lie between others, and of layers for a slope."""


def _curves(evidence: Evidence) -> dict[int, pd.DataFrame]:
    """Accuracies of each layer in per cent: runs by scales."""
    return {
        layer_of(str(name)): 100 * part.pivot_table("value", "seed", "sigma", observed=True)
        for name, part in evidence.of(EXPERIMENT.name).groupby("objective", observed=True)
    }


def _ruling(effects: list[Effect], curves: Mapping[int, pd.DataFrame]) -> Answer | None:
    runs = labels.plural(max((len(table) for table in curves.values()), default=0), "run")
    fidelity = f"{runs}, fewer images and epochs than all of MNIST and 100; the paper: 3 runs"
    return Answer.of({(): effects}, "run", fidelity, "#introduction")


def _middles(table: pd.DataFrame) -> pd.Series:
    """Decade of the best scale by run, the middle of tied scales."""
    return table.apply(lambda row: float(np.mean(np.log10(optimum(row)))), axis=1)


def _inner(evidence: Evidence) -> Answer | None:
    """Some scale between the ends is better than either end."""
    curves = _curves(evidence)
    effects = []
    for layer, table in curves.items():
        if table.shape[1] >= _FEWEST:
            inner, ends = table.iloc[:, 1:-1], table.iloc[:, [0, -1]]
            # The better end of each run would be better by noise alone.
            gap = inner[inner.mean().idxmax()] - ends[ends.mean().idxmax()]
            words = f"accuracy at the best inner scale less that at the better end, k = {layer}, in points"
            effects.append(Effect(words, finite(gap), choices=inner.shape[1], against=ends.shape[1]))
    return _ruling(effects, curves)


def _falls(evidence: Evidence) -> Answer | None:
    """The best scale decreases with the number of layers before the distribution."""
    curves = _curves(evidence)
    if len(curves) < _FEWEST:
        return None
    decades = pd.DataFrame({layer: _middles(table) for layer, table in curves.items()}).dropna()
    slopes = -np.polyfit(decades.columns.to_numpy(float), decades.to_numpy(float).T, 1)[0]
    effect = Effect("decades by which the best scale falls with each layer before the law", finite(slopes))
    return _ruling([effect], curves)


def _deeper(evidence: Evidence) -> Answer | None:
    """The best scale before five layers is larger than that before one."""
    curves = _curves(evidence)
    if not {0, 4} <= set(curves):
        return None
    gap = (_middles(curves[0]) - _middles(curves[4])).dropna()
    effect = Effect("decades from the best scale before one layer to that before five", finite(gap))
    return _ruling([effect], curves)


RULES: Mapping[str, Rule] = {
    "introduction-scale": _inner,
    "introduction-layers": _falls,
    "introduction-decay": _deeper,
}
