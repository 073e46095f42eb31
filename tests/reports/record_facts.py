"""Write the facts that a report reads from a file (:func:`sdp_bench.reports.results.facts`).

``make rule-facts`` runs the conformance kit on each rule of the committed results, which takes ten minutes.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import sdp_ref
from sdp_bench.bench.files import write
from sdp_bench.oracles.exact.theorem import check_theorem
from sdp_bench.reports.replication.computed import estimate_errors
from sdp_bench.reports.results import FACTS, committed_results
from sdp_ref.conformance import check_rule
from sdp_ref.registry import members

_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")
_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)


def descriptions() -> dict[str, dict[str, Any]]:
    own = members("sdp_ref.rules", "sdp_ref.rules.base.Rule")
    return {name: _described(kind) for name, kind in own.items()}


def ask(rules: Iterable[str], say: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Run the conformance kit on rules, given by spec, and pass each verdict to `say`."""
    found = {}
    for rule in rules:
        report = check_rule(rule)
        say(f"{rule} {report.verdict}")
        faults = {check: _plain(why) for check, why in sdp_ref.rule(rule).known_faults.items()}
        found[rule] = {
            "verdict": report.verdict,
            "version": report.kit,
            "seed": report.seed,
            "faults": faults,
        }
    return found


def _described(kind: type[Any]) -> dict[str, Any]:
    parts = _HEADING.split(inspect.getdoc(kind) or "")
    summary, *about = _paragraphs(parts[0])
    headed = dict(zip(parts[1::2], parts[2::2], strict=True))
    sources = _paragraphs(headed.get("References", ""))
    return {"summary": summary, "about": about, "sources": sources}


def _paragraphs(text: str) -> list[str]:
    return [_plain(part) for part in text.strip().split("\n\n") if part]


def _plain(text: str) -> str:
    """Text on one line, with names in backquotes."""
    return _ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`")


def _own() -> list[str]:
    """Rules of the committed results that come with the package, except those derived from the oracle."""
    results = committed_results()
    traits, names = results.traits, set(sdp_ref.rules())
    known = (str(rule) for rule in results.columns_with_oracle(["rule"])["rule"].unique())
    return traits.in_order(
        rule for rule in known if rule.partition(":")[0] in names and not traits.is_reference(rule)
    )


def main() -> None:
    kept = {
        "described": descriptions(),
        "kit": ask(_own(), print),
        "theorem": [dataclasses.asdict(check) for check in check_theorem()],
        "estimate_errors": estimate_errors(),
    }
    write(FACTS, json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
