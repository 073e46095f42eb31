"""Verdicts on one claim under several conventions, counted by kind and never merged into one word."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from sdp_bench.reports.statistics.verdicts import Verdict

ORDER = (Verdict.REFUTED, Verdict.SUPPORTED, Verdict.UNDECIDED, Verdict.NOT_MEASURED)
"""Refutations come first, so that other verdicts cannot hide them."""

_NAMED = 2  # at most this many conventions with the same verdict are named; more are only counted


class Outcome(Enum):
    """Summary of the verdicts over all measured conventions, for one or several statements."""

    SUPPORTED = ("supported", "supported")
    REFUTED = ("refuted", "refuted")
    PARTLY_REFUTED = ("refuted under some conventions, supported under none",) * 2
    DEPENDS = ("depends on the convention", "depend on the convention")
    PARTLY_SUPPORTED = ("supported under some conventions, refuted under none",) * 2
    UNDECIDED = ("undecided", "undecided")
    NOT_MEASURED = ("not measured", "not measured")


_OUTCOMES = {
    frozenset[Verdict](): Outcome.NOT_MEASURED,
    frozenset({Verdict.SUPPORTED}): Outcome.SUPPORTED,
    frozenset({Verdict.REFUTED}): Outcome.REFUTED,
    frozenset({Verdict.UNDECIDED}): Outcome.UNDECIDED,
    frozenset({Verdict.REFUTED, Verdict.UNDECIDED}): Outcome.PARTLY_REFUTED,
    frozenset({Verdict.SUPPORTED, Verdict.UNDECIDED}): Outcome.PARTLY_SUPPORTED,
    frozenset({Verdict.SUPPORTED, Verdict.REFUTED}): Outcome.DEPENDS,
    frozenset({Verdict.SUPPORTED, Verdict.REFUTED, Verdict.UNDECIDED}): Outcome.DEPENDS,
}


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on one claim, by name of the convention, in the order of the conventions."""

    by_convention: Mapping[str, Verdict]

    @functools.cached_property
    def counts(self) -> Mapping[Verdict, int]:
        """Number of conventions by verdict, in the order of `ORDER`."""
        counts = Counter(self.by_convention.values())
        return {verdict: counts[verdict] for verdict in ORDER if counts[verdict]}

    @property
    def outcome(self) -> Outcome:
        """Summary of the measured conventions; those not measured are ignored."""
        return _OUTCOMES[frozenset(self.counts) - {Verdict.NOT_MEASURED}]

    @property
    def words(self) -> str:
        """Summary such as ``refuted in 5 of 6; undecided in decision``."""
        first, *others = self.counts or {Verdict.NOT_MEASURED: 0}
        if first is Verdict.NOT_MEASURED:
            return str(first)
        measured = len(self.by_convention) - self.counts.get(Verdict.NOT_MEASURED, 0)
        extent = {1: "", 2: " in both"}.get(measured, f" in all {measured}")
        if self.counts[first] < measured:
            names = self._names(first)
            extent = f" in {self.counts[first]} of {measured}" + (f" ({names})" if names else "")
        return "; ".join([f"{first}{extent}", *map(self._rest, others)])

    def _rest(self, verdict: Verdict) -> str:
        if verdict is Verdict.NOT_MEASURED:
            return f"{self.counts[verdict]} {verdict}"
        return f"{verdict} in {self._names(verdict) or self.counts[verdict]}"

    def _names(self, verdict: Verdict) -> str:
        """Conventions with this verdict; empty if there are more than `_NAMED`."""
        names = [name for name, other in self.by_convention.items() if other is verdict]
        return " and ".join(names) if len(names) <= _NAMED else ""
