"""The section with a summary: what was run, findings, and the best rule at each noise level."""

from __future__ import annotations

from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.summary.run import what_ran
from sdp_bench.reports.sections.summary.words import sentences
from sdp_bench.reports.site import CHOICE
from sdp_bench.reports.tables.tables import headline, told_apart

_COLUMNS = ("network", "activation", "depth", "net", "input", "rule", "seconds", "run")


class Summary(Section):
    """Introduction to the choice between rules."""

    name = "summary"
    title = "Summary"
    page = CHOICE
    order = 10

    def build(self, results: Results) -> Context | None:
        frame = results.columns_with_oracle(_COLUMNS)
        if frame.empty:
            return None
        winners = headline(results.tables)
        costs = frame.groupby(["activation", "depth", "rule"])["seconds"].median()
        return {
            "ran": what_ran(frame, results.meta, results.failed, results.traits),
            "sentences": sentences(results.tables, costs, results.traits),
            "winners": list(zip(told_apart(winners), winners, strict=True)),
            "sigmas": sorted({row.sigma for table in winners for row in table.rows}),
            "styles": results.styles,
        }
