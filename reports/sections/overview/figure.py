"""Figure of accuracy against cost over all settings, one panel per family of nets."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sdp_bench.bench.metrics import recorded_metric
from sdp_bench.bench.metrics.total_variation import HeadlineTotalVariation
from sdp_bench.reports.sections.choice.choice import Band, Condition, Standing, front
from sdp_bench.reports.sections.choice.figure import chart, description
from sdp_bench.reports.sections.overview.uses import WHOLE, Row, Verdict
from sdp_bench.reports.style.drawing import styles
from sdp_bench.reports.style.figure import Figure, Panel
from sdp_bench.reports.style.rules import RuleTraits

_CAPTION = (
    "Mean 1 − TV of the whole law over all places, with 95 % intervals, against the rule’s own time for one "
    "input. Up and to the left is better. Ringed: shown to be on the front; hollow: shown to be off it. "
    "Dotted: plain Monte Carlo, with its number of samples."
)


def figure(families: Sequence[str], rows: Sequence[Row], traits: RuleTraits) -> Figure | None:
    """Figure of the table's row on the whole distribution; None without verdicts or times.

    `families` are the names of the columns.
    """
    verdicts = next((row.verdicts for row in rows if row.use is WHOLE), ())
    known = [
        (name, verdict)
        for name, verdict in zip(families, verdicts, strict=False)
        if verdict and any(rule in verdict.costs.by_rule for rule in verdict.overall.rules)
    ]
    if not known:
        return None
    styled = styles((rule for _, verdict in known for rule in verdict.overall.rules), traits)
    panels = []
    for name, verdict in known:
        band = _band(verdict, traits)
        (condition,) = band.conditions
        panels.append(Panel(name, chart(band, condition, styled), description(name, band, condition)))
    legend = tuple(style for rule, style in styled.items() if not traits.is_sampling(rule))
    return Figure("figure-overview", "Accuracy against cost", _CAPTION, tuple(panels), legend)


def _band(verdict: Verdict, traits: RuleTraits) -> Band:
    """All settings as one, for the chart of a single condition."""
    overall, costs = verdict.overall, verdict.costs
    standings = tuple(
        Standing(rule, 1 - overall.mean(rule), overall.half_width(rule), None, *front(rule, overall, costs))
        for rule in overall.rules
    )
    condition = Condition(math.nan, standings, (), math.nan, "", fixed=False)
    metric = recorded_metric(HeadlineTotalVariation.name)
    return Band("", (0,), "", metric, "", (condition,), costs, traits)
