"""Equal compute: rules that look inside a net against samplers with the same number of operations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments.base import Expansion
from sdp_bench.bench.experiments.replicates import Replicated, ReplicateExperiment
from sdp_bench.bench.identity import digest
from sdp_bench.bench.settings import Size

if TYPE_CHECKING:
    from sdp_bench.bench.experiments.predict import Scope

ACTIVATIONS = ("relu", "gelu")
TRAININGS = ("trained", "random")
WIDTHS = (16, 64, 256, 1024)
KINK_DISTANCES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Noise levels, in units of the median distance of a unit's kink from the input."""
SAMPLERS = ("plain", "antithetic", "sobol", "control_variate")
SIZES = (16, 256, 4096)
RULES = (
    *("sdp", "dvia", "moment_matching", "third_cumulants", "low_rank", "second_order"),
    *("marginal_sdp", "marginal_moment_matching", "marginal_sigma_points", "unscented"),
)
USES = ("mean", "standard_deviation", "whole_distribution", "class", "tail")


@dataclass(frozen=True, kw_only=True)
class EqualCompute(ReplicateExperiment):
    """Errors and operations of rules and samplers, on trained nets and on the same nets before training."""

    def takes(self, option: str) -> bool:
        return option in {"nets", *self.options}  # CPU only

    def expand(self, scope: Scope) -> Expansion:
        """Return a group for each net, by increasing size.

        A DataMissingError is raised without MNIST, a UserError for another activation.
        """
        from sdp_bench.bench.experiments.versions import of_method
        from sdp_bench.bench.studies.compute import group as study

        settings, size = scope.settings, self.size(scope.settings)
        widths = (settings.design.width,) if settings.design.width else WIDTHS
        kinds = [settings.design.activation] if settings.design.activation else ACTIVATIONS
        if unknown := set(kinds) - set(ACTIVATIONS):
            raise UserError(f"{self.name} has nets with {' and '.join(ACTIVATIONS)}, not {unknown.pop()}")
        for split in ("train", "test"):
            study.images(split)
        depths = settings.design.depths or size.depths or ()
        grid = itertools.product(range(size.nets or 1), kinds, TRAININGS, depths, widths)
        groups = []
        for seed, activation, training, depth, width in sorted(
            grid, key=lambda each: (each[3] * each[4] ** 2, each[0])
        ):
            samples = min(
                size.samples or study.SAMPLES, study.SAMPLES if width <= study.WIDE else study.FEWER
            )
            left_out = study.left_out(activation, depth, width, seed)
            text = (
                f"{study.TASK}; 49-{'-'.join([str(width)] * min(depth, 3))}{'...' if depth > 3 else ''}-10, "
                f"{depth} hidden layers of {activation}; oracle of {samples} samples"
            )
            groups.append(
                study.ComputeGroup(
                    name=self.name,
                    metrics=self.metrics,
                    versions=of_method(self.version),
                    replicated=Replicated(
                        self.name,
                        f"{depth}x{width} {training}",
                        text,
                        digest(activation, training, depth, width, samples, study.STEPS)[:16],
                        activation,
                        depth,
                    ),
                    methods=tuple(method for method in self.rules if method not in left_out),
                    seeds=(seed,),
                    device="cpu",
                    dataset="mnist 7x7",
                    objective=f"{activation} {depth}x{width} {training}",
                    activation=activation,
                    depth=depth,
                    width=width,
                    is_trained=training == "trained",
                    samples=samples,
                )
            )
        return Expansion(groups)


EXPERIMENT = EqualCompute(
    name="compute",
    description="rules and samplers at equal operations, by depth, width and noise (not in the paper)",
    title="Equal compute",
    rank=240,
    metrics=("operations", *USES, "accuracy", "noise", "kinks"),
    rules=(
        "regular",
        "oracle",
        *RULES,
        *(f"{sampler}:samples={size}" for sampler in SAMPLERS for size in SIZES),
    ),
    paper=Size(nets=2, samples=2**17, depths=(1, 2, 4, 8, 16, 32)),
    presets={
        "smoke": Size(nets=1, samples=2**12, depths=(1,), on_request=True),
        "quick": Size(nets=1, samples=2**15, depths=(1, 4), on_request=True),
    },
    options=frozenset({"samples", "depths", "width", "activation"}),
)
