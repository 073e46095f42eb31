"""Results of the kit: one per check, and a report as table, JSON and verdict."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

Status = Literal["passed", "failed", "skipped"]

VERSION = 6
"""Version of the kit, which increases when a check is added or becomes stricter."""

_WIDTH = 108


@dataclass(frozen=True)
class CheckResult:
    """Result of one check, and the `question` that it answers.

    `detail` is the observation, or the reason why the check could not run. `numbers` has the number of judged
    ``cases``; for a failure ``error`` and ``tolerance`` are those of the entry with the largest error.

    For a failure, `example` is Python code that builds the smallest failing net and input law, calls the rule
    and repeats the check; `known` is the reason if the rule declares the failure in ``known_faults``; and
    `same_as` is an earlier check that failed for the same reason.
    """

    name: str
    question: str
    status: Status
    detail: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    example: str | None = None
    known: str | None = None
    seconds: float = 0.0
    same_as: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types; numbers that JSON cannot represent become strings."""
        numbers = {k: v if math.isfinite(v) else str(v) for k, v in self.numbers.items()}
        return vars(self) | {"numbers": numbers, "seconds": round(self.seconds, 4)}

    def __str__(self) -> str:
        mark = self.status.upper() if self.status == "failed" else self.status
        if self.same_as is not None:
            return f"{mark:8} {self.name:24} as {self.same_as}"
        lines = _wrapped(f"{mark:8} {self.name:24} ", self.detail)
        if self.known is not None:
            lines += _wrapped(" " * 9 + "known: ", self.known)
        if self.status == "failed":
            numbers = ", ".join(f"{name} {value:.6g}" for name, value in self.numbers.items())
            lines += _wrapped(" " * 9 + "numbers: ", numbers) if numbers else []
            lines += [" " * 9 + line for line in (self.example or "").splitlines()]
        return "\n".join(lines)


@dataclass(frozen=True)
class ConformanceReport:
    """Result of :func:`sdp_ref.check_rule`; ``print`` shows it as a table.

    `rule` is the name of the rule, with its parameters if it declares them, `seed` that of the cases, and
    `kit` the :data:`VERSION` of the kit.
    """

    rule: str
    checks: tuple[CheckResult, ...]
    seed: int = 0
    kit: int = VERSION

    @property
    def passed(self) -> bool:
        """Whether at least one check ran, and all that ran passed."""
        return self.count("passed") > 0 and not self.count("failed")

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """Checks that failed, including known faults."""
        return tuple(check for check in self.checks if check.status == "failed")

    @property
    def unexpected(self) -> tuple[CheckResult, ...]:
        """Checks that failed and are not declared as known faults."""
        return tuple(check for check in self.failed if check.known is None)

    @property
    def ran(self) -> int:
        """Number of checks that judged at least one case."""
        return len(self.checks) - self.count("skipped")

    def count(self, status: Status) -> int:
        """Number of checks with this status."""
        return sum(check.status == status for check in self.checks)

    def __getitem__(self, name: str) -> CheckResult:
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)

    @property
    def summary(self) -> str:
        """One line: version of the kit, and numbers of checks that ran, passed, failed and did not apply."""
        known = len(self.failed) - len(self.unexpected)
        faults = f" ({known} known)" if known else ""
        return (
            f"kit {self.kit}, {self.ran} of {len(self.checks)} checks ran: {self.count('passed')} passed, "
            f"{self.count('failed')} failed{faults}, {self.count('skipped')} not applicable"
        )

    @property
    def causes(self) -> tuple[str, ...]:
        """One line per cause of failures: names of the checks, and the observation or the declared reason."""
        return tuple(
            f"failed {', '.join([check.name, *self._like(check)])}: {' '.join(check.detail.split())}"
            if check.known is None
            else f"failed {check.name}, as it declares: {' '.join(check.known.split())}"
            for check in self.failed
            if check.same_as is None
        )

    def _like(self, check: CheckResult) -> list[str]:
        return [other.name for other in self.failed if other.same_as == check.name]

    @property
    def verdict(self) -> str:
        """A few words that follow the rule's name: that it passes, or which checks it fails."""
        if not self.ran:
            return "has shown nothing: no check applies to it"
        every = "the one check that applies" if self.ran == 1 else f"the {self.ran} checks that apply"
        names = ", ".join(check.name for check in self.unexpected or self.failed)
        if self.ran > 1 and len(self.unexpected) == self.ran and len(self.causes) == 1:
            return f"fails {every}, all for one reason"
        if self.unexpected:
            return f"fails {'' if self.ran == 1 else f'{len(self.unexpected)} of '}{every} ({names})"
        if self.failed:
            return f"fails only its declared faults ({names}) of {every}"
        return f"passes {every}" if self.ran == 1 else f"passes all {self.ran} checks that apply"

    @property
    def conclusion(self) -> str:
        """Counts, causes and verdict, one per line."""
        return "\n".join([self.summary, *self.causes, f"verdict: {self.rule} {self.verdict}"])

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "rule": self.rule,
            "kit": self.kit,
            "seed": self.seed,
            "passed": self.passed,
            "ran": self.ran,
            "counts": {s: self.count(s) for s in ("passed", "failed", "skipped")},
            "unexpected": [check.name for check in self.unexpected],
            "checks": [check.as_dict() for check in self.checks],
        }

    def _repr_html_(self) -> str:
        """Verdict, and a table of checks with the largest error and its tolerance."""
        head = "".join(
            f"<th>{name}</th>" for name in ("check", "result", "largest error", "tolerance", "detail")
        )
        rows = "".join(
            f"<tr><td>{check.name}</td><td>{check.status}{' (declared)' if check.known else ''}</td>"
            + "".join(
                f"<td>{check.numbers[name]:.3g}</td>" if name in check.numbers else "<td></td>"
                for name in ("error", "tolerance")
            )
            + f"<td>{escape(check.detail)}</td></tr>"
            for check in sorted(self.checks, key=lambda check: check.status != "failed")
        )
        return (
            f"<div><p><strong>{escape(self.rule)} {escape(self.verdict)}</strong></p><p>{self.summary}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
            "<p>An error above its tolerance is a failure; lower is better.</p></div>"
        )

    def __str__(self) -> str:
        return "\n".join([f"rule '{self.rule}'", *map(str, self.checks), self.conclusion])


def _wrapped(start: str, text: str) -> list[str]:
    return textwrap.wrap(
        text or "-", _WIDTH, initial_indent=start, subsequent_indent=" " * 9, break_long_words=False
    )
