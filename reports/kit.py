"""What the conformance kit says of the package's own rules, kept for the pages of the committed results.

``python -m sdp_bench.reports.kit`` asks it of each of these rules, in some minutes, and keeps the answers.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sdp_bench.bench.files import write
from sdp_bench.reports.results import BASELINES, committed_results

KIT = BASELINES / "kit.json"


@functools.cache
def answers() -> Mapping[str, Mapping[str, Any]]:
    """Verdict, version of the kit and seed, by the spec of the rule.

    Returns
    -------
    mapping of str to mapping
        Empty where nobody has asked.
    """
    if not KIT.exists():
        return {}
    return {one["rule"]: one for one in json.loads(KIT.read_text(encoding="utf-8"))}


def ask(rules: Iterable[str], say: Callable[[str], None]) -> str:
    """Ask the kit of some rules.

    Parameters
    ----------
    rules : iterable of str
        Specs.
    say : callable of str
        Where each answer is told.

    Returns
    -------
    str
        Text of the file.
    """
    from sdp_ref.conformance import check_rule

    found = []
    for rule in rules:
        report = check_rule(rule)
        say(f"{rule} {report.verdict}")
        found.append({"rule": rule, "kit": report.kit, "seed": report.seed, "verdict": report.verdict})
    return json.dumps(found, indent=1) + "\n"


def _own() -> list[str]:
    """Rules of the committed results that come with the package, but for those made of the oracle."""
    import sdp_ref

    results = committed_results()
    traits, names = results.traits, set(sdp_ref.rules())
    known = (str(rule) for rule in results.with_oracle["rule"].unique())
    return traits.in_order(
        rule for rule in known if rule.partition(":")[0] in names and not traits.is_reference(rule)
    )


if __name__ == "__main__":
    write(KIT, ask(_own(), print))
