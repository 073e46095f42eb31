"""Figures of a paper: a metric over the noise level, a panel per kind of net, a line per rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sdp_bench.reports.style.figure import Figure, look
from sdp_bench.reports.style.latex import escaped
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.style.theme import styles
from sdp_bench.reports.tables.over_noise import over_noise
from sdp_bench.reports.tables.tables import Table


@dataclass(frozen=True)
class Plot:
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
        band = (
            " The band spans the numbers of Monte Carlo samples."
            if any("monte_carlo" in r for r in first.rules)
            else ""
        )
        return escaped(
            f"{first.title}, mean over nets and inputs, against the noise level ({first.scale}).{band}"
        )

    @look()
    def figure(self, traits: RuleTraits) -> Figure:
        first = self.tables[0]
        styled = styles((rule for table in self.tables for rule in table.rules), traits)
        drawing, words = over_noise([(table.nets_label, table) for table in self.tables], styled)
        return Figure("-".join(filter(None, self.words)), first.title, "", words, drawing)


def plots(tables: Iterable[Table]) -> Iterator[Plot]:
    """Figures of tables with several noise levels and a single component."""
    together: dict[tuple[str, ...], list[Table]] = {}
    for table in tables:
        if not table.has_components and len({row.sigma for row in table.rows}) > 1:
            together.setdefault(Plot((table,)).words, []).append(table)
    for own in together.values():
        yield Plot(tuple(own))
