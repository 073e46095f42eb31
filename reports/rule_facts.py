"""Facts about the package's own rules: their docstrings, and the verdicts of the conformance kit.

A report reads them from a file, since importing the rules takes seconds and 200 MB. ``python -m
sdp_bench.reports.rule_facts`` writes the file and runs the conformance kit on each rule of the committed
results, which takes about ten minutes.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sdp_bench.bench.files import write
from sdp_bench.reports.results import BASELINES, committed_results
from sdp_ref.registry import members

FACTS = BASELINES / "rule_facts.json"

_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")
_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)


@dataclass(frozen=True)
class Described:
    """Docstring of a rule: its first sentence, paragraphs (with names in backquotes), and references."""

    summary: str = ""
    about: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Kit:
    """Verdict of the conformance kit on a rule, in words that follow the rule's name.

    `version` is that of the kit and `seed` that of its cases. `faults` are the checks that the published rule
    fails and declares, with reasons.
    """

    verdict: str
    version: int
    seed: int
    faults: dict[str, str]


@dataclass(frozen=True)
class Facts:
    """Docstrings by name of the rule, and verdicts by spec."""

    described: Mapping[str, Described]
    kit: Mapping[str, Kit]

    def of(self, rule: str) -> tuple[Described, Kit | None]:
        """Facts about one rule, by spec; empty for rules from outside the package."""
        return self.described.get(rule.partition(":")[0], Described()), self.kit.get(rule)


@functools.cache
def facts() -> Facts:
    kept = json.loads(FACTS.read_text(encoding="utf-8"))
    return Facts(
        {name: Described(**one) for name, one in kept["described"].items()},
        {rule: Kit(**one) for rule, one in kept["kit"].items()},
    )


def descriptions() -> dict[str, Described]:
    own = members("sdp_ref.rules", "sdp_ref.rules.base.Rule")
    return {name: _described(kind) for name, kind in own.items()}


def ask(rules: Iterable[str], say: Callable[[str], None]) -> dict[str, Kit]:
    """Run the conformance kit on rules, given by spec, and pass each verdict to `say`."""
    import sdp_ref
    from sdp_ref.conformance import check_rule

    found = {}
    for rule in rules:
        report = check_rule(rule)
        say(f"{rule} {report.verdict}")
        faults = {check: _plain(why) for check, why in sdp_ref.rule(rule).known_faults.items()}
        found[rule] = Kit(report.verdict, report.kit, report.seed, faults)
    return found


def _described(kind: type[Any]) -> Described:
    parts = _HEADING.split(inspect.getdoc(kind) or "")
    summary, *about = _paragraphs(parts[0])
    headed = dict(zip(parts[1::2], parts[2::2], strict=True))
    return Described(summary, about, _paragraphs(headed.get("References", "")))


def _paragraphs(text: str) -> list[str]:
    return [_plain(part) for part in text.strip().split("\n\n") if part]


def _plain(text: str) -> str:
    """Text on one line, with names in backquotes."""
    return _ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`")


def _own() -> list[str]:
    """Rules of the committed results that come with the package, except those derived from the oracle."""
    import sdp_ref

    results = committed_results()
    traits, names = results.traits, set(sdp_ref.rules())
    known = (str(rule) for rule in results.with_oracle["rule"].unique())
    return traits.in_order(
        rule for rule in known if rule.partition(":")[0] in names and not traits.is_reference(rule)
    )


def main() -> None:
    kept = {
        "described": {name: asdict(one) for name, one in descriptions().items()},
        "kit": {rule: asdict(one) for rule, one in ask(_own(), print).items()},
    }
    write(FACTS, json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
