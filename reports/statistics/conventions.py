"""One claim under several conventions: how many verdicts of each kind, and never one word for a mixture."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from sdp_bench.reports.statistics.verdicts import Verdict
from sdp_bench.reports.style import labels

ORDER = (Verdict.FAILS, Verdict.HOLDS, Verdict.UNDECIDED, Verdict.NOT_MEASURED)
"""In which verdicts are told: a failure first, since nothing may hide it."""

_NAMED = 2  # conventions that share a verdict are named up to this many, and counted beyond


class Outcome(Enum):
    """What verdicts come to over the conventions that were measured; said of one claim, and of several."""

    HOLDS = ("holds everywhere", "hold everywhere")
    FAILS = ("fails everywhere", "fail everywhere")
    FAILS_SOMEWHERE = (
        "fails in some conventions and holds in none",
        "fail in some conventions and hold in none",
    )
    TURNS = ("turns with the convention", "turn with the convention")
    HOLDS_SOMEWHERE = (
        "holds in some conventions and fails in none",
        "hold in some conventions and fail in none",
    )
    UNDECIDED = ("is undecided everywhere", "are undecided everywhere")
    NOT_MEASURED = ("is not measured", "are not measured")


_OUTCOMES = {
    frozenset[Verdict](): Outcome.NOT_MEASURED,
    frozenset({Verdict.HOLDS}): Outcome.HOLDS,
    frozenset({Verdict.FAILS}): Outcome.FAILS,
    frozenset({Verdict.UNDECIDED}): Outcome.UNDECIDED,
    frozenset({Verdict.FAILS, Verdict.UNDECIDED}): Outcome.FAILS_SOMEWHERE,
    frozenset({Verdict.HOLDS, Verdict.UNDECIDED}): Outcome.HOLDS_SOMEWHERE,
    frozenset({Verdict.HOLDS, Verdict.FAILS}): Outcome.TURNS,
    frozenset({Verdict.HOLDS, Verdict.FAILS, Verdict.UNDECIDED}): Outcome.TURNS,
}


@dataclass(frozen=True)
class Verdicts:
    """The verdict on one claim over conventions.

    Attributes
    ----------
    by_convention : mapping of str to Verdict
        By the names of the conventions, in their order.
    largest : str
        Where the claim fails anywhere: the largest effect by which it does, with its interval.
    """

    by_convention: Mapping[str, Verdict]
    largest: str = ""

    @functools.cached_property
    def counts(self) -> Mapping[Verdict, int]:
        """How many of each there are, in the order in which they are told."""
        counts = Counter(self.by_convention.values())
        return {verdict: counts[verdict] for verdict in ORDER if counts[verdict]}

    @property
    def outcome(self) -> Outcome:
        """What they come to; a convention that was not measured says nothing."""
        return _OUTCOMES[frozenset(self.counts) - {Verdict.NOT_MEASURED}]

    @property
    def words(self) -> str:
        """Summary: ``fails in 5 of 6, largest effect −0.11 (−0.13 to −0.09); undecided in decision``."""
        first, *others = self.counts or {Verdict.NOT_MEASURED: 0}
        if first is Verdict.NOT_MEASURED:
            return str(first)
        measured = len(self.by_convention) - self.counts.get(Verdict.NOT_MEASURED, 0)
        extent = {1: "", 2: " in both"}.get(measured, f" in all {measured}")
        if self.counts[first] < measured:
            names = self._names(first)
            extent = f" in {self.counts[first]} of {measured}" + (f" ({names})" if names else "")
        said = f"{first}{extent}"
        if first is Verdict.FAILS and self.largest:
            said += f", {'largest ' if self.counts[first] > 1 else ''}effect {self.largest}"
        return "; ".join([said, *map(self._rest, others)])

    def _rest(self, verdict: Verdict) -> str:
        if verdict is Verdict.NOT_MEASURED:
            return f"{self.counts[verdict]} {verdict}"
        return f"{verdict} in {self._names(verdict) or self.counts[verdict]}"

    def _names(self, verdict: Verdict) -> str:
        """Conventions with a verdict; empty where they are too many to be named."""
        names = [name for name, other in self.by_convention.items() if other is verdict]
        return " and ".join(names) if len(names) <= _NAMED else ""


def tally(every: Iterable[Verdicts]) -> str:
    """How many claims come to what: ``16 claims: 5 hold everywhere, 3 fail in some conventions ...``.

    Parameters
    ----------
    every : iterable of Verdicts
        One for each claim.

    Returns
    -------
    str
    """
    counts = Counter(verdicts.outcome for verdicts in every)
    said = [
        f"{counts[outcome]} {outcome.value[counts[outcome] > 1]}" for outcome in Outcome if counts[outcome]
    ]
    return f"{labels.plural(counts.total(), 'claim')}: {', '.join(said)}"
