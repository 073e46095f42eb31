"""Accuracy over input noise and depth, drawn."""

from __future__ import annotations

from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.figures.figures import figures
from sdp_bench.reports.site import CHARTS
from sdp_bench.reports.tables.tables import headline


class Figures(Section):
    """The figures of the headline metric."""

    name = "figures"
    title = "Figures"
    page = CHARTS
    order = 30

    def build(self, results: Results) -> Context | None:
        """Figures of the headline metric; None without it."""
        drawn = figures(headline(results.tables), results.traits)
        return {"figures": drawn} if drawn else None
