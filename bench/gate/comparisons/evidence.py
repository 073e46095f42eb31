"""Evidence of fresh draws for a change: its size, its p-value, and the practically relevant size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from scipy.special import chdtrc, stdtr

from sdp_bench.oracles.estimate.multiplicity import holm

LEVEL = 0.01
"""Level of all tests of a run together, by Holm's method. At most 4 alarms in 200 unchanged runs certify 5 %;
a run with a false alarm rate of 1 % passes that with probability .95, and practical sizes make alarms rarer.
"""

K = TypeVar("K")


@dataclass(frozen=True)
class Evidence:
    """One measure of a change; positive differences are for the worse."""

    measure: str
    difference: float
    stderr: float
    practical: float  # largest difference without practical relevance
    p: float  # two-sided p-value (one-sided for `nearness`); `adjust` corrects it for all tests of the run
    neutral: bool = False  # whether the change is neither good nor bad by itself

    @property
    def shown(self) -> bool:
        """Whether the change is significant."""
        return self.p <= LEVEL

    @property
    def lower(self) -> bool:
        """Whether it is a significant improvement of any size."""
        return self.shown and self.difference < 0 and not self.neutral

    @property
    def matters(self) -> bool:
        """Whether it is significant and of relevant size, in either direction."""
        return self.shown and abs(self.difference) > self.practical

    @property
    def worse(self) -> bool:
        """Whether it is a significant deterioration of relevant size."""
        return self.matters and self.difference > 0 and not self.neutral

    @property
    def text(self) -> str:
        """Description: ``log error +0.102 ± 0.01``."""
        return f"{self.measure} {self.difference:+.3g} ± {self.stderr:.1g}"

    @property
    def numbers(self) -> dict[str, float]:
        name = self.measure
        return {
            f"{name} difference": self.difference,
            f"{name} stderr": self.stderr,
            f"{name} practical": self.practical,
            f"{name} adjusted p": self.p,
        }


def p_value(difference: float, stderr: float, freedom: float) -> float:
    """Return the two-sided p-value of "the difference is 0" by Student's t; without noise it is 1 or 0."""
    if difference == 0 or math.isnan(difference):
        return 1.0
    if math.isinf(difference) or stderr == 0:
        return 0.0
    return float(2 * stdtr(freedom, -abs(difference) / stderr))


def nearness(measure: str, shares: Iterable[tuple[float, int]]) -> Evidence:
    """Return whether draws are nearer to those they are compared with than independent draws would be.

    `shares` gives, for each cell, the share of other draws, including itself, that are as near, and their
    number; it is uniform for independent draws. Cells without draws are ignored. The difference is the mean
    share of farther draws minus one half. The p-value is one-sided, for the product of the shares (Fisher
    1925).
    """
    told = [share for share, others in shares if others]
    if not told:
        return Evidence(measure, 0.0, 0.0, 0.0, 1.0, True)
    p = float(chdtrc(2 * len(told), -2 * sum(math.log(share) for share in told)))
    return Evidence(measure, 0.5 - sum(told) / len(told), math.sqrt(1 / 12 / len(told)), 0.0, p, True)


def adjust(evidence: Mapping[K, Sequence[Evidence]], level_share: float = 1.0) -> dict[K, list[Evidence]]:
    """Return the evidence with p-values adjusted for their number (Holm 1979), at a share of the level."""
    raw = [one.p for each in evidence.values() for one in each]
    adjusted = iter(np.minimum(1.0, holm(raw) / level_share).tolist())
    return {key: [replace(one, p=next(adjusted)) for one in each] for key, each in evidence.items()}
