"""The outcome of a validation, except the measurements, which are in a folder of results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sdp_ref.conformance import ConformanceReport

from ..plugins.plugin import Plugin
from ..text import public


@dataclass(frozen=True)
class Candidate:
    """A rule under test.

    `name` is that in records. `address` is the location of a plug-in rule, and `mark` is a hash of its code
    and dependencies; both are empty for a built-in rule. `report` is that of the
    conformance kit, and `trouble` the reason if the kit was requested but gave none.
    """

    name: str
    address: str = ""
    mark: str = ""
    report: ConformanceReport | None = None
    trouble: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "trouble", public(self.trouble))

    @property
    def is_wrong(self) -> bool:
        """Whether the kit found an undeclared failure, or no check applied."""
        return self.report is not None and (bool(self.report.unexpected) or not self.report.ran)


@dataclass(frozen=True, kw_only=True)
class Validation:
    """The rules under test, their conformance, and the run that measured them.

    `run` is the number of the run, and None if the kit finished for no rule, so that
    nothing was measured. `plugins` are the plug-ins among the candidates. `notes` concern the net and the
    measurements. `advice` has the rows of :func:`sdp_bench.bench.advice.advice.advise_on` for a user's net,
    if advice was possible, and `budget` those of :func:`sdp_bench.bench.budget.budget.budget_on`, if it was
    requested. `is_whole` is False if something failed to run. `command` is that of the run.
    """

    candidates: tuple[Candidate, ...]
    plugins: tuple[Plugin, ...]
    run: str | None
    notes: tuple[str, ...]
    own_net: bool
    advice: tuple[Mapping[str, Any], ...]
    budget: tuple[Mapping[str, Any], ...]
    is_whole: bool
    command: str
