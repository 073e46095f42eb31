"""The paper's claims, and what the measurements say to each."""

from __future__ import annotations

from collections.abc import Iterator

from sdp_bench.reports.committed import FOLDER, TITLE
from sdp_bench.reports.numbers.number import Number
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.claims.claims import CONVENTIONS, NOT_JUDGED, SUITES
from sdp_bench.reports.sections.claims.judging import Source, any_measured, judge
from sdp_bench.reports.sections.claims.measurements import addresses, numbers_of_claims
from sdp_bench.reports.site import CLAIMS


class Claims(Section):
    """Verdicts of a run, beside those of the committed results."""

    name = "claims"
    title = "The paper’s claims"
    page = CLAIMS
    order = 40
    experiments = tuple(SUITES)

    def build(self, results: Results) -> Context | None:
        """Verdicts by source; None where this run measured nothing that a claim is about."""
        own = Source(results.title or "This run", judge(results.frame, results.traits))
        if not any_measured(own.judgements):
            return None
        judged = [own]
        if results.committed is not None:
            judged.append(Source(TITLE, judge(results.committed.frame, results.traits), folder=f"{FOLDER}/"))
        return {
            "sources": judged,
            "conventions": tuple(CONVENTIONS),
            "not_judged": NOT_JUDGED,
            "addresses": addresses,
        }

    def numbers(self, results: Results, context: Context) -> Iterator[Number]:
        """Means that the effects are made of."""
        del context
        return numbers_of_claims(results.frame, results.traits)
