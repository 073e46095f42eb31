"""The section on selective prediction, compared with the paper's table."""

from __future__ import annotations

from sdp_bench.bench.studies.selective import EXPERIMENT
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.selective.selective import selective


class SelectivePrediction(Section):
    """Risk over coverage by score and model."""

    name = "selective"
    title = "Selective prediction"
    order = 110
    experiments = (EXPERIMENT.name,)

    def build(self, results: Results) -> Context | None:
        section = selective(results.frame, results.traits)
        return {"section": section} if section else None
