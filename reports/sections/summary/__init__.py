"""The section with a summary: what was measured, findings, and the best rule at each noise level."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import pandas as pd

from sdp_bench.bench.metrics.distances import StandardDeviationRatio, Wasserstein
from sdp_bench.bench.metrics.total_variation import AxisTotalVariation, CentralTotalVariation
from sdp_bench.bench.noise import CAUCHY
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.site import CHOICE
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.names import RuleTraits, activation_label, activation_rank
from sdp_bench.reports.tables.tables import Table, differences, first_variants, headline, orders, told_apart

_NAMED = 4  # rules


def what_ran(frame: pd.DataFrame, results: Results) -> Iterator[str]:
    """Sentences on the size of the results, and on the machine; `frame` has an oracle."""
    meta, traits = results.meta, results.traits
    nets = frame.drop_duplicates("net")
    kinds = nets.drop_duplicates(["activation", "depth", "network"])
    pairs = frame.drop_duplicates(["net", "input"])
    rules = [rule for rule in frame["rule"].unique() if not traits.is_reference(rule)]
    what = (
        f"{labels.plural(len(rules), 'rule')} on {labels.plural(len(nets), 'trained net')} "
        f"of {labels.plural(len(kinds), 'kind')}, {labels.plural(len(pairs), 'pair')} of net and input, "
        f"{labels.plural(len(frame), 'measurement')}"
    )
    if "run" in frame and "run" in meta and (earlier := int((frame["run"] != meta["run"]).sum())):
        what += f", {earlier:,} of them by earlier runs"
    # Committed results are of several runs, each with its own preset.
    preset = "" if results.published else meta.get("preset")
    yield f"{f'Preset {preset}: ' if preset else ''}{what}."
    if len(pairs) == len(kinds):
        yield "Each number is of a single net and input, so no spread is known."
    environment = meta.get("environment", {})
    where = [
        str(environment[key]) for key in ("cpu", "gpu") if environment.get(key) not in (None, "", "none")
    ]
    if where:
        took = f"Took {labels.duration(float(meta['seconds']))}" if meta.get("seconds") else "Run"
        cores = f", {labels.plural(environment['cores'], 'core')}" if environment.get("cores") else ""
        yield f"{took} on {' and '.join(where)}{cores}."


def missing(results: Results) -> Iterator[str]:
    """Sentences on failures and on skipped rules and experiments."""
    if len(results.failed):
        yield f"{labels.plural(len(results.failed), 'failure')}, listed below."
    skipped: dict[str, list[str]] = {}  # rules with their nets, and experiments
    for one in sorted(results.meta.get("left_out") or (), key=lambda one: activation_rank(one.where)):
        if one.rule is None:
            skipped[one.where] = []
        else:
            skipped.setdefault(results.traits.label(one.rule), []).append(activation_label(one.where))
    if skipped:
        names = (name + (" on " + ", ".join(nets) if nets else "") for name, nets in skipped.items())
        yield f"Skipped (no formula, or too slow): {'; '.join(names)}."


def sentences(tables: Sequence[Table], traits: RuleTraits) -> list[str]:
    """Findings computed from all tables; empty if no table ranks rules."""
    return [
        *_most_accurate(headline(tables), traits),
        *_with_heavy_tails(tables, traits),
        *_against_paper(tables, traits),
    ]


def _most_accurate(tables: Sequence[Table], traits: RuleTraits) -> Iterator[str]:
    leaders = [(row, row.leader) for table in tables for row in table.rows if row.leader]
    if not leaders:
        return
    counts = Counter(leader.rule for _, leader in leaders)
    parts = [f"{traits.label(rule)} in {count}" for rule, count in counts.most_common(_NAMED)]
    if len(counts) > _NAMED:
        parts.append(f"others in {sum(counts.values()) - sum(n for _, n in counts.most_common(_NAMED))}")
    best = f"{traits.label(next(iter(counts)))} in all of them" if len(counts) == 1 else labels.listed(parts)
    tied = sum(sum(cell.leads for cell in row.cells if cell) > 1 for row, _ in leaders)
    yield (
        f"In {labels.plural(len(leaders), 'setting')} (kind of net and noise level), the most accurate "
        f"deterministic rule by {tables[0].metric.title} is {best}"
        + (f"; in {tied} settings another rule is tied with it." if tied else ".")
    )
    gaps = [row.floor - leader.mean for row, leader in leaders if math.isfinite(row.floor)]
    if gaps:
        exact = sum(leader.indistinguishable == leader.count for _, leader in leaders)
        yield (
            "This rule is indistinguishable from the exact distribution in "
            f"{labels.plural(exact, 'setting')}; its 1 − TV is at most {max(gaps):.3f} below that of the "
            "exact distribution."
        )
    beaten = Counter(
        row.winner.rule for row, leader in leaders if row.winner and row.winner.sampling and not leader.best
    )
    if beaten:
        names = labels.listed([f"{traits.label(rule)} in {count}" for rule, count in beaten.most_common()])
        yield f"Sampling is more accurate in {labels.plural(beaten.total(), 'setting')} ({names})."


def _with_heavy_tails(tables: Sequence[Table], traits: RuleTraits) -> Iterator[str]:
    own = CentralTotalVariation.name, CAUCHY.family
    chosen = [table for table in first_variants(tables) if (table.metric.name, table.noise) == own]
    leaders = [(row, row.leader) for table in chosen for row in table.rows if row.leader]
    if not leaders:
        return
    rules = {leader.rule for _, leader in leaders}
    who = traits.label(rules.pop()) if len(rules) == 1 else "the best rule"
    parts = []
    for scale in sorted({row.sigma for row, _ in leaders}):
        means = [leader.mean for row, leader in leaders if row.sigma == scale]
        parts.append(f"{sum(means) / len(means):.3f} at {chosen[0].scale}\u00a0=\u00a0{scale:g}")
    exact = [row.floor for row, _ in leaders if math.isfinite(row.floor)]
    exact_law = f"; the exact distribution has {sum(exact) / len(exact):.3f}" if exact else ""
    yield (
        f"Under Cauchy noise, which the paper did not measure, {who} has {labels.listed(parts)} "
        f"({chosen[0].metric.title}, mean over {labels.plural(len(chosen), 'depth')}{exact_law})."
    )


def _against_paper(tables: Sequence[Table], traits: RuleTraits) -> Iterator[str]:
    for name, title in (
        (AxisTotalVariation.name, "values of 1 − TV in paper-like bins"),
        (Wasserstein.name, "values of W1"),
        (StandardDeviationRatio.name, "ratios of standard deviations"),
    ):
        chosen = [table for table in first_variants(tables) if table.metric.name == name]
        both = [one for one in differences(chosen) if not math.isnan(one.spread)]
        if not both:
            continue
        apart = [one for one in both if one.differs]
        agree = len(both) - len(apart)
        text = f"Of {len(both)} {title}, {agree} agree with the paper within the spread over nets and inputs"
        ranked = orders(chosen)
        if turned := [order for order in ranked if not order.agrees]:
            text += f"; another of its rules is best in {len(turned)} of {len(ranked)} settings"
        if apart:
            worst = max(apart, key=lambda one: abs(one.gap) / one.spread if one.spread else math.inf)
            text += (
                f". The largest difference in units of the spread: {traits.label(worst.cell.rule)}, "
                f"{worst.where}, {labels.number(worst.cell.mean, worst.table.metric.decimals)} instead of "
                f"{worst.printed.value}"
            )
        yield f"{text}."


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
        return {
            "ran": [*what_ran(frame, results), *missing(results)],
            "sentences": sentences(results.tables, results.traits),
            "winners": list(zip(told_apart(winners), winners, strict=True)),
            "sigmas": sorted({row.sigma for table in winners for row in table.rows}),
            "styles": results.styles,
        }
