"""Costs of rules by kind of net."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

import sdp_ref
from sdp_bench.reports.statistics.costs import ARCHITECTURE, Costs
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.nets import NetKind
from sdp_bench.reports.style.rules import RuleTraits


@dataclass(frozen=True)
class CostRow:
    """One rule's time for one input on one kind of net, as a multiple of SDP's, and as samples."""

    rule: str
    seconds: float
    times_sdp: float
    samples: float


@dataclass(frozen=True)
class CostTable:
    title: str
    rows: tuple[CostRow, ...]

    def of(self, rule: str) -> CostRow | None:
        return next((row for row in self.rows if row.rule == rule), None)

    @property
    def cheapest(self) -> CostRow | None:
        rows = [row for row in self.rows if is_built_in(row.rule)]
        return min(rows, key=lambda row: row.seconds, default=None)


def is_built_in(rule: str) -> bool:
    return rule.partition(":")[0] in sdp_ref.rules()


def cost_tables(frame: pd.DataFrame, traits: RuleTraits) -> list[CostTable]:
    """Times of all rules on each kind of net, relative to SDP and to plain sampling."""
    by_kind = []
    for _, kind in frame.groupby(ARCHITECTURE, sort=True):
        costs = Costs.measured(kind, traits)
        sdp = costs.by_rule.get("sdp")
        rows = tuple(
            CostRow(rule, cost.seconds, cost.seconds / sdp.seconds if sdp else math.nan, cost.samples)
            for rule, cost in costs.by_rule.items()
        )
        first = kind.iloc[0]
        if rows:
            by_kind.append(CostTable(NetKind(str(first["activation"]), int(first["depth"])).label, rows))
    return by_kind


def on_cost(rule: str, timed: Sequence[CostTable], traits: RuleTraits) -> str:
    rows = [(table, row) for table in timed if (row := table.of(rule))]
    if not rows:
        return ""
    table, last = rows[-1]
    text = f"{labels.duration(last.seconds)} for one input on {table.title}"
    if times := times_sdp(rule, timed):
        text += f"; {times} times what SDP takes"
    cheapest = [(other, row.seconds / other.seconds) for table, row in rows if (other := table.cheapest)]
    if cheapest and any(other.rule != rule for other, _ in cheapest):
        names = ", ".join(dict.fromkeys(traits.label(other.rule) for other, _ in cheapest))
        text += f"; {labels.span(ratio for _, ratio in cheapest)} times the cheapest built-in rule ({names})"
    elif cheapest:
        text += "; the cheapest built-in rule"
    if math.isfinite(last.samples):
        text += f"; as long as {_samples(last.samples)} Monte Carlo samples"
    return text


def times_sdp(rule: str, timed: Sequence[CostTable]) -> str:
    """Range over kinds of nets of a rule's time as a multiple of SDP's; empty for SDP or without it."""
    found = [row.times_sdp for table in timed if (row := table.of(rule)) and math.isfinite(row.times_sdp)]
    return labels.span(found) if found and rule != "sdp" else ""


def _samples(samples: float) -> str:
    return f"about {float(f'{samples:.2g}'):,.0f}" if samples >= 1 else "fewer than one"
