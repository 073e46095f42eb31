"""The statements of ``statements.toml``, with the rules that decide on them."""

from __future__ import annotations

import functools
import tomllib
from importlib.resources import files

from sdp_bench.reports.replication import (
    claims,
    cost,
    estimates,
    exact,
    images,
    intervals,
    introduction,
    moons,
    robust,
    selection,
    simulation,
)
from sdp_bench.reports.replication.statement import Rule, Statement, Topic

RULES: dict[str, Rule] = {
    **exact.RULES,
    **claims.RULES,
    **simulation.RULES,
    **cost.RULES,
    **estimates.RULES,
    **images.RULES,
    **intervals.RULES,
    **selection.RULES,
    **robust.RULES,
    **introduction.RULES,
    **moons.RULES,
}
"""Rules by the keys of their statements."""


@functools.cache
def topics() -> tuple[Topic, ...]:
    text = files("sdp_bench.reports.replication").joinpath("statements.toml").read_text(encoding="utf-8")
    known = {
        claim.key: {"quote": claim.quote, "reading": claim.reading, "dvia": claim.about_dvia}
        for claim in claims.CLAIMS
    }
    read = []
    for key, topic in tomllib.loads(text).items():
        statements = []
        for name, entry in topic["statements"].items():
            entry = known.get(name, {}) | entry
            first, last = entry.pop("lines")
            statements.append(Statement(name, (first, last), rule=RULES.get(name), **entry))
        read.append(Topic(key, topic["title"], tuple(statements)))
    return tuple(read)
