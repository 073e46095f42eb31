"""The figures of accuracy over noise, depth and cost."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
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
from sdp_bench.reports.tables.tables import Table

_COLOURS = Colours(0, 1, CIVIDIS)
_LONGEST = 18  # letters of a line of a net's name beside a heat map
_GREY = "#8a8a8a"
_METRIC = "1 − TV"
_OVERLAP = Axis(_METRIC, 0, 1.02)


def figures(tables: Sequence[Table], traits: RuleTraits, costs: pd.Series | None = None) -> list[Figure]:
    """Every figure that the tables have data for.

    Parameters
    ----------
    tables
        Tables of one metric that is better when higher (the headline 1 - TV), one for each kind of net.
    traits : RuleTraits
        Of their rules.
    costs : Series, optional
        Median seconds for one input, by (activation, depth, rule). With them accuracy is drawn against
        cost too, which `reports.sections.choice.figure` does better where several rules were measured.

    Returns
    -------
    list of Figure
        Only those that have panels.
    """
    cells = _cells(tables)
    if cells.empty:
        return []
    drawn = [_over_sigma(cells, traits), _depth_against_sigma(cells, traits)]
    if costs is not None:
        drawn.append(_accuracy_against_cost(cells, traits, costs))
    return [figure for figure in drawn if figure.panels]


def _cells(tables: Sequence[Table]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "activation": table.activation,
                "depth": table.depth,
                "recipe": ", ".join(filter(None, (table.under, table.recipe))),
                "sigma": row.sigma,
                "rule": cell.rule,
                "value": cell.mean,
                "sd": cell.sd,
                "floor95": row.floor95,
            }
            for table in tables
            for row in table.rows
            for cell in row.cells
            if cell
        ]
    )


def _over_sigma(cells: pd.DataFrame, traits: RuleTraits) -> Figure:
    styled = styles(cells["rule"], traits)
    panels: list[Panel] = []
    for kind, recipe, part in _kinds(cells):
        title = ", ".join(filter(None, (kind.label, recipe)))
        sigmas = sorted(part["sigma"].unique())
        ticks = tuple((sigma, f"{sigma:g}") for sigma in sigmas)
        lines = _lines(part)
        chart = Chart(
            Axis("input noise σ", log=True, ticks=ticks, told=lambda sigma: f"σ = {sigma:g}"),
            _OVERLAP,
            tuple(_series(lines[rule], style) for rule, style in styled.items() if rule in lines),
            tuple(_floor(part)),
        )
        facets = {"metric": _METRIC, "net": title}
        panels.append(Panel(title, chart, _alt_over_sigma(title, lines, styled), facets))
    return Figure(
        anchor="figure-sigma",
        title="Accuracy over input noise",
        caption="Mean 1 − TV (headline) over nets and inputs, by rule; bars reach one standard deviation "
        "over these to either side. The grey band at the top is where a rule cannot be told from one with "
        "the exact law at these sample counts (above the floor’s 95 % point).",
        panels=tuple(panels),
        styles=tuple(styled.values()),
    )


def _floor(part: pd.DataFrame) -> Iterator[Guide]:
    """Where a rule cannot be told from the exact law."""
    floor = part.dropna(subset=["floor95"]).drop_duplicates("sigma").sort_values("sigma")
    if len(floor):
        sigmas, points = floor["sigma"].tolist(), floor["floor95"].tolist()
        edge = [*points, *(1.0 for _ in points)]
        yield Guide([*sigmas, *reversed(sigmas)], edge, colour=_GREY, opacity=0.35, filled=True)


class _Point(NamedTuple):
    """Mean and standard deviation of a rule at a sigma."""

    mean: float
    sd: float


def _lines(part: pd.DataFrame) -> dict[str, dict[float, _Point]]:
    """Points by sigma, ascending, of each rule: means where several kinds of net are called the same."""
    lines: dict[str, dict[float, list[_Point]]] = {}
    columns = (part[name] for name in ("rule", "sigma", "value", "sd"))
    for rule, sigma, value, sd in sorted(zip(*columns, strict=True), key=lambda row: row[:3]):
        lines.setdefault(rule, {}).setdefault(sigma, []).append(_Point(value, sd))
    return {
        rule: {
            sigma: _Point(
                sum(point.mean for point in points) / len(points),
                points[0].sd if len(points) == 1 else math.nan,
            )
            for sigma, points in line.items()
        }
        for rule, line in lines.items()
    }


def _series(line: Mapping[float, _Point], style: Style) -> Series:
    means, sds = np.array(list(line.values())).T
    return Series(
        style, list(line), means, error=sds, low=np.clip(means - sds, 0, 1), high=np.clip(means + sds, 0, 1)
    )


def _alt_over_sigma(title: str, lines: Mapping[str, Mapping[float, _Point]], styled: dict[str, Style]) -> str:
    ends = []
    for rule in (rule for rule in styled if rule in lines):
        values = [point.mean for point in lines[rule].values()]
        ends.append(f"{styled[rule].label} {values[0]:.2f} to {values[-1]:.2f}")
    sigmas = {sigma for line in lines.values() for sigma in line}
    low, high = min(sigmas), max(sigmas)
    return f"Line chart for {title}: 1 − TV from σ = {low:g} to σ = {high:g}. {'; '.join(ends)}."


def _depth_against_sigma(cells: pd.DataFrame, traits: RuleTraits) -> Figure:
    panels: list[Panel] = []
    several = cells["activation"].nunique() > 1
    along = "net" if several else "depth"
    for rule in traits.in_order(cells["rule"]):
        part = cells[cells["rule"] == rule]
        grid = part.pivot_table(index=["activation", "depth", "recipe"], columns="sigma", values="value")
        nets = [
            ", ".join(
                filter(None, (f"{activation_label(name)} {depth:g}" if several else f"{depth:g}", recipe))
            )
            for name, depth, recipe in grid.index
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
    )


def _accuracy_against_cost(cells: pd.DataFrame, traits: RuleTraits, costs: pd.Series) -> Figure:
    styled = styles(cells["rule"], traits)
    panels: list[Panel] = []
    for kind, recipe, part in _kinds(cells):
        spans = part.groupby("rule")["value"].agg(["mean", "min", "max"]).reset_index()
        spans["seconds"] = [
            costs.get((kind.activation, kind.depth, rule), math.nan) for rule in spans["rule"]
        ]
        rule_has_cost = ~spans["rule"].map(traits.is_reference)  # a reference needs the oracle itself
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
        title = ", ".join(filter(None, (kind.label, recipe)))
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
    for key, part in cells.groupby(["activation", "depth", "recipe"], sort=True):
        activation, depth, recipe = cast("tuple[str, int, str]", key)
        yield NetKind(activation, int(depth)), recipe, part
