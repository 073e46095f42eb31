"""The section with a summary: what was run, findings, and the best rule at each noise level."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from sdp_bench.bench.metrics.distances import StandardDeviationRatio, Wasserstein
from sdp_bench.bench.metrics.total_variation import AxisTotalVariation, CentralTotalVariation
from sdp_bench.bench.noise import CAUCHY
from sdp_bench.bench.results.record import LeftOut
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.site import CHOICE
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.names import RuleTraits, activation_label, activation_rank
from sdp_bench.reports.tables.tables import (
    Row,
    Table,
    differences,
    first_variants,
    headline,
    orders,
    told_apart,
)


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


_COLUMNS = ("network", "activation", "depth", "net", "input", "rule", "seconds", "run")


class Summary(Section):
    """Introduction to the choice between rules."""

    name = "summary"
    title = "Summary"
    page = CHOICE
    order = 10

    def build(self, results: Results) -> Context | None:
        frame = results.columns_with_oracle(_COLUMNS)
        if frame.empty:
            return None
        winners = headline(results.tables)
        costs = frame.groupby(["activation", "depth", "rule"])["seconds"].median()
        return {
            "ran": what_ran(frame, results.meta, results.failed, results.traits),
            "sentences": sentences(results.tables, costs, results.traits),
            "winners": list(zip(told_apart(winners), winners, strict=True)),
            "sigmas": sorted({row.sigma for table in winners for row in table.rows}),
            "styles": results.styles,
        }
