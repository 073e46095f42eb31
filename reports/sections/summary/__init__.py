"""What was run, what it says in plain words, and the best rule at each noise level."""

from __future__ import annotations

from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.summary.run import what_ran
from sdp_bench.reports.sections.summary.words import sentences
from sdp_bench.reports.site import OVERVIEW
from sdp_bench.reports.tables.tables import headline

_COLUMNS = ("network", "activation", "depth", "net", "input", "rule", "seconds", "run")


class Summary(Section):
    """What the page opens with."""

    name = "summary"
    title = "Summary"
    page = OVERVIEW
    order = 10

    def build(self, results: Results) -> Context:
        """What ran, what it says and who wins; on a page without measurements, how to run."""
        winners = headline(results.tables)
        frame = results.columns_with_oracle(_COLUMNS)
        costs = frame.groupby(["activation", "depth", "rule"])["seconds"].median()
        return {
            "measured": len(results.frame) > 0,
            "failed": len(results.failed) > 0,
            "ran": what_ran(frame, results.meta, results.failed, results.traits),
            "sentences": sentences(results.tables, costs, results.traits),
            "winners": winners,
            "sigmas": sorted({row.sigma for table in winners for row in table.rows}),
            "styles": results.styles,
        }
