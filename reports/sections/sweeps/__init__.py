"""The section on accuracy over one parameter of a rule."""

from __future__ import annotations

from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.sweeps.figure import figure
from sdp_bench.reports.sections.sweeps.sweeps import sweeps
from sdp_bench.reports.site import CHARTS


class Sweeps(Section):
    """Metrics over each numeric parameter of a rule that was measured at three values or more."""

    name = "sweeps"
    title = "Over a parameter"
    page = CHARTS
    order = 35

    def build(self, results: Results) -> Context | None:
        found = sweeps(results.tables)
        return {"sweeps": [(each, figure(each)) for each in found]} if found else None
