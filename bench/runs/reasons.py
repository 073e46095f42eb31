"""Reasons for missing measurements, which reports show without importing what runs experiments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sdp_bench.bench.errors import NOT_DEFINED
from sdp_bench.bench.metrics import recorded_metric


class Told(NamedTuple):
    """A failure; unknown fields are empty."""

    rule: str
    metric: str
    error: str
    place: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Reason:
    """Why some metrics of a rule were not measured."""

    rule: str  # spec; empty if the reason is not about one rule
    metrics: tuple[str, ...]  # distinct labels; empty if the reason is not about single metrics
    error: str
    places: tuple[str, ...] = ()  # distinct settings
    seconds: float = 0.0  # longest time until the failure

    @property
    def line(self) -> str:
        """Metrics and reason: ``Bures, Gaussian KL: a covariance is needed, which a Cauchy law has not``."""
        return ": ".join(filter(None, (", ".join(self.metrics), self.error.removeprefix(NOT_DEFINED))))


def reasons(failures: Iterable[Told]) -> list[Reason]:
    """Group failures by rule and error, in order of first occurrence."""
    found: dict[tuple[str, str], list[Told]] = {}
    for each in failures:
        found.setdefault((each.rule, each.error), []).append(each)
    return [
        Reason(
            rule,
            tuple(dict.fromkeys(recorded_metric(each.metric).label for each in own if each.metric)),
            error,
            tuple(dict.fromkeys(each.place for each in own if each.place)),
            max(each.seconds for each in own),
        )
        for (rule, error), own in found.items()
    ]
