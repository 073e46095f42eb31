"""The section on differences between results and the numbers that the paper prints."""

from __future__ import annotations

import math

from sdp_bench.bench.experiments.iris import CLAIMS, OTHER_RECIPE, STANDARDISED, WASSERSTEIN
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.site import CLAIMS as PAGE
from sdp_bench.reports.tables.published import Difference, differences, orders


class Paper(Section):
    """Values next to the paper's, and rankings that differ from it."""

    name = "paper"
    title = "Beside the paper"
    page = PAGE
    order = 70
    # Shown on the page of statements instead of tables.
    experiments = tuple(one.name for one in (CLAIMS, WASSERSTEIN, OTHER_RECIPE, STANDARDISED))

    def build(self, results: Results) -> Context | None:
        compared = differences(results.tables)
        if not compared:
            return None
        apart = [difference for difference in compared if difference.differs]
        return {
            "compared": len(compared),
            "apart": sorted(apart, key=_relative_gap, reverse=True),
            "unjudged": sum(math.isnan(difference.spread) for difference in compared),
            "turned": [order for order in orders(results.tables) if not order.agrees],
        }


def _relative_gap(difference: Difference) -> float:
    return abs(difference.gap) / difference.spread if difference.spread else math.inf
