"""The section on command, settings and environment of a run."""

from __future__ import annotations

from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.site import MEASURED
from sdp_bench.reports.writing import recorded


class Settings(Section):
    name = "settings"
    title = "Settings"
    page = MEASURED
    order = 160

    def build(self, results: Results) -> Context:
        return {"command": results.meta.get("command", ""), "settings": recorded(results.meta)}
