"""Figures of a paper: a metric over the noise level, a panel per kind of net, a line per rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sdp_bench.reports.style.drawing import styles
from sdp_bench.reports.style.figure import Figure, Panel
from sdp_bench.reports.style.latex import escaped
from sdp_bench.reports.style.printed import content
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.over_noise import over_noise
from sdp_bench.reports.tables.tables import Table

KINDS = ("pdf", "svg")
"""Formats of a saved figure."""


@dataclass(frozen=True)
class Drawing:
    """One metric of one experiment over noise levels, on several kinds of nets."""

    tables: tuple[Table, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Words that distinguish this figure from others."""
        first = self.tables[0]
        return (first.experiment, first.metric.name, first.under, first.variant, first.recipe)

    @property
    def caption(self) -> str:
        first = self.tables[0]
        return escaped(
            f"{first.title}, mean over nets and inputs with their standard deviation, against the noise "
            f"level ({first.scale})."
        )

    def figure(self, traits: RuleTraits) -> Figure:
        first = self.tables[0]
        styled = styles((rule for table in self.tables for rule in table.rules), traits)
        panels = tuple(Panel(table.nets_label, over_noise(table, styled), "") for table in self.tables)
        return Figure("", first.title, "", panels, tuple(styled.values()))


def drawings(tables: Iterable[Table]) -> Iterator[Drawing]:
    """Figures of tables with several noise levels and a single component."""
    together: dict[tuple[str, ...], list[Table]] = {}
    for table in tables:
        if not table.has_components and len({row.sigma for row in table.rows}) > 1:
            together.setdefault(Drawing((table,)).words, []).append(table)
    for own in together.values():
        yield Drawing(tuple(own))


def saved(drawing: Drawing, traits: RuleTraits) -> dict[str, bytes]:
    """The figure in each format of :data:`KINDS`, with the same bytes for the same numbers."""
    figure = drawing.figure(traits)
    return {kind: content(figure, kind) for kind in KINDS}
