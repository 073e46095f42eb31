"""Layer of introduction: a law that enters a net at a chosen layer."""

from __future__ import annotations

from ...experiments.replicates import ReplicateExperiment
from ...settings import Size
from .. import SCALES

EXPERIMENT = ReplicateExperiment(
    name="introduction",
    study="sdp_bench.bench.studies.introduction.group",
    description="accuracy by the layer where training noise enters, and its scale (Figure 10)",
    rank=220,
    metrics=("accuracy",),
    rules=("marginal_sdp",),
    paper=Size(nets=3, epochs=100, datasets=("mnist",), sigmas=SCALES),
    presets={
        "smoke": Size(samples=512, epochs=1, sigmas=(1.0,)),
        "quick": Size(nets=1, samples=10_000, inputs=2000, epochs=3, sigmas=SCALES[::2], on_request=True),
    },
    options=frozenset({"datasets", "device", "epochs", "inputs", "nets", "samples", "sigmas"}),
)
