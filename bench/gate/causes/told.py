"""Report on a rule that does not pass: the reason, and the command that accepts it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdp_bench.bench.gate.verdict import Cause, What


@dataclass(frozen=True)
class Told:
    """Everything that keeps one rule from passing."""

    causes: tuple[Cause, ...]
    accept: str  # command that accepts the rule into the baseline
    alone: bool = False  # whether all other comparisons of the rule are unchanged

    def __str__(self) -> str:
        return f"{self.causes[0].subject}: {self.text}; accept with: {self.accept}"

    @property
    def text(self) -> str:
        only = f"{What.SPEED} only: " if self.alone and self.causes[0].what is What.SPEED else ""
        return only + "; ".join(cause.text for cause in self.causes)

    def as_dict(self) -> dict[str, Any]:
        return {
            "subject": self.causes[0].subject,
            "what": [cause.what for cause in self.causes],
            "text": self.text,
            "numbers": {name: x for cause in self.causes for name, x in cause.numbers.items()},
            "accept": self.accept,
        }


def accepting(baseline: Path, rules: Iterable[str] = (), options: Sequence[str] = ()) -> str:
    """Return the command that accepts rules, by default all; `options` exclude a part of the baseline."""
    named = ["--rules", ",".join(rules)] if rules else []
    return shlex.join(["sdp-bench", "check", "--baseline", str(baseline), *named, "--update", *options])
