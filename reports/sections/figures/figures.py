"""Figures of metrics over noise, and of accuracy over depth and cost."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import pandas as pd

from sdp_bench.reports.style import labels
from sdp_bench.reports.style.axis import Axis
from sdp_bench.reports.style.chart import Chart, Guide, Series
from sdp_bench.reports.style.colours import CIVIDIS, Colours
from sdp_bench.reports.style.drawing import Style, styles
from sdp_bench.reports.style.figure import Figure, Panel
from sdp_bench.reports.style.heat_map import HeatMap
from sdp_bench.reports.style.nets import NetKind, activation_label
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.over_noise import in_words, over_noise
from sdp_bench.reports.tables.tables import Row, Table, told_apart

_COLOURS = Colours(0, 1, CIVIDIS)
_LONGEST = 18  # letters per line of a net's name next to a heat map
_GREY = "#8a8a8a"
_METRIC = "1 − TV"
_OVERLAP = Axis(_METRIC, 0, 1.02)


def figures(
    tables: Sequence[Table],
    traits: RuleTraits,
    costs: pd.Series | None = None,
    others: Sequence[Table] = (),
) -> list[Figure]:
    """Every figure for which the tables have data.

    `tables` have one metric for which higher is better (the headline 1 - TV), one table for each kind of net.
    `costs` are median seconds per input by (activation, depth, rule). With them accuracy is also drawn
    against cost, which `reports.sections.choice.figure` does better if several rules were measured. `others`
    are tables of other metrics that readers can select in the first figure.
    """
    drawn = [_over_sigma(tables, others, traits)]
    cells = _cells(tables)
    if not cells.empty:
        drawn.append(_depth_against_sigma(cells, traits))
        if costs is not None:
            drawn.append(_accuracy_against_cost(cells, traits, costs))
    return [figure for figure in drawn if figure.panels]


def _cells(tables: Sequence[Table]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "activation": table.activation,
                "depth": table.depth,
                "beside": name.removeprefix(table.kind.label).removeprefix(", "),
                "sigma": row.sigma,
                "rule": cell.rule,
                "value": cell.mean,
            }
            for name, table in zip(told_apart(tables), tables, strict=True)
            for row in table.rows
            for cell in row.cells
            if cell
        ]
    )


def _over_sigma(tables: Sequence[Table], others: Sequence[Table], traits: RuleTraits) -> Figure:
    """Each metric over the noise; the first one is shown until a reader selects another."""
    by_metric: dict[str, list[Table]] = {}
    for table in (*tables, *sorted(others, key=lambda table: table.metric.rank)):
        own = by_metric.setdefault(", ".join(filter(None, (table.metric.title, table.variant))), [])
        if table not in own:
            own.append(table)
    styled = styles((rule for own in by_metric.values() for table in own for rule in table.rules), traits)
    panels = tuple(
        panel
        for metric, own in by_metric.items()
        for net, table in zip(told_apart(own), own, strict=True)
        for panel in _panels(table, {"metric": metric, "net": net}, styled)
    )
    return Figure(
        anchor="figure-sigma",
        title="Over input noise",
        caption="Mean over nets and inputs, by rule; bars reach one standard deviation over these to either "
        "side. In the grey band, or below the dashed line, a rule cannot be told from one with the exact law "
        "at these sample counts (the floor’s 95 % point).",
        panels=panels,
        styles=tuple(styled.values()),
        apart="metric",
    )


def _panels(table: Table, facets: Mapping[str, str], styled: dict[str, Style]) -> Iterator[Panel]:
    """Panels of a table, one for each component."""
    for component in dict.fromkeys(row.component for row in table.rows):
        own = {table.metric.component or "component": component} if component else {}
        title = ", ".join((facets["net"], *(f"{name} {value}" for name, value in own.items())))
        chart = over_noise(table, styled, component)
        if chart.series:
            floor = tuple(_floor([row for row in table.rows if row.component == component], table))
            alt = in_words(chart, table, title)
            yield Panel(title, replace(chart, guides=floor), alt, {**facets, **own})


def _floor(rows: Sequence[Row], table: Table) -> Iterator[Guide]:
    """Guide below which rules are indistinguishable from the exact distribution."""
    known = sorted((row.sigma, row.floor95) for row in rows if math.isfinite(row.floor95))
    sigmas, points = [sigma for sigma, _ in known], [point for _, point in known]
    if known and table.metric.complement:
        edge = [*points, *(1.0 for _ in points)]
        yield Guide([*sigmas, *reversed(sigmas)], edge, colour=_GREY, opacity=0.35, filled=True)
    elif known and table.metric.better == "lower":
        yield Guide(sigmas, points, colour=_GREY, dashes=(4, 3))


def _depth_against_sigma(cells: pd.DataFrame, traits: RuleTraits) -> Figure:
    panels: list[Panel] = []
    several = cells["activation"].nunique() > 1
    along = "net" if several else "depth"
    for rule in traits.in_order(cells["rule"]):
        part = cells[cells["rule"] == rule]
        grid = part.pivot_table(index=["activation", "depth", "beside"], columns="sigma", values="value")
        nets = [
            ", ".join(
                filter(None, (f"{activation_label(name)} {depth:g}" if several else f"{depth:g}", beside))
            )
            for name, depth, beside in grid.index
        ]
        lines = [textwrap.wrap(name, _LONGEST) for name in nets]
        values = grid.to_numpy()
        heat_map = HeatMap(
            values,
            [[f"{value:.2f}" for value in row] for row in values],
            lines,
            [f"{sigma:g}" for sigma in grid.columns],
            across="input noise σ",
            along=along,
            colours=_COLOURS,
            edges=_GREY,
            height=0.24 + 0.13 * len(grid),
            size=10,
        )
        lowest, highest = grid.min().min(), grid.max().max()
        alt = (
            f"Heat map for {traits.label(rule)}: 1 − TV by {along} and σ, from {lowest:.2f} to "
            f"{highest:.2f}; the same numbers are in the tables below."
        )
        label = traits.label(rule)
        panels.append(Panel(label, heat_map, alt, {"metric": _METRIC, "rule": label}))
    return Figure(
        anchor="figure-depth",
        title=f"{'Nets' if several else 'Depth'} against input noise",
        caption="Mean 1 − TV (headline) of each rule, on one colour scale from 0 (dark blue) to 1 (yellow).",
        panels=tuple(panels),
        apart="rule",
    )


def _accuracy_against_cost(cells: pd.DataFrame, traits: RuleTraits, costs: pd.Series) -> Figure:
    styled = styles(cells["rule"], traits)
    panels: list[Panel] = []
    for kind, beside, part in _kinds(cells):
        spans = part.groupby("rule")["value"].agg(["mean", "min", "max"]).reset_index()
        spans["seconds"] = [
            costs.get((kind.activation, kind.depth, rule), math.nan) for rule in spans["rule"]
        ]
        rule_has_cost = ~spans["rule"].map(traits.is_reference)  # references need the oracle itself
        spans = spans[(spans["seconds"] > 0) & rule_has_cost]
        if spans.empty:
            continue
        chart = Chart(
            Axis("time for one input", log=True, write=labels.duration, told=labels.duration),
            _OVERLAP,
            tuple(
                Series(styled[rule], [at], [mean], low=[low], high=[high], lined=False, size=4)
                for rule, mean, low, high, at in spans.itertuples(index=False)
            ),
        )
        rules = traits.in_order(spans["rule"])
        title = ", ".join(filter(None, (kind.label, beside)))
        seconds, means = (spans.set_index("rule")[name].to_dict() for name in ("seconds", "mean"))
        parts = [
            f"{styled[rule].label} {labels.duration(seconds[rule])}, {means[rule]:.2f}" for rule in rules
        ]
        alt = f"Scatter chart for {title}: cost and mean 1 − TV. {'; '.join(parts)}."
        panels.append(Panel(title, chart, alt, {"metric": _METRIC, "net": title}))
    return Figure(
        anchor="figure-cost",
        title="Accuracy against cost",
        caption="Mean 1 − TV (headline) over all σ against the rule’s own time for one input (median; "
        "logarithmic). The bar reaches from the worst σ to the best. Up and to the left is better.",
        panels=tuple(panels),
        styles=tuple(styled.values()),
    )


def _kinds(cells: pd.DataFrame) -> Iterator[tuple[NetKind, str, pd.DataFrame]]:
    for key, part in cells.groupby(["activation", "depth", "beside"], sort=True):
        activation, depth, beside = cast("tuple[str, int, str]", key)
        yield NetKind(activation, int(depth)), beside, part
