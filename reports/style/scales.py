"""Lines over the scale of the noise that nets were trained with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from sdp_bench.reports.style.figure import log_scale
from sdp_bench.reports.style.labels import number
from sdp_bench.reports.style.theme import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHED, DOTTED = (4.0, 1.8), (1.0, 1.6)


@dataclass(frozen=True)
class Line:
    """Percentages by scale; a single entry at scale 0 is drawn as a horizontal line.

    `name` is used in descriptions. `spread` are standard deviations over runs, by scale.
    """

    style: Style
    name: str
    values: pd.Series
    spread: pd.Series | None = None


def draw_over_scale(axes: Axes, lines: Iterable[Line], ylabel: str = "accuracy (%)") -> str:
    """Draw lines over the logarithm of the scale, and describe them in words."""
    words = []
    for line in lines:
        values = line.values.sort_index()
        if list(values.index) == [0.0]:
            axes.axhline(values.iloc[0], **line.style.line | {"marker": ""})
        else:
            axes.plot(values.index, values, **line.style.line | {"markersize": 3})
            if line.spread is not None:
                spread = line.spread.reindex(values.index)
                axes.vlines(
                    values.index,
                    values - spread,
                    values + spread,
                    color=line.style.colour,
                    linewidth=0.9,
                    alpha=0.6,
                )
        best = values.idxmax()
        words.append(
            f"{line.name} at most {number(float(values.max()), 1)} %" + (f" at {best:g}" if best else "")
        )
    log_scale(axes.xaxis)
    axes.set(xlabel="scale in training", ylabel=ylabel, ylim=(0, 100))
    return "; ".join(words)
