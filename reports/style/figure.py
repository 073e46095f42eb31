"""Figures: charts or heat maps side by side, as data, which pages draw as SVG and papers in print."""

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
    """One drawing.

    Attributes
    ----------
    title : str
    drawing : Chart or HeatMap
    alt : str
        What it shows, in words.
    facets : mapping of str to str
        What it is about, by which a reader picks it among the panels of its figure: its ``metric``, its
        ``net``, and the like.
    """

    title: str
    drawing: Chart | HeatMap
    alt: str
    facets: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def svg(self) -> str:
        """As pages have it."""
        return self.drawing.svg


@dataclass(frozen=True)
class Figure:
    """Small multiples under one caption.

    Attributes
    ----------
    anchor, title, caption : str
    panels : tuple of Panel
    styles : tuple of Style
        In the order of the legend.
    apart : str
        A facet of which a page shows one value at first, that of the first panel: panels of the others,
        which may be many, come packed. Empty where all stand side by side.
    """

    anchor: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    styles: tuple[Style, ...] = ()
    apart: str = ""

    @property
    def groups(self) -> dict[str, list[Panel]]:
        """Panels by the facet that keeps them apart; all under an empty one where none does."""
        found: dict[str, list[Panel]] = {}
        for panel in self.panels:
            found.setdefault(panel.facets[self.apart] if self.apart else "", []).append(panel)
        return found

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """Labels with their swatches."""
        return tuple((style.label, style.swatch) for style in self.styles)

    @property
    def colours(self) -> str:
        """Declarations of CSS, of every colour that its legend or a panel has."""
        charts = [panel.drawing for panel in self.panels if isinstance(panel.drawing, Chart)]
        drawn = (series.style for chart in charts for series in chart.series)
        declared = dict.fromkeys(style.declared for style in (*self.styles, *drawn))
        return ";".join(filter(None, declared))


def found(context: Any) -> Iterator[Figure]:
    """Every figure that is somewhere in what a section shows.

    Parameters
    ----------
    context : object
        A figure, or mappings, sequences and dataclasses that hold some.

    Yields
    ------
    Figure
        In the order in which they stand there.
    """
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
