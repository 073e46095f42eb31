"""Findings in words: the best rules, and differences from the paper."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from sdp_bench.bench.metrics.distances import StandardDeviationRatio, Wasserstein
from sdp_bench.bench.metrics.total_variation import AxisTotalVariation, CentralTotalVariation
from sdp_bench.bench.noise import CAUCHY
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.published import differences, orders
from sdp_bench.reports.tables.tables import Row, Table, first_variants, headline


def sentences(tables: Sequence[Table], costs: pd.Series, traits: RuleTraits) -> list[str]:
    """Few opening sentences of the page, computed from all of its tables; empty if no table ranks rules.

    `costs` are median seconds per input by (activation, depth, rule).
    """
    said = []
    chosen = headline(tables)
    rows = [row for table in chosen for row in table.rows if row.leader]
    if rows:
        said += _who_wins(chosen[0], rows, traits)
        said += _what_it_costs(chosen, costs, traits)
    said += _with_heavy_tails(tables, traits)
    said += _against_paper(tables, traits)
    return said


def _who_wins(table: Table, rows: list[Row], traits: RuleTraits) -> list[str]:
    counts = Counter(row.leader.rule for row in rows if row.leader)
    parts = [f"{traits.label(rule)} in {count}" for rule, count in counts.most_common()]
    best = traits.label(next(iter(counts))) + " in all of them" if len(counts) == 1 else _listed(parts)
    level = sum(sum(cell.leads for cell in row.cells if cell) > 1 for row in rows)
    said = [
        f"By {table.metric.title}, at {labels.plural(len(rows), 'place')} (each kind of net at each σ), the "
        f"best of the rules that do not sample is {best}"
        + (f"; at {level} of them another is level with it." if level else ".")
    ]
    gaps = [row.floor - row.leader.mean for row in rows if row.leader and math.isfinite(row.floor)]
    if gaps:
        exact = sum(row.leader.indistinguishable == row.leader.count for row in rows if row.leader)
        said.append(
            f"At these sample counts that rule cannot be told from one with the exact law at {exact} of the "
            f"{len(rows)}; at worst it falls {max(gaps):.3f} short of what the exact law shows."
        )
    beaten = [
        row for row in rows if row.winner and row.winner.sampling and row.leader and not row.leader.best
    ]
    if beaten:
        names = Counter(traits.label(row.winner.rule) for row in beaten if row.winner)
        said.append(
            f"At {len(beaten)} of the {len(rows)} sampling does better still "
            f"({_listed([f'{name} in {count}' for name, count in names.most_common()])})."
        )
    return said


def _what_it_costs(tables: Sequence[Table], costs: pd.Series, traits: RuleTraits) -> list[str]:
    deepest = max(tables, key=lambda table: table.depth)
    taken = [(rule, costs.get((deepest.activation, deepest.depth, rule), math.nan)) for rule in deepest.rules]
    parts = [
        f"{traits.label(rule)} {labels.duration(cost)}"
        for rule, cost in taken
        if cost > 0 and not traits.is_reference(rule)
    ]
    return [f"One input at {deepest.kind.label} takes (median): {', '.join(parts)}."] if parts else []


def _with_heavy_tails(tables: Sequence[Table], traits: RuleTraits) -> list[str]:
    own = CentralTotalVariation.name, CAUCHY.family
    chosen = [table for table in first_variants(tables) if (table.metric.name, table.noise) == own]
    rows = [row for table in chosen for row in table.rows if row.leader]
    if not rows:
        return []
    leaders = {row.leader.rule for row in rows if row.leader}
    who = traits.label(leaders.pop()) if len(leaders) == 1 else "the best rule"
    parts = []
    for scale in sorted({row.sigma for row in rows}):
        shown = [row.leader.mean for row in rows if row.leader and row.sigma == scale]
        parts.append(f"{sum(shown) / len(shown):.3f} at {chosen[0].scale}\u00a0=\u00a0{scale:g}")
    exact = [row.floor for row in rows if math.isfinite(row.floor)]
    exact_law = f"; the exact law would show {sum(exact) / len(exact):.3f}" if exact else ""
    return [
        f"With Cauchy noise, which the paper never measured, {who} shares {_listed(parts)} of the mass with "
        f"the truth ({chosen[0].metric.title}, mean over {labels.plural(len(chosen), 'depth')}{exact_law})."
    ]


def _against_paper(tables: Sequence[Table], traits: RuleTraits) -> list[str]:
    said = []
    for name, title in (
        (AxisTotalVariation.name, "1 − TV in paper-like bins"),
        (Wasserstein.name, "W1"),
        (StandardDeviationRatio.name, "ratio of standard deviations"),
    ):
        chosen = [table for table in first_variants(tables) if table.metric.name == name]
        both = [each for each in differences(chosen) if not math.isnan(each.spread)]
        if not both:
            continue
        apart = [each for each in both if each.differs]
        agree = f"{len(both) - len(apart)} of {len(both)} values"
        text = f"Beside the paper, by {title}: {agree} agree within the spread over nets and inputs"
        ranked = orders(chosen)
        turned = [order for order in ranked if not order.agrees]
        if turned:
            text += f", and another of its rules is best at {len(turned)} of {len(ranked)} places"
        if apart:
            worst = max(apart, key=lambda each: abs(each.gap) / each.spread if each.spread else math.inf)
            decimals = worst.table.metric.decimals
            text += (
                f"; furthest off, in units of that spread, is {traits.label(worst.cell.rule)} "
                f"at {worst.where} ({labels.number(worst.cell.mean, decimals)} here, "
                f"{worst.printed.value} there)"
            )
        said.append(text + ".")
    return said


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else list(parts))
