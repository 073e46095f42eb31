"""How the results were made: command, settings and environment."""

from __future__ import annotations

from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.site import MEASURED
from sdp_bench.reports.writing import recorded


class Settings(Section):
    """What a run recorded of itself."""

    name = "settings"
    title = "Settings"
    page = MEASURED
    order = 160

    def build(self, results: Results) -> Context:
        """Command, settings and environment."""
        return {"command": results.meta.get("command", ""), "settings": recorded(results.meta)}
