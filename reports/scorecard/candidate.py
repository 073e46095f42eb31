"""A rule under test."""

from __future__ import annotations

from dataclasses import dataclass

from sdp_bench.bench.text import public
from sdp_ref.conformance import ConformanceReport


@dataclass(frozen=True)
class Candidate:
    """A rule under test.

    `name` is that in records. `address` and `source` are the location and the code of a plug-in rule, and
    `mark` is a hash of its code and dependencies; all are empty for a built-in rule. `report` is that of the
    conformance kit, and `trouble` the reason if the kit was requested but gave none. `unmeasured` says that
    measurements were requested but none exists.
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
        """Whether the kit found an undeclared failure, or no check applied."""
        return self.report is not None and (bool(self.report.unexpected) or not self.report.ran)
