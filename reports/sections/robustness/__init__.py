"""The section on robustness against noise and attacks, compared with the paper's figures."""

from __future__ import annotations

from sdp_bench.bench.studies.robustness import EXPERIMENT
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.robustness.robustness import robustness


class Robustness(Section):
    """Accuracy under noise and attacks, over the scale of the noise in training."""

    name = "robustness"
    title = "Robustness"
    order = 112
    experiments = (EXPERIMENT.name,)

    def build(self, results: Results) -> Context | None:
        section = robustness(results.frame)
        return {"section": section} if section else None
