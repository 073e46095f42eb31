"""Figure of a metric over a rule's parameter: a panel for each kind of nets, a line for each noise level."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from sdp_bench.reports.sections.sweeps.sweeps import Curves, Sweep
from sdp_bench.reports.style.figure import Figure, log_scale, look, panels
from sdp_bench.reports.style.labels import number
from sdp_bench.reports.style.theme import LIGHT, ORDERED, Style, shade

_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "h")
_DECADE = 10.0
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


@look()
def figure(sweep: Sweep) -> Figure:
    import seaborn as sns

    first = sweep.kinds[0].table
    sigmas = sorted({line.sigma for curves in sweep.kinds for line in curves.lines})
    styled = {
        sigma: Style(f"{first.scale} = {sigma:g}", shade(ORDERED[k % 8], LIGHT), _MARKERS[k % 8])
        for k, sigma in enumerate(sigmas)
    }
    drawing, every = panels([curves.table.nets_label for curves in sweep.kinds], styled.values())
    words = []
    for axes, curves in zip(every, sweep.kinds, strict=True):
        data = _data(curves)
        sns.lineplot(
            data, x="parameter", y="mean", hue="sigma", style="sigma", dashes=False, errorbar=None,
            legend=False, ax=axes,
            palette={sigma: style.colour for sigma, style in styled.items()},
            markers={sigma: style.marker for sigma, style in styled.items()}, markeredgewidth=0,
        )  # fmt: skip
        metric, values = curves.table.metric, curves.values
        if _is_wide(values):
            axes.set_xscale("log")
        if metric.complement:
            axes.set_ylim(0, 1.02)
        elif _is_wide(data["mean"]):
            log_scale(axes.yaxis)
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set_xticks([], minor=True)
        axes.set(xlabel=sweep.swept.parameter, ylabel=metric.label)
        words.append(_words(sweep, curves, data))
    left_out = sweep.count - len(sweep.kinds)
    rest = f" The other {left_out} kinds of nets are in the tables." if left_out else ""
    better = {"higher": ", higher is better", "lower": ", lower is better"}.get(first.metric.better, "")
    return Figure(
        sweep.anchor,
        f"{first.metric.title}, {sweep.swept.title}",
        f"Mean over nets and inputs ({first.experiment}{better}), a line for each noise level; the rule's "
        f"other parameters are fixed.{rest}",
        " ".join(words),
        drawing,
    )


def _data(curves: Curves) -> pd.DataFrame:
    rows = [
        (line.sigma, value, cell.mean)
        for line in curves.lines
        for value, cell in line.cells.items()
        if math.isfinite(cell.mean)
    ]
    return pd.DataFrame(rows, columns=["sigma", "parameter", "mean"])


def _words(sweep: Sweep, curves: Curves, data: pd.DataFrame) -> str:
    name, table = sweep.swept.parameter, curves.table
    ends = []
    for sigma, own in data.groupby("sigma"):
        means = own.sort_values("parameter")["mean"]
        ends.append(f"{table.scale} = {sigma:g} {number(means.iloc[0])} to {number(means.iloc[-1])}")
    return (
        f"Line chart for {table.nets_label}: {table.metric.label} from {name} = {curves.values[0]:g} to "
        f"{curves.values[-1]:g}. {'; '.join(ends)}."
    )


def _is_wide(values: Iterable[float]) -> bool:
    """Whether values are positive and far apart, so that an axis is logarithmic."""
    known = [value for value in values if math.isfinite(value)]
    return min(known) > 0 and max(known) >= _DECADE * min(known)
