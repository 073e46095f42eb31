"""The section that compares results with the numbers that the paper prints."""

from __future__ import annotations

import math

from ....bench.experiments.iris import CLAIMS, OTHER_RECIPE, STANDARDISED, WASSERSTEIN
from ...results import Results
from ...section import Context, Section
from ...site import PAPER
from ...tables.tables import differences, orders


class Paper(Section):
    name = "paper"
    title = "Values compared with the paper"
    page = PAPER
    order = 70
    # Shown on the page of statements instead of tables.
    experiments = tuple(one.name for one in (CLAIMS, WASSERSTEIN, OTHER_RECIPE, STANDARDISED))

    def build(self, results: Results) -> Context | None:
        compared = differences(results.tables)
        if not compared:
            return None
        apart = [difference for difference in compared if difference.differs]
        apart.sort(key=lambda own: abs(own.gap) / own.spread if own.spread else math.inf, reverse=True)
        return {
            "compared": len(compared),
            "apart": apart,
            "unjudged": sum(math.isnan(difference.spread) for difference in compared),
            "turned": [order for order in orders(results.tables) if not order.agrees],
        }
