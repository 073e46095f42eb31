"""Sentences on what was run, where and for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from sdp_bench.bench.results.record import LeftOut
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.nets import activation_label, activation_rank
from sdp_bench.reports.style.rules import RuleTraits


def what_ran(
    frame: pd.DataFrame, meta: Mapping[str, Any], failures: Sequence[object], traits: RuleTraits
) -> list[str]:
    """Sentences on what was run against an oracle, where, for how long, and what is missing."""
    said = [*_measured(frame, meta, traits), *_machine(frame, meta)]
    if len(failures):
        said.append(f"{labels.plural(len(failures), 'failure')}, listed below.")
    if meta.get("left_out"):
        said.append(
            f"Left out, having no formula there or being slow: {_left_out(meta['left_out'], traits)}."
        )
    return said


def _measured(frame: pd.DataFrame, meta: Mapping[str, Any], traits: RuleTraits) -> list[str]:
    if frame.empty:
        return []
    nets = frame.drop_duplicates("net")
    kinds = nets.drop_duplicates(["activation", "depth", "network"])
    pairs = frame.drop_duplicates(["net", "input"])
    rules = [rule for rule in frame["rule"].unique() if not traits.is_reference(rule)]
    what = (
        f"{labels.plural(len(rules), 'rule')} on {labels.plural(len(nets), 'trained net')} "
        f"of {labels.plural(len(kinds), 'kind')}, {labels.plural(len(pairs), 'pair')} of net and input, "
        f"{labels.plural(len(frame), 'measurement')}"
    )
    if "run" in frame and "run" in meta and (kept := int((frame["run"] != meta["run"]).sum())):
        what += f", {kept:,} of them made by other runs"
    preset = meta.get("preset")
    said = [f"{f'Preset {preset}: ' if preset else ''}{what}."]
    if len(pairs) == len(kinds):
        said.append("Each number is of a single net and input, so no spread is known.")
    return said


def _machine(frame: pd.DataFrame, meta: Mapping[str, Any]) -> list[str]:
    environment = meta.get("environment", {})
    where = [
        str(environment[key]) for key in ("cpu", "gpu") if environment.get(key) not in (None, "", "none")
    ]
    if frame.empty or not where:
        return []
    took = f"Took {labels.duration(float(meta['seconds']))}" if meta.get("seconds") else "Run"
    cores = f", {labels.plural(environment['cores'], 'core')}" if environment.get("cores") else ""
    return [f"{took} on {' and '.join(where)}{cores}."]


def _left_out(left_out: Sequence[LeftOut], traits: RuleTraits) -> str:
    """Skipped rules with the nets concerned, and skipped experiments."""
    where: dict[str, list[str]] = {}
    for each in sorted(left_out, key=lambda each: activation_rank(each.where)):
        if each.rule is None:
            where[each.where] = []
        else:
            where.setdefault(traits.label(each.rule), []).append(activation_label(each.where))
    return "; ".join(name + (" on " + ", ".join(nets) if nets else "") for name, nets in where.items())
