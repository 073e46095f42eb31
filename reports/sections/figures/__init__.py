"""The section with figures of metrics over input noise, and of accuracy over depth."""

from __future__ import annotations

from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.figures.figures import figures
from sdp_bench.reports.site import CHARTS
from sdp_bench.reports.tables.tables import headline

# Each rule has bins of its own there, so that their curves do not compare.
BINS_OF_THE_RULE = ("joint extremes", "single outputs")


class Figures(Section):
    """Figures of the tables."""

    name = "figures"
    title = "Figures"
    page = CHARTS
    order = 30

    def build(self, results: Results) -> Context | None:
        several = [table for table in results.tables if len({row.sigma for row in table.rows}) > 1]
        fair = [table for table in several if table.metric.convention not in BINS_OF_THE_RULE]
        drawn = figures(headline(results.tables), results.traits, others=fair)
        return {"figures": drawn} if drawn else None
