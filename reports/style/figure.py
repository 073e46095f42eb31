"""Figures as data: charts or heat maps side by side, drawn as SVG on pages and by matplotlib in print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import MappingProxyType
from typing import Any

from sdp_bench.reports.style.chart import Chart
from sdp_bench.reports.style.drawing import Style
from sdp_bench.reports.style.heat_map import HeatMap


@dataclass(frozen=True)
class Panel:
    """One drawing of a figure.

    `alt` describes it in words. `facets` (its ``metric``, its ``net``, and so on) let readers select it among
    the panels of the figure.
    """

    title: str
    drawing: Chart | HeatMap
    alt: str
    facets: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def svg(self) -> str:
        return self.drawing.svg


@dataclass(frozen=True)
class Figure:
    """Small multiples under one caption; `styles` are in the order of the legend.

    `apart` is a facet for which a page shows one value at first, that of the first panel; panels of other
    values, of which there may be many, are compressed. If it is empty, all panels are shown side by side.
    """

    anchor: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    styles: tuple[Style, ...] = ()
    apart: str = ""

    @property
    def groups(self) -> dict[str, list[Panel]]:
        """Panels by the value of the facet `apart`; all under an empty key without it."""
        found: dict[str, list[Panel]] = {}
        for panel in self.panels:
            found.setdefault(panel.facets[self.apart] if self.apart else "", []).append(panel)
        return found

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        return tuple((style.label, style.swatch) for style in self.styles)

    @property
    def colours(self) -> str:
        """CSS declarations of all colours in legend and panels."""
        charts = [panel.drawing for panel in self.panels if isinstance(panel.drawing, Chart)]
        drawn = (series.style for chart in charts for series in chart.series)
        declared = dict.fromkeys(style.declared for style in (*self.styles, *drawn))
        return ";".join(filter(None, declared))


def found(context: Any) -> Iterator[Figure]:
    """Yield every figure in nested mappings, sequences and dataclasses, in order."""
    match context:
        case Figure():
            yield context
        case Mapping():
            yield from found(list(context.values()))
        case list() | tuple():
            for each in context:
                yield from found(each)
        case _ if is_dataclass(context) and not isinstance(context, type):
            yield from found([getattr(context, each.name) for each in fields(context)])
