"""The section on failed and undefined measurements."""

from __future__ import annotations

from ...results import Results
from ...section import Context, Section
from ...site import MEASURED


class Failures(Section):
    name = "failures"
    title = "Failures"
    page = MEASURED
    order = 140

    def build(self, results: Results) -> Context | None:
        if not (results.failed or results.undefined):
            return None
        return {"failures": results.failed_together, "undefined": results.undefined}
