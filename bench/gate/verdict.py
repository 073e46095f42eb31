"""Findings and verdicts of the gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ..errors import RunFailedError

ALL_CASES = "all cells together"
Step = Callable[[int, int, str], object]
"""Called with number, total and name of each step of a check."""


class Status(StrEnum):
    """Status of one comparison, the most severe first; the values are shown to readers."""

    SLOWER = "slower"
    CHANGED = "changed"
    GONE = "only in the baseline"
    FAILED = "failed"
    ACCEPTED = "slower, accepted"
    FASTER = "faster"
    NEW = "not compared"
    ROUNDING = "rounding"
    UNCHANGED = "unchanged"

    @property
    def rank(self) -> int:
        return list(Status).index(self)


STOPPING = (Status.SLOWER, Status.CHANGED, Status.GONE)
"""Statuses that need attention; ``--allow-slower`` accepts the first, and ``--update`` the others."""

REGRESSION, CHANGED, FAILED, NOTHING = "regression", "changed", "failed", "nothing compared"
PASSED = "passed"
RANKED = (REGRESSION, CHANGED, FAILED, PASSED, NOTHING)
"""Statuses of a verdict; the first of several is that of the check."""


@dataclass(frozen=True)
class Finding:
    """One rule in one cell or probe, or on one net."""

    subject: str  # spec of the rule
    cell: str  # name of the cell, probe or net; empty if the finding is about the rule itself
    status: Status
    text: str = ""  # observation, in one line
    numbers: dict[str, float] = field(default_factory=dict)  # the numbers in `text`

    @property
    def stops(self) -> bool:
        """Whether it needs attention."""
        return self.status in STOPPING

    def __str__(self) -> str:
        where = f" in {self.cell}" if self.cell else ""
        return f"{self.subject}{where}: {self.status}; {self.text}".rstrip("; ")

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON; numbers that JSON does not support become strings."""
        numbers = {name: x if math.isfinite(x) else str(x) for name, x in self.numbers.items()}
        return {**asdict(self), "numbers": numbers}


@dataclass(frozen=True)
class GateVerdict:
    """Outcome of one kind of check."""

    kind: str  # ``accuracy`` or ``speed``
    findings: tuple[Finding, ...]
    note: str = ""  # remark for readers, in one line; may be empty

    @property
    def status(self) -> str:
        """One of `RANKED`."""
        if self.having(Status.SLOWER):
            return REGRESSION
        if self.having(*STOPPING):
            return CHANGED
        if self.having(Status.FAILED):
            return FAILED
        return PASSED if self.compared else NOTHING

    @property
    def compared(self) -> list[Finding]:
        """Findings of actual comparisons."""
        return [f for f in self.findings if f.status not in (Status.FAILED, Status.NEW, Status.GONE)]

    @property
    def summary(self) -> str:
        cells = [finding for finding in self.findings if finding.cell != ALL_CASES] or self.findings
        counts = {status: sum(f.status == status for f in cells) for status in reversed(Status)}
        parts = [f"{number} {status}" for status, number in counts.items() if number]
        names = self.rules(*STOPPING)
        of = f" of {', '.join(names)}" if names else ""
        return f"{self.kind}: {self.status.upper()}{of} ({', '.join(parts) or 'no findings'})"

    def having(self, *statuses: Status) -> list[Finding]:
        return [finding for finding in self.findings if finding.status in statuses]

    def rules(self, *statuses: Status) -> list[str]:
        """Return the rules with findings of some statuses."""
        return list(dict.fromkeys(finding.subject for finding in self.having(*statuses)))

    def of(self, rule: str) -> list[Finding]:
        """Return the findings on a rule, most severe first."""
        return sorted((f for f in self.findings if f.subject == rule), key=lambda f: f.status.rank)

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "status": self.status,
            "summary": self.summary,
            "note": self.note,
            "findings": [finding.as_dict() for finding in self.findings],
        }


def overall(verdicts: Iterable[GateVerdict]) -> str:
    """Return the most severe status of verdicts; `NOTHING` counts only if none of them compared anything.

    A change outranks a failure: it stops a merge, and a failure of another rule must not hide it.
    """
    statuses = {verdict.status for verdict in verdicts}
    return min(statuses, key=RANKED.index)


def exit_code(verdicts: Iterable[GateVerdict]) -> int:
    """Return 0 (passed), 1 (needs attention), or 3 (else fine, but a rule failed or nothing was compared)."""
    status = overall(verdicts)
    if status in (REGRESSION, CHANGED):
        return 1
    return 0 if status == PASSED else RunFailedError.exit_code
