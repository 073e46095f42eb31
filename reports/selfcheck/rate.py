"""Promised and simulated rates of an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

Part = Literal["floors", "intervals", "power", "verdicts", "gate", "kit"]

NOTHING = 0.0, 1.0
"""Range of a rate without a promise."""


@dataclass(frozen=True)
class Rate:
    """Frequency of an event in trials with known truth.

    `part` is the part of the suite that makes the promise: "floors", "intervals", "power", "verdicts", "gate"
    or "kit". `what` describes the event ("the 95 % point of the headline's floor covers a fresh oracle"), and
    `condition` the distribution, size and number of samples. `promised` are the smallest and largest promised
    rates; (0, 0.05) for at most 5 %.
    """

    part: Part
    what: str
    condition: str
    promised: tuple[float, float]
    hits: int
    trials: int

    level: ClassVar[float] = 0.99  # of the interval; high, because a page has many rates

    def __post_init__(self) -> None:
        low, high = self.promised
        if not 0 <= low <= high <= 1:
            raise ValueError(f"promised must be an interval within [0, 1], got {self.promised}")
        if not 0 <= self.hits <= self.trials or not self.trials:
            raise ValueError(f"hits must be 0 to trials, and trials > 0, got {self.hits} of {self.trials}")

    @property
    def rate(self) -> float:
        return self.hits / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper-Pearson interval of the rate at `level`."""
        from scipy import stats

        low, high = stats.binomtest(self.hits, self.trials).proportion_ci(self.level, method="exact")
        return float(low), float(high)

    @property
    def is_promise(self) -> bool:
        return self.promised != NOTHING

    @property
    def kept(self) -> bool:
        """Whether the interval overlaps the promised range."""
        low, high = self.interval
        return low <= self.promised[1] and high >= self.promised[0]
