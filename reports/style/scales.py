"""Lines over the scale of the noise that nets were trained with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from sdp_bench.reports.style.drawing import Panel, Style, canvas_of, look, svg_of
from sdp_bench.reports.style.labels import number

DASHED = (4.0, 1.8)
DOTTED = (1.0, 1.6)


@dataclass(frozen=True)
class Line:
    """Percentages over scales, in the colour of what was trained.

    Attributes
    ----------
    style : Style
    name : str
        For those who do not see the drawing.
    values : Series
        By scale; a single one at scale 0 is drawn all the way across.
    dashes : tuple of float
        None for a solid line.
    """

    style: Style
    name: str
    values: pd.Series
    dashes: tuple[float, ...] = ()

    @property
    def said(self) -> str:
        """Its largest value, and where."""
        best = self.values.idxmax()
        place = f" at {best:g}" if best else ""
        return f"{self.name} at most {number(float(self.values.max()), 1)} %{place}"


def panel_of(title: str, lines: Sequence[Line], prefix: str, ylabel: str = "accuracy (%)") -> Panel:
    """Panel of lines over the logarithm of the scale."""
    with look():
        canvas, axes = canvas_of(height=0.74, left=0.6)
        for line in lines:
            if list(line.values.index) == [0.0]:
                made = axes.axhline(float(line.values.iloc[0]), linewidth=1.4, zorder=1)
            else:
                made = axes.plot(line.values.sort_index(), marker=line.style.marker, markersize=4)[0]
            made.set(color=line.style.colour, dashes=line.dashes or (1, 0))
        axes.set(xscale="log", ylim=(0, 100), xlabel="scale in training", ylabel=ylabel)
        said = "; ".join(line.said for line in lines)
        return Panel(
            title, svg_of(canvas, prefix), f"Line chart for {title}: {ylabel} over the scale. {said}."
        )
