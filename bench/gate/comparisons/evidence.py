"""What fresh draws say about a change: its size, its p-value, and the size that matters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from scipy.special import chdtrc, stdtr

from sdp_bench.oracles.estimate.multiplicity import holm

LEVEL = 0.01
"""Of all tests of a run together, by Holm's method. At most 4 alarms of 200 unchanged runs certify 5 %; a run
that alarms with 1 % passes that with a probability of .95, and practical sizes make it rarer still."""

K = TypeVar("K")


@dataclass(frozen=True)
class Evidence:
    """One measure of a change; positive differences are for the worse.

    Attributes
    ----------
    measure : str
    difference, stderr : float
    practical : float
        Differences up to this do not matter.
    p : float
        Two-sided but of :func:`nearness`; once adjusted, for all tests of the run.
    neutral : bool
        Whether it is about a change that is neither good nor bad by itself.
    """

    measure: str
    difference: float
    stderr: float
    practical: float
    p: float
    neutral: bool = False

    @property
    def shown(self) -> bool:
        """Whether it is beyond its standard error."""
        return self.p <= LEVEL

    @property
    def lower(self) -> bool:
        """Shown to be for the better, by however little."""
        return self.shown and self.difference < 0 and not self.neutral

    @property
    def matters(self) -> bool:
        """Shown, and as large as matters, in either direction."""
        return self.shown and abs(self.difference) > self.practical

    @property
    def worse(self) -> bool:
        """Shown to be for the worse, and by as much as matters."""
        return self.matters and self.difference > 0 and not self.neutral

    @property
    def text(self) -> str:
        """In words: ``log error +0.102 ± 0.01``."""
        return f"{self.measure} {self.difference:+.3g} ± {self.stderr:.1g}"

    @property
    def numbers(self) -> dict[str, float]:
        """For machines."""
        name = self.measure
        return {
            f"{name} difference": self.difference,
            f"{name} stderr": self.stderr,
            f"{name} practical": self.practical,
            f"{name} adjusted p": self.p,
        }


def p_value(difference: float, stderr: float, freedom: float) -> float:
    """Two-sided p-value of "the difference is 0" by Student's t; without any noise, 1 or 0."""
    if difference == 0 or math.isnan(difference):
        return 1.0
    if math.isinf(difference) or stderr == 0:
        return 0.0
    return float(2 * stdtr(freedom, -abs(difference) / stderr))


def nearness(measure: str, shares: Iterable[tuple[float, int]]) -> Evidence:
    """Whether draws are nearer to what they are compared with than independent ones would be.

    Parameters
    ----------
    measure : str
    shares : iterable of (float, int)
        In each place, the share of other draws, and itself, that are as near, and their number: uniform if
        they are independent. Places with none do not count.

    Returns
    -------
    Evidence
        The difference is the mean share of those farther off less one half; the p-value is one-sided, of the
        product of the shares (Fisher 1925).
    """
    told = [share for share, others in shares if others]
    if not told:
        return Evidence(measure, 0.0, 0.0, 0.0, 1.0, True)
    p = float(chdtrc(2 * len(told), -2 * sum(math.log(share) for share in told)))
    return Evidence(measure, 0.5 - sum(told) / len(told), math.sqrt(1 / 12 / len(told)), 0.0, p, True)


def adjust(evidence: Mapping[K, Sequence[Evidence]], level_share: float = 1.0) -> dict[K, list[Evidence]]:
    """The same with p-values adjusted for their number (Holm 1979), at a share of the level."""
    raw = [one.p for each in evidence.values() for one in each]
    adjusted = iter(np.minimum(1.0, holm(raw) / level_share).tolist())
    return {key: [replace(one, p=next(adjusted)) for one in each] for key, each in evidence.items()}
