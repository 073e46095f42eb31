"""Accuracy by the layer at which a law enters."""

from __future__ import annotations

from sdp_bench.bench.experiments.introduction.experiment import EXPERIMENT
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.introduction.introduction import introduction


class LayerOfIntroduction(Section):
    """Accuracy over the scale of a law, by where it enters a net."""

    name = "introduction"
    title = "Layer of introduction"
    order = 114
    experiments = (EXPERIMENT.name,)

    def build(self, results: Results) -> Context | None:
        """Curves and the best scales; None where the experiment was not run."""
        section = introduction(results.frame)
        return {"section": section} if section else None
