"""Accuracy of each rule on the CI cells, tracked by asv; lower is better.

Cells, rules and metrics are those of `sdp_bench.bench.experiments.ci`, measured as in a run.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch

from sdp_bench.bench.experiments import ci

Errors = dict[tuple[str, str, str], float]
"""Errors by net and noise, rule, and name of the metric."""


def measure(groups: list[Any]) -> Errors:
    """Return errors of each rule on groups of cells, averaged over inputs."""
    from sdp_bench.bench.runs.driver import run_group

    values: dict[tuple[str, str, str], list[float]] = {}
    for group in groups:
        name = _name(group.net.architecture.label, group.sigma)
        for record in run_group(group, group.cells).records:
            key = (name, record.rule, record.metric.partition(":")[0])
            values.setdefault(key, []).append(record.value)
    return {key: math.fsum(each) / len(each) for key, each in values.items()}


def _name(net: str, sigma: float) -> str:
    return f"{net} sigma {sigma:g}"


class Accuracy:
    """Mean errors of a rule over the inputs of one net and noise level.

    Seeds come from the cells, so values change only if a commit changes the numbers, apart from rounding.
    """

    param_names: ClassVar = ["cells", "rule"]
    params: ClassVar = [
        [_name(net.label, sigma) for net in ci.ARCHITECTURES for sigma in ci.EXPERIMENT.sigmas],
        list(ci.EXPERIMENT.rules),
    ]
    timeout = 600

    def setup_cache(self) -> Errors:
        """Measure all cells, once per commit."""
        torch.set_num_threads(1)
        return measure(ci.groups())

    def track_total_variation(self, errors: Errors, cells: str, rule: str) -> float:
        return self._error(errors, cells, rule, "tv_headline")

    def track_gaussian_kl(self, errors: Errors, cells: str, rule: str) -> float:
        """Kullback-Leibler divergence (nat) between Gaussians with the oracle's moments and the rule's."""
        return self._error(errors, cells, rule, "gaussian_kl")

    def _error(self, errors: Errors, cells: str, rule: str, metric: str) -> float:
        # asv treats NaN as missing; infinities exhaust its memory on publishing.
        value = errors.get((cells, rule, metric), math.nan)
        return value if math.isfinite(value) else math.nan
