"""What is known of the package's own rules without running them: their docstrings, and the kit's verdicts.

A report reads them from a file, since to import a rule takes seconds and a fifth of a gigabyte.
``python -m sdp_bench.reports.rule_facts`` writes it, and asks the conformance kit of each rule of the
committed results, in some ten minutes.
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
    """What a rule's docstring says.

    Attributes
    ----------
    summary : str
        Its first sentence.
    about : list of str
        Paragraphs; names stand between backquotes.
    sources : list of str
        References.
    """

    summary: str = ""
    about: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Kit:
    """What the conformance kit said of a rule.

    Attributes
    ----------
    verdict : str
        In words that follow its name.
    version, seed : int
        Of the kit, and of its cases.
    faults : dict of str to str
        Checks that the rule as published fails, as it declares itself, and why.
    """

    verdict: str
    version: int
    seed: int
    faults: dict[str, str]


@dataclass(frozen=True)
class Facts:
    """What is known, of rules by name, and of rules with their options by spec."""

    described: Mapping[str, Described]
    kit: Mapping[str, Kit]

    def of(self, rule: str) -> tuple[Described, Kit | None]:
        """What is known of one rule, by spec; nothing of one that is not the package's own."""
        return self.described.get(rule.partition(":")[0], Described()), self.kit.get(rule)


@functools.cache
def facts() -> Facts:
    """What is known of the package's own rules, as it is kept."""
    kept = json.loads(FACTS.read_text(encoding="utf-8"))
    return Facts(
        {name: Described(**one) for name, one in kept["described"].items()},
        {rule: Kit(**one) for rule, one in kept["kit"].items()},
    )


def descriptions() -> dict[str, Described]:
    """What the docstrings of the package's own rules say, by name."""
    own = members("sdp_ref.rules", "sdp_ref.rules.base.Rule")
    return {name: _described(kind) for name, kind in own.items()}


def ask(rules: Iterable[str], say: Callable[[str], None]) -> dict[str, Kit]:
    """Ask the conformance kit of some rules.

    Parameters
    ----------
    rules : iterable of str
        Specs.
    say : callable of str
        Where each answer is told.

    Returns
    -------
    dict of str to Kit
    """
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
    """Text on one line, its names between backquotes."""
    return _ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`")


def _own() -> list[str]:
    """Rules of the committed results that come with the package, but for those made of the oracle."""
    import sdp_ref

    results = committed_results()
    traits, names = results.traits, set(sdp_ref.rules())
    known = (str(rule) for rule in results.with_oracle["rule"].unique())
    return traits.in_order(
        rule for rule in known if rule.partition(":")[0] in names and not traits.is_reference(rule)
    )


def main() -> None:
    """Write the file anew."""
    kept = {
        "described": {name: asdict(one) for name, one in descriptions().items()},
        "kit": {rule: asdict(one) for rule, one in ask(_own(), print).items()},
    }
    write(FACTS, json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
