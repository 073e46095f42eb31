"""The section with figures of metrics over input noise, and of accuracy over depth."""

from __future__ import annotations

from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.figures.figures import figures
from sdp_bench.reports.site import CHARTS
from sdp_bench.reports.tables.tables import headline


class Figures(Section):
    """Figures of the tables."""

    name = "figures"
    title = "Figures"
    page = CHARTS
    order = 30

    def build(self, results: Results) -> Context | None:
        several = [table for table in results.tables if len({row.sigma for row in table.rows}) > 1]
        drawn = figures(headline(results.tables), results.traits, others=several)
        return {"figures": drawn} if drawn else None
