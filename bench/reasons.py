"""Reasons for missing measurements, which reports show without importing what runs experiments."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from .metrics import recorded_metric


@dataclass(frozen=True)
class Reason:
    """Why some metrics of a rule were not measured."""

    rule: str  # spec; empty if the reason is not about one rule
    metrics: tuple[str, ...]  # distinct labels; empty if the reason is not about single metrics
    error: str
    places: tuple[str, ...] = ()  # distinct settings
    seconds: float = 0.0  # longest time until the failure; NaN if it is unknown

    @property
    def line(self) -> str:
        """Metrics and reason: ``Bures, Gaussian KL: a covariance is needed, which a Cauchy law has not``."""
        return ": ".join(filter(None, (", ".join(self.metrics), self.error)))


def reasons(failures: Iterable[tuple[str, str, str, str, float]]) -> list[Reason]:
    """Group failures by rule and error, in order of first occurrence.

    A failure is a rule, a metric, an error, a setting (empty texts if unknown), and the time until then (s).
    """
    groups: dict[tuple[str, str], list[tuple[str, str, float]]] = {}
    for rule, metric, error, setting, seconds in failures:
        groups.setdefault((rule, error), []).append((metric, setting, seconds))
    grouped = []
    for (rule, error), group in groups.items():
        labels = [recorded_metric(metric).label for metric, _, _ in group if metric]
        settings = [setting for _, setting, _ in group if setting]
        times = [seconds for _, _, seconds in group if not math.isnan(seconds)]
        grouped.append(
            Reason(
                rule,
                tuple(dict.fromkeys(labels)),
                error,
                tuple(dict.fromkeys(settings)),
                max(times, default=math.nan),
            )
        )
    return grouped
