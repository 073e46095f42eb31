"""Accuracy of each rule on the CI cells, and changes of its predictions, tracked by asv; lower is better.

Cells, rules and metrics are those of `sdp_bench.bench.experiments.ci`, measured as in a run.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

import sdp_ref as sr

from . import shown

Numbers = dict[tuple[str, str, str], float]
"""Numbers by net and noise, rule, and name of the metric."""
BASELINE = Path(__file__).parents[2] / "reports" / "baselines" / "ci.json"
"""Predictions of the gate, with which every commit is compared."""
CHANGE = "change"
SAME = 1e-3
"""The gate's threshold; smaller changes, such as those by rounding, count as this one."""


def measure(groups: list[Any]) -> Numbers:
    """Return errors of each rule on groups of cells, averaged over inputs, and the largest change."""
    from sdp_bench.bench.runs.driver import run_group

    values = defaultdict[tuple[str, str, str], list[float]](list)
    for group in groups:
        name = f"{group.net.architecture.label} sigma {group.sigma:g}"
        for record in run_group(group, group.cells).records:
            values[name, record.rule, record.metric.partition(":")[0]].append(record.value)
        for rule in group.subjects[0].rules:
            values[name, rule, CHANGE] = [change(group, rule)]
    means = {key: statistics.fmean(numbers) for key, numbers in values.items()}
    # asv treats NaN as missing; infinities exhaust its memory on publishing.
    return {key: mean if math.isfinite(mean) else math.nan for key, mean in means.items()}


def change(group: Any, rule: str) -> float:
    """Return the largest change since the gate's baseline, NaN if it lacks the rule.

    It is that of a mean in standard deviations, or the relative change of a standard deviation.
    """
    from sdp_bench.bench.experiments.predict import predict

    known = json.loads(BASELINE.read_text(encoding="utf-8"))["rules"]
    if rule not in known:
        return math.nan
    keys = [subject.key for subject in group.subjects]
    law, *_ = predict(sr.rule(rule), group.net.build(), group.law, keys)
    before = [known[rule]["predictions"][key.hex] for key in keys]
    means = np.array([answer["mean"] for answer in before])
    variances = [answer.get("variance") or np.diag(answer["covariance"]) for answer in before]
    deviations = np.sqrt(np.array(variances))
    shift = np.abs(law.mean.numpy() - means) / deviations
    return float(np.max([shift, np.abs(np.sqrt(law.variance.numpy()) / deviations - 1)], initial=SAME))


class Accuracy:
    """Mean errors of a rule over the inputs of one net and noise level.

    Seeds come from the cells, so values change only if a commit changes the numbers, apart from rounding.
    """

    param_names: ClassVar = ["cells", "rule"]
    params: ClassVar = [  # written out, since old commits have them elsewhere
        [
            f"4{layers}-3 sigma {sigma}"
            for layers in ("-100", "-100-100", "-100" * 4)
            for sigma in ("0.1", "1", "10")
        ],
        [
            *("sdp", "dvia", "moment_matching", "unscented", "marginal_sdp", "marginal_moment_matching"),
            *("monte_carlo:samples=10", "monte_carlo:samples=100", "monte_carlo:samples=100,sampler=sobol"),
        ],
    ]
    timeout = 600

    def setup_cache(self) -> Numbers:
        """Measure all cells, once per commit; nothing if the commit has none."""
        try:
            from sdp_bench.bench.experiments import ci
        except ImportError:
            return {}
        torch.set_num_threads(1)
        return measure(ci.groups())

    @shown("total variation between prediction and truth", "total variation")
    def track_tv(self, numbers: Numbers, cells: str, rule: str) -> float:
        return numbers.get((cells, rule, "tv_headline"), math.nan)

    @shown("Kullback-Leibler divergence between Gaussians with the moments of truth and prediction", "nat")
    def track_gaussian_kl(self, numbers: Numbers, cells: str, rule: str) -> float:
        return numbers.get((cells, rule, "gaussian_kl"), math.nan)

    @shown(
        "largest change of a prediction since the gate's baseline; 0.001 or less is 0.001",
        "standard deviations",
    )
    def track_same_prediction(self, numbers: Numbers, cells: str, rule: str) -> float:
        return numbers.get((cells, rule, CHANGE), math.nan)
