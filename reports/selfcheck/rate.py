"""A promised rate, and how often the thing happened in simulated trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

Part = Literal["floors", "intervals", "power", "verdicts", "gate", "kit"]

NOTHING = 0.0, 1.0
"""Promised of a rate that is only told."""


@dataclass(frozen=True)
class Rate:
    """How often something happened in trials whose truth is known.

    Parameters
    ----------
    part : str
        What of the suite makes the promise: "floors", "intervals", "power", "verdicts", "gate" or "kit".
    what : str
        What was counted, in words: "the 95 % point of the headline's floor covers a fresh oracle".
    condition : str
        Under which law, size and number of samples.
    promised : tuple of float
        Smallest and largest rate that keeps the promise; (0, .05) for at most 5 %.
    hits, trials : int
    """

    part: Part
    what: str
    condition: str
    promised: tuple[float, float]
    hits: int
    trials: int

    level: ClassVar[float] = 0.99  # of the interval: there are many rates on one page

    def __post_init__(self) -> None:
        low, high = self.promised
        if not 0 <= low <= high <= 1:
            raise ValueError(f"promised must be an interval within [0, 1], got {self.promised}")
        if not 0 <= self.hits <= self.trials or not self.trials:
            raise ValueError(f"hits must be 0 to trials, and trials > 0, got {self.hits} of {self.trials}")

    @property
    def rate(self) -> float:
        """Share of the trials in which it happened."""
        return self.hits / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's interval of the rate, at `level`."""
        from scipy import stats

        low, high = stats.binomtest(self.hits, self.trials).proportion_ci(self.level, method="exact")
        return float(low), float(high)

    @property
    def is_promise(self) -> bool:
        """Whether anything is promised."""
        return self.promised != NOTHING

    @property
    def kept(self) -> bool:
        """Whether the interval reaches into what was promised."""
        low, high = self.interval
        return low <= self.promised[1] and high >= self.promised[0]
