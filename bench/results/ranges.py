"""Ranges of the numbers of a measurement: a number outside is an error or damage."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

_ROUNDING = 1e-9
_LARGEST = sys.float_info.max


class Range(NamedTuple):
    """Smallest and largest possible number; by default any finite one."""

    low: float = -_LARGEST
    high: float = _LARGEST


_SHARE = Range(-_ROUNDING, 1 + _ROUNDING)
_SIZE = Range(-_ROUNDING)
_RATIO = Range(-_ROUNDING, math.inf)

_RANGES = {
    **dict.fromkeys(("tv_headline", "tv_principal", "tv_paper", "tv_joint", "tv_output"), _SHARE),
    **dict.fromkeys(("tv_class", "tv_difference", "tv_margin", "tv_pairs", "tv_sliced"), _SHARE),
    **dict.fromkeys(("accuracy", "risk", "rcauc", "picp", "validation_picp"), _SHARE),
    **dict.fromkeys(("w1", "w1_certified", "w1_sliced", "bures", "bures_logits"), _SIZE),
    **dict.fromkeys(("mpiw", "validation_mpiw", "qualified"), _SIZE),
    **dict.fromkeys(("input_variance", "learning_rate", "weight_decay"), _SIZE),
    **dict.fromkeys(("std_ratio", "iqr_ratio", "gaussian_kl", "quantile_mean", "quantile_max"), _RATIO),
    **dict.fromkeys(("interval_width", "tails"), _RATIO),
    "crps": _SIZE,
    "coverage": Range(-_ROUNDING, 2.0),  # the level, and what an exact rule with few samples may miss it by
    "log_score": Range(high=math.inf),
    "min_eigenvalue": Range(high=1 + _ROUNDING),
}
_ANY = Range()


def limits(metric: str) -> tuple[Range, Range, Range, Range]:
    """Return the ranges of value, floor, 95 % point and standard error of a metric, given by its spec.

    A metric that is not the package's own may have any finite value.
    """
    value = _RANGES.get(metric.partition(":")[0], _ANY)
    floor = Range(value.low, min(value.high, _LARGEST))
    return value, floor, floor, Range(0.0)


def outside(
    metric: str, value: float, floor: float | None, floor95: float | None, stderr: float | None
) -> str:
    """Describe what is wrong with the numbers of a measurement; empty if nothing is."""
    numbers = {"value": value, "floor": floor, "floor95": floor95, "stderr": stderr}
    for (name, number), (low, high) in zip(numbers.items(), limits(metric), strict=True):
        if number is not None and not low <= number <= high:
            return f"{name} {number} of {metric}, which cannot be"
    return ""
