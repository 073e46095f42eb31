"""Robustness of classifiers: accuracy under noise and under attack."""

from __future__ import annotations

from ...experiments.replicates import ReplicateExperiment
from ...settings import Size
from .. import SCALES

METHODS = ("clean", "noise", "pgd_own", "pgd_ce", "square")
"""Perturbations of images: none, Gaussian noise, projected gradient descent on the model's training loss and
on cross-entropy, and the Square attack, which uses scores only.
"""

METRICS = ("accuracy", "accuracy_gnz", "accuracy_gnz_pixel")
"""Accuracy, and two variants that count an attack as successful if it met a gradient of zero, or a gradient
that is zero at a single pixel. The paper's requirement of non-zero gradients allows both readings.
"""

NOISE = (0.25, 0.5, 0.75)
"""Standard deviations, on pixels in [0, 1]."""

RADII = {"mnist": (8, 16), "cifar10": (3, 4)}
"""Radii of balls in the maximum norm, in units of 1/255, increasing."""

QUERIES = 25
"""Queries of the Square attack per step of the gradient attacks."""


EXPERIMENT = ReplicateExperiment(
    name="robustness",
    study="sdp_bench.bench.studies.robustness.group",
    description="accuracy under noise and attacks, by objective and scale in training (Figures 5-9)",
    rank=215,
    metrics=METRICS,
    rules=METHODS,
    paper=Size(nets=3, epochs=100, datasets=tuple(RADII), sigmas=SCALES, steps=40),
    presets={
        "smoke": Size(samples=256, epochs=1, datasets=("mnist",), sigmas=(0.1,), steps=2),
        "quick": Size(
            nets=1,
            inputs=100,
            samples=2000,
            epochs=5,
            datasets=("mnist",),
            sigmas=(1e-3, 0.1, 10.0),
            steps=20,
            on_request=True,
        ),
    },
    options=frozenset({"datasets", "device", "epochs", "inputs", "nets", "samples", "sigmas"}),
)
