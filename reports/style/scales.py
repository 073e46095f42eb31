"""Line charts over the scale of the noise that nets were trained with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from sdp_bench.reports.style.axis import Axis
from sdp_bench.reports.style.chart import Chart, Series
from sdp_bench.reports.style.drawing import Style
from sdp_bench.reports.style.figure import Panel
from sdp_bench.reports.style.labels import number

DASHED = (4.0, 1.8)
DOTTED = (1.0, 1.6)


@dataclass(frozen=True)
class Line:
    """Percentages by scale, in the colour of what was trained.

    `name` is used in the alternative text. In `values` a single entry at scale 0 is drawn as a horizontal
    line across the chart. `dashes` is empty for a solid line. `spread` are standard deviations over runs, by
    scale.
    """

    style: Style
    name: str
    values: pd.Series
    dashes: tuple[float, ...] = ()
    spread: pd.Series | None = None

    @property
    def said(self) -> str:
        """Maximum of the line, and its scale."""
        best = self.values.idxmax()
        place = f" at {best:g}" if best else ""
        return f"{self.name} at most {number(float(self.values.max()), 1)} %{place}"

    def over(self, scales: Sequence[float]) -> Series:
        """Series of the chart over `scales`, whose ends limit horizontal lines."""
        style = replace(self.style, dashes=self.dashes)
        values = self.values.sort_index()
        spread = None if self.spread is None else self.spread.reindex(values.index).to_numpy(float)
        error = None if spread is None or np.isnan(spread).all() else spread
        if list(values.index) == [0.0]:
            level = np.repeat(values.to_numpy(), len(scales))
            around = None if error is None else np.repeat(error, len(scales))
            return Series(replace(style, marker=""), scales, level, self.name, error=around, width=1.4)
        return Series(style, values.index, values, self.name, error=error, size=2.2)


def panel_of(
    title: str, lines: Sequence[Line], facets: Mapping[str, str], name: str = "accuracy (%)"
) -> Panel:
    """Panel of lines over the logarithm of the scale; `name` is that of the values."""
    scales = sorted({float(scale) for line in lines for scale in line.values.index if scale})
    ends = [scales[0], scales[-1]] if scales else [1.0]
    chart = Chart(
        Axis("scale in training", log=True, told=lambda scale: f"scale {number(scale)}"),
        Axis(name, 0, 100, told=lambda share: f"{number(share, 1)} %"),
        tuple(line.over(ends) for line in lines),
        height=0.74,
    )
    said = "; ".join(line.said for line in lines)
    return Panel(title, chart, f"Line chart for {title}: {name} over the scale. {said}.", facets)
