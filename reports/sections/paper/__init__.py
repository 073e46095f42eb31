"""The section that compares results with the numbers that the paper prints."""

from __future__ import annotations

import math

from ....bench.experiments.iris import CLAIMS, OTHER_RECIPE, STANDARDISED, WASSERSTEIN
from ...results import Results
from ...section import Context, Section
from ...site import PAPER
from ...tables.tables import Difference, differences, orders


class Paper(Section):
    name = "paper"
    title = "Values compared with the paper"
    page = PAPER
    order = 70
    # Shown on the page of statements instead of tables.
    experiments = (CLAIMS.name, WASSERSTEIN.name, OTHER_RECIPE.name, STANDARDISED.name)

    def build(self, results: Results) -> Context | None:
        compared = differences(results.tables)
        if not compared:
            return None
        different = [difference for difference in compared if difference.differs]
        different.sort(key=_gap_in_spreads, reverse=True)
        return {
            "compared": len(compared),
            "different": different,
            "unjudged": sum(math.isnan(difference.spread) for difference in compared),
            "turned": [order for order in orders(results.tables) if not order.agrees],
        }


def _gap_in_spreads(difference: Difference) -> float:
    return abs(difference.gap) / difference.spread if difference.spread else math.inf
