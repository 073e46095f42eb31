"""The section on advice without an oracle: how often it is wrong on nets that played no part in it."""

from __future__ import annotations

import math

from ....bench.advice.outcomes import LIMITS, MAX_SAMPLES, NEAR, SAMPLES, WIDER, rates
from ...results import Results
from ...section import Context, Section
from ...site import CHOICE


class AdviceOnLinearisation(Section):
    name = "advice"
    title = "Advice without an oracle"
    page = CHOICE
    order = 25

    def build(self, results: Results) -> Context | None:
        if not results.published:
            return None
        families = []
        for family, rows in rates("family").groupby("family", sort=True):
            families.append((family, {row["use"]: row for row in rows.to_dict("records")}))
        return {
            "samples": SAMPLES,
            "max_samples": MAX_SAMPLES,
            "rates": [
                (factor, row)
                for factor in (math.inf, WIDER, NEAR)
                for row in rates(within=factor).to_dict("records")
            ],
            "families": families,
            "uses": list(LIMITS),
        }
