"""The figures of accuracy over noise, depth and cost."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import NullFormatter

from sdp_bench.reports.style import labels
from sdp_bench.reports.style.drawing import (
    Figure,
    Panel,
    Style,
    canvas_of,
    label_x,
    legend_of,
    look,
    styles,
    svg_of,
)
from sdp_bench.reports.style.heat_map import HeatMap
from sdp_bench.reports.style.nets import NetKind, activation_label
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.tables import Table

_COLOURS = ScalarMappable(Normalize(0, 1), "cividis")
_LONGEST = 18  # letters of a line of a net's name beside a heat map


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
    with look():
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
        canvas, axes = canvas_of(height=0.86)
        floor = part.dropna(subset=["floor95"]).drop_duplicates("sigma").sort_values("sigma")
        if len(floor):
            axes.fill_between(floor["sigma"], floor["floor95"], 1.0, color="#8a8a8a", alpha=0.35, linewidth=0)
        lines = _lines(part)
        _plot(axes, lines, styled)
        axes.set(xscale="log", ylim=(0, 1.02), xlabel="input noise σ", ylabel="1 − TV")
        sigmas = sorted(part["sigma"].unique())
        label_x(axes, sigmas, [f"{sigma:g}" for sigma in sigmas])
        axes.minorticks_off()
        title = ", ".join(filter(None, (kind.label, recipe)))
        panels.append(
            Panel(title, svg_of(canvas, f"sigma-{len(panels)}"), _alt_over_sigma(title, lines, styled))
        )
    return Figure(
        anchor="figure-sigma",
        title="Accuracy over input noise",
        caption="Mean 1 − TV (headline) over nets and inputs, by rule. The grey band at the top is where a "
        "rule cannot be told from one with the exact law at these sample counts (above the floor’s "
        "95 % point).",
        panels=tuple(panels),
        legend=legend_of(styled.values(), "sigma-swatch"),
    )


def _lines(part: pd.DataFrame) -> dict[str, dict[float, float]]:
    """Values by sigma, ascending, of each rule: means where several kinds of net are called the same."""
    lines: dict[str, dict[float, list[float]]] = {}
    for rule, sigma, value in sorted(zip(part["rule"], part["sigma"], part["value"], strict=True)):
        lines.setdefault(rule, {}).setdefault(sigma, []).append(value)
    return {
        rule: {sigma: sum(values) / len(values) for sigma, values in line.items()}
        for rule, line in lines.items()
    }


def _plot(axes: Axes, lines: Mapping[str, Mapping[float, float]], styled: dict[str, Style]) -> None:
    for rule in (rule for rule in styled if rule in lines):
        line, style = lines[rule], styled[rule]
        axes.plot(
            list(line),
            list(line.values()),
            color=style.colour,
            dashes=style.dashes,
            marker=style.marker,
            markersize=5,
            markeredgewidth=0,
        )


def _alt_over_sigma(title: str, lines: Mapping[str, Mapping[float, float]], styled: dict[str, Style]) -> str:
    ends = []
    for rule in (rule for rule in styled if rule in lines):
        values = list(lines[rule].values())
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
            edges="#8a8a8a",
            height=0.24 + 0.13 * len(grid),
            size=10,
        )
        lowest, highest = grid.min().min(), grid.max().max()
        alt = (
            f"Heat map for {traits.label(rule)}: 1 − TV by {along} and σ, from {lowest:.2f} to "
            f"{highest:.2f}; the same numbers are in the tables below."
        )
        panels.append(Panel(traits.label(rule), heat_map.svg, alt))
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
        canvas, axes = canvas_of(height=0.86)
        colours = [styled[rule].colour for rule in spans["rule"]]
        axes.vlines(spans["seconds"], spans["min"], spans["max"], colors=colours, linewidth=1.6, alpha=0.6)
        rules = traits.in_order(spans["rule"])
        for rule, at, mean in zip(spans["rule"], spans["seconds"], spans["mean"], strict=True):
            style = styled[rule]
            axes.plot(
                at, mean, color=style.colour, marker=style.marker, markersize=60**0.5, markeredgewidth=0
            )
        axes.set(xscale="log", ylim=(0, 1.02), xlabel="time for one input", ylabel="1 − TV")
        # Plain text: matplotlib's own labels of a logarithmic axis are formulae, slow to set.
        axes.xaxis.set_major_formatter(lambda seconds, _: labels.duration(seconds))
        axes.xaxis.set_minor_formatter(NullFormatter())
        title = ", ".join(filter(None, (kind.label, recipe)))
        seconds, means = (spans.set_index("rule")[name].to_dict() for name in ("seconds", "mean"))
        parts = [
            f"{styled[rule].label} {labels.duration(seconds[rule])}, {means[rule]:.2f}" for rule in rules
        ]
        alt = f"Scatter chart for {title}: cost and mean 1 − TV. {'; '.join(parts)}."
        panels.append(Panel(title, svg_of(canvas, f"cost-{len(panels)}"), alt))
    return Figure(
        anchor="figure-cost",
        title="Accuracy against cost",
        caption="Mean 1 − TV (headline) over all σ against the rule’s own time for one input (median; "
        "logarithmic). The bar reaches from the worst σ to the best. Up and to the left is better.",
        panels=tuple(panels),
        legend=legend_of(styled.values(), "cost-swatch") if panels else (),
    )


def _kinds(cells: pd.DataFrame) -> Iterator[tuple[NetKind, str, pd.DataFrame]]:
    for key, part in cells.groupby(["activation", "depth", "recipe"], sort=True):
        activation, depth, recipe = cast("tuple[str, int, str]", key)
        yield NetKind(activation, int(depth)), recipe, part
