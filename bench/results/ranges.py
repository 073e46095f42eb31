"""Which numbers a record may have: what is outside is a mistake or damage, and no measurement."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

_ROUNDING = 1e-9
_LARGEST = sys.float_info.max


class Range(NamedTuple):
    """Numbers that a metric may give; by default all but infinite ones."""

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
    "coverage": Range(-_ROUNDING, 2.0),  # the level and what an exact rule of few draws may miss it by
    "log_score": Range(high=math.inf),
    "min_eigenvalue": Range(high=1 + _ROUNDING),
}
_ANY = Range()


def outside(
    metric: str, value: float, floor: float | None, floor95: float | None, stderr: float | None
) -> str:
    """What is wrong with the numbers of a record.

    Parameters
    ----------
    metric : str
        Its spec. One that is not the package's own may have any finite value.
    value : float
    floor, floor95, stderr : float, optional
        None where they are not known.

    Returns
    -------
    str
        Empty if nothing is.
    """
    low, high = _RANGES.get(metric.partition(":")[0], _ANY)
    finite = min(high, _LARGEST)
    numbers = (
        ("value", value, low, high),
        ("floor", floor, low, finite),
        ("floor95", floor95, low, finite),
        ("stderr", stderr, 0.0, _LARGEST),
    )
    for name, number, least, most in numbers:
        if number is not None and not least <= number <= most:
            return f"{name} {number} of {metric}, which cannot be"
    return ""
