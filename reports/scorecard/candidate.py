"""A rule under test, as the scorecard takes it."""

from __future__ import annotations

from dataclasses import dataclass

from sdp_bench.bench.text import public
from sdp_ref.conformance import ConformanceReport


@dataclass(frozen=True)
class Candidate:
    """A rule under test.

    Attributes
    ----------
    name : str
        That of the records.
    address, source, mark : str
        Where it was found, its code, and a hash of that and of what it rests on; a built-in rule has none.
    report : ConformanceReport, optional
        Of the conformance kit.
    trouble : str
        Why the kit that was to run gave no report.
    unmeasured : bool
        Whether it was to be measured and has no record.
    """

    name: str
    address: str = ""
    source: str = ""
    mark: str = ""
    report: ConformanceReport | None = None
    trouble: str = ""
    unmeasured: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "trouble", public(self.trouble))

    @property
    def is_wrong(self) -> bool:
        """Whether the kit ran, and a check failed that it does not declare as a fault, or none applied."""
        return self.report is not None and (bool(self.report.unexpected) or not self.report.ran)
