"""The section on accuracy by the layer at which a distribution is introduced."""

from __future__ import annotations

from sdp_bench.bench.studies.introduction import EXPERIMENT
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.introduction.introduction import introduction


class LayerOfIntroduction(Section):
    """Accuracy over the scale of a distribution, by the layer at which it is introduced."""

    name = "introduction"
    title = "Layer of introduction"
    order = 114
    experiments = (EXPERIMENT.name,)

    def build(self, results: Results) -> Context | None:
        section = introduction(results.frame)
        return {"section": section} if section else None
