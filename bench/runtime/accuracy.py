"""Accuracy of each rule on the CI cells, tracked by asv; lower is better.

The cells, rules and metrics are those of `bench.experiments.iris.ci` and no others, measured as a run does
it. A commit without that module is skipped.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch

try:
    from sdp_bench.bench.experiments.iris import ci
except ImportError:  # asv imports this file at other commits too
    ci = None  # type: ignore[assignment]

Errors = dict[tuple[str, str, str], float]
"""By net and noise, rule, and name of the metric."""

_PLACES = 1000


def parameters() -> list[list[str]]:
    """Nets with a noise level, and rules.

    asv tells a commit the place of a parameter in these lists, as another commit has them: where there are no
    CI cells each place must be there, to be skipped.

    Returns
    -------
    list of list of str
        Names of nets and noise levels, then of rules.
    """
    if ci is None:
        return [["no CI cells at this commit"], ["-"] * _PLACES]
    nets = [
        _name(architecture.label, sigma)
        for architecture in ci.ARCHITECTURES
        for sigma in ci.EXPERIMENT.sigmas
    ]
    return [nets, list(ci.EXPERIMENT.rules)]


def measure(groups: list[Any]) -> Errors:
    """Errors of each rule on groups of cells: means over their inputs."""
    from sdp_bench.bench.runs.group import run_group

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

    Seeds come from the cells, so that a commit that changes no number shows the same figures to rounding.
    """

    param_names: ClassVar = ["cells", "rule"]
    params: ClassVar = parameters()
    timeout = 600

    def setup_cache(self) -> Errors:
        """Measure all cells, once a commit."""
        torch.set_num_threads(1)
        return {} if ci is None else measure(ci.groups())

    def setup(self, errors: Errors, *_params: str) -> None:
        """Skip what this commit cannot do; raises NotImplementedError."""
        if not errors:
            raise NotImplementedError("no CI cells at this commit")

    def track_total_variation(self, errors: Errors, cells: str, rule: str) -> float:
        """Headline total variation."""
        return _error(errors, cells, rule, "tv_headline")

    def track_gaussian_kl(self, errors: Errors, cells: str, rule: str) -> float:
        """Kullback-Leibler divergence (nat) between Gaussians with the oracle's moments and the rule's."""
        return _error(errors, cells, rule, "gaussian_kl")


def _error(errors: Errors, cells: str, rule: str, metric: str) -> float:
    # asv shows NaN as what is missing; infinities exhaust its memory when it publishes.
    value = errors.get((cells, rule, metric), math.nan)
    return value if math.isfinite(value) else math.nan
