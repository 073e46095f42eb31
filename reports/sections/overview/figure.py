"""Figure of accuracy against cost over all settings, one panel per family of nets."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sdp_bench.bench.metrics import recorded_metric
from sdp_bench.bench.metrics.total_variation import HeadlineTotalVariation
from sdp_bench.reports.sections.choice.choice import Band, Condition, Standing, front
from sdp_bench.reports.sections.choice.figure import PLAIN, description, draw
from sdp_bench.reports.sections.overview.uses import WHOLE, Row, Verdict
from sdp_bench.reports.style.figure import Figure, label_points, look, panels
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.style.theme import styles

_CAPTION = (
    "Mean 1 − TV of the whole law over all settings, with 95 % intervals, against the rule’s own time for "
    "one input. Up and to the left is better. Ringed: shown to be on the front; hollow: shown to be off it."
)


@look()
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
    bands = [_band(verdict, traits) for _, verdict in known]
    unnamed: list[str] = []
    parts = list(zip([name for name, _ in known], bands, strict=True))
    drawing, every = panels(
        [name for name, _ in parts], [PLAIN], columns=1, width=3.0, height=2.1, left=0.42, above=0.44
    )
    words = []
    for axes, (name, band) in zip(every, parts, strict=True):
        (condition,) = band.conditions
        unnamed += label_points(axes, draw(axes, band, condition, styled))
        words.append(description(name, band, condition))
    rest = f" Without a name for lack of room: {', '.join(dict.fromkeys(unnamed))}." if unnamed else ""
    return Figure("figure-overview", "Accuracy against cost", _CAPTION + rest, " ".join(words), drawing)


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
