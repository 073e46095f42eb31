"""Statements of the paper on the layer at which a distribution is introduced."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from sdp_bench.bench.studies.introduction import EXPERIMENT
from sdp_bench.reports.replication.statement import Effect, Evidence, Rule, Tried, finite, tried
from sdp_bench.reports.sections.introduction.introduction import layer_of, optimum
from sdp_bench.reports.style import labels

_FEWEST = 3
"""Smallest number of scales for one to lie between others, and of layers for a slope."""


def _curves(evidence: Evidence) -> dict[int, pd.DataFrame]:
    """Accuracies of each layer in per cent: runs by scales."""
    own = evidence.of(EXPERIMENT.name)
    if own.empty:  # the column of objectives may not exist
        return {}
    return {
        layer_of(str(name)): 100 * part.pivot_table("value", "seed", "sigma", observed=True)
        for name, part in own.groupby("objective", observed=True)
    }


def _ruling(effects: list[Effect], curves: Mapping[int, pd.DataFrame]) -> Tried | None:
    runs = labels.plural(max((len(table) for table in curves.values()), default=0), "run")
    fidelity = f"{runs}, fewer images and epochs than all of MNIST and 100; the paper: 3 runs"
    return tried(effects, "run", fidelity, "#introduction")


def _middles(table: pd.DataFrame) -> pd.Series:
    """Decade of the best scale by run, the middle of tied scales."""
    return table.apply(lambda row: float(np.mean(np.log10(optimum(row)))), axis=1)


def _inner(evidence: Evidence) -> Tried | None:
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


def _falls(evidence: Evidence) -> Tried | None:
    """The best scale decreases with the number of layers before the distribution."""
    curves = _curves(evidence)
    if len(curves) < _FEWEST:
        return None
    decades = pd.DataFrame({layer: _middles(table) for layer, table in curves.items()}).dropna()
    slopes = [
        -float(np.polyfit(decades.columns.to_numpy(float), row, 1)[0]) for row in decades.to_numpy(float)
    ]
    effect = Effect("decades by which the best scale falls with each layer before the law", finite(slopes))
    return _ruling([effect], curves)


def _deeper(evidence: Evidence) -> Tried | None:
    """The best scale before five layers is larger than that before one."""
    curves = _curves(evidence)
    if not {0, 4} <= set(curves):
        return None
    gap = (_middles(curves[0]) - _middles(curves[4])).dropna()
    return _ruling(
        [Effect("decades from the best scale before one layer to that before five", finite(gap))], curves
    )


RULES: Mapping[str, Rule] = {
    "introduction-scale": _inner,
    "introduction-layers": _falls,
    "introduction-decay": _deeper,
}
