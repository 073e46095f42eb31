"""The figures of a drill-down: errors by layer, projections, quantiles, covariances."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Ellipse
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.special import ndtri

from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.prediction import Prediction
from sdp_bench.bench.replay.error_by_layer import ErrorByLayer, OutputErrors
from sdp_bench.oracles.moments.moments import Moments
from sdp_bench.oracles.partitions.quantiles import LEVELS
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.drawing import (
    GRID,
    INK,
    Panel,
    Style,
    legend_of,
    look,
    styles,
    svg_of,
)
from sdp_bench.reports.style.drawing import Figure as Drawing
from sdp_bench.reports.style.heat_map import HeatMap
from sdp_bench.reports.style.rules import RuleTraits
from sdp_ref.laws import DiagonalGaussian, Gaussian

Array = NDArray[np.float64]

RULE, DROPPED, CLOSURE = "#0072b2", "#e69f00", "#d55e00"
KINDS = {"formula": "the rule’s own", "dropped": "covariances it drops", "closure": "closure"}
"""What enters, as :class:`sdp_bench.bench.replay.error_by_layer.OutputErrors` names it, for people."""

_COLOURS = {"formula": RULE, "dropped": DROPPED, "closure": CLOSURE}
_OUTPUTS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8c564b", "#7a7a2e")
_DIVERGING = LinearSegmentedColormap.from_list("orange over blue", ("#3e91d5", "#f2f1f1", "#ca7734"))
_MASSES = (0.5, 0.9, 0.99)
_SHADES = ((0.54, 0.54, 0.54, 0.25), (0.54, 0.54, 0.54, 0.5), (0.54, 0.54, 0.54, 0.8))
_BINS = 72
_DRAWN = 2**20  # samples: more show nothing more
_AXES = 3
_NOTHING = 1e-4  # of all that enters
_LARGEST_MATRIX = 10


def layer_names(errors: ErrorByLayer) -> list[str]:
    """Layers numbered by kind: ``Linear 1``, ``ReLU 1``, ``Linear 2``."""
    seen: Counter[str] = Counter()
    names = []
    for layer in errors.layers:
        seen[layer.label] += 1
        names.append(f"{layer.label} {seen[layer.label]}")
    return names


def by_layer(errors: ErrorByLayer, output: OutputErrors, scale: str) -> Drawing:
    """Errors at each layer, and what enters there as seen at the output; `scale` says in what measure."""
    names = layer_names(errors)
    with look():
        panels = (_at_layers(errors, names), _at_output(output, names, scale))
    shown = [kind for kind in KINDS if sum(getattr(output, kind)) > _NOTHING * output.sum_of_parts]
    swatches = {KINDS[kind]: _COLOURS[kind] for kind in shown} | {"total": INK}
    with look():
        legend = legend_of(
            [Style(name, colour, "s", ()) for name, colour in swatches.items()], "drill-swatch"
        )
    return Drawing(
        anchor="figure-layers",
        title="Error by layer",
        caption="Left: after each layer, relative to the root of its true total variance; each of the bars "
        "starts anew at its layer, and the total is what the rule has come to there. Right: the share of the "
        f"error of the output that enters at each layer ({scale}).",
        panels=panels,
        legend=legend,
    )


def _at_layers(errors: ErrorByLayer, names: list[str]) -> Panel:
    canvas, axes = _canvas()
    positions = np.arange(len(names))
    rule = [layer.rule.value for layer in errors.layers]
    dropped = [layer.dropped for layer in errors.layers]
    closure = [layer.closure.value for layer in errors.layers]
    total = [layer.total.value for layer in errors.layers]
    # what is dropped is nearly all of the rule error where there is any
    colours = [DROPPED if d > 0.5 * r else RULE for r, d in zip(rule, dropped, strict=True)]
    axes.bar(positions - 0.2, rule, 0.38, color=colours)
    axes.bar(positions + 0.2, closure, 0.38, color=CLOSURE)
    axes.plot(positions, total, color=INK, marker="o", markersize=3.5, linewidth=1.1)
    axes.fill_between(
        positions, [layer.total.floor95 for layer in errors.layers], color="#8a8a8a", alpha=0.35, linewidth=0
    )
    _label_layers(axes, names)
    axes.set(ylabel="relative distance", ylim=(0, None))
    description = "; ".join(
        f"{n}: rule {r:.2g}, closure {c:.2g}, total {t:.2g}"
        for n, r, c, t in zip(names, rule, closure, total, strict=True)
    )
    return Panel("After each layer", _svg(canvas, "layers"), f"Bar chart by layer. {description}.")


def _at_output(output: OutputErrors, names: list[str], scale: str) -> Panel:
    canvas, axes = _canvas()
    positions, bottom = np.arange(len(names)), np.zeros(len(names))
    entered = output.sum_of_parts or 1.0
    for kind in KINDS:
        part = np.array(getattr(output, kind)) / entered
        if part.sum() > _NOTHING:
            axes.bar(positions, part, 0.7, bottom=bottom, color=_COLOURS[kind])
            bottom += part
    _label_layers(axes, names)
    axes.set(ylabel="share of what enters", ylim=(0, None))
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
    description = "; ".join(f"{name} {100 * share:.0f} %" for name, share in zip(names, bottom, strict=True))
    return Panel("As seen at the output", _svg(canvas, "entered"), f"Bar chart ({scale}): {description}.")


def _label_layers(axes: Axes, names: list[str]) -> None:
    step = math.ceil(len(names) / 16)
    axes.set_xticks(
        range(0, len(names), step), names[::step], rotation=55, ha="right", rotation_mode="anchor"
    )
    axes.grid(visible=False, axis="x")


def style_beside_oracle(rule: str, traits: RuleTraits) -> Style:
    """How a rule is drawn beside its oracle, which is grey, as sampling rules are in other figures."""
    style = styles([rule], traits)[rule]
    return replace(style, colour=RULE if traits.is_sampling(rule) else style.colour, marker="", dashes=())


def projections(oracle: Oracle, prediction: Prediction, style: Style) -> Drawing | None:
    """Oracle and prediction on pairs of the oracle's principal axes; None for a single output."""
    moments = oracle.moments
    values, vectors = np.linalg.eigh(moments.covariance)
    order = np.argsort(values)[::-1]
    null = moments.null_variance * (values[order[0]] + np.square(moments.mean).sum())
    kept = [i for i in order[:_AXES] if values[i] > null]
    if len(kept) < 2:
        return None
    spreads = np.sqrt(values[kept])
    axes_matrix = vectors[:, kept] / spreads
    drawn = oracle.samples[:_DRAWN]
    samples = (drawn.double().numpy() - moments.mean) @ axes_matrix
    which = "" if len(drawn) == len(oracle.samples) else f"first {len(drawn):,} "
    law = _moments_of(prediction)
    mean, covariance = (law[0] - moments.mean) @ axes_matrix, axes_matrix.T @ law[1] @ axes_matrix
    panels = []
    with look():
        for number, (i, j) in enumerate(combinations(range(len(kept)), 2)):
            panels.append(
                _projection(
                    samples[:, [i, j]],
                    mean[[i, j]],
                    covariance[np.ix_([i, j], [i, j])],
                    (f"axis {i + 1} (sd {spreads[i]:.3g})", f"axis {j + 1} (sd {spreads[j]:.3g})"),
                    style.colour,
                    f"Axes {i + 1} and {j + 1}",
                    f"projection-{number}",
                )
            )
        legend = legend_of([style, Style("oracle", "#8a8a8a", "s", ())], "plane-swatch")
    return Drawing(
        anchor="figure-projections",
        title="Oracle and prediction in the oracle’s principal axes",
        caption=f"Grey: the smallest regions with 50, 90 and 99 % of the oracle’s {which}samples. Lines: the "
        "regions with the same masses under the rule’s law. Axes in units of the oracle’s standard deviation "
        "along each; ellipses may run out of the frame.",
        panels=tuple(panels),
        legend=legend,
    )


def _projection(
    samples: Array,
    mean: Array,
    covariance: Array,
    axis_names: tuple[str, str],
    colour: str,
    title: str,
    prefix: str,
) -> Panel:
    canvas, axes = _canvas(0.9)
    spread = np.sqrt(np.clip(covariance.diagonal(), 0, None))
    low, high = np.quantile(samples, [0.002, 0.998], axis=0)
    width = high - low
    low, high = (
        np.maximum(np.minimum(low, mean - 2.2 * spread), low - width) - 0.1 * width,
        np.minimum(np.maximum(high, mean + 2.2 * spread), high + width) + 0.1 * width,
    )
    counts, *edges = np.histogram2d(samples[:, 0], samples[:, 1], _BINS, list(zip(low, high, strict=True)))
    density = gaussian_filter(counts, 0.8)
    ordered = np.sort(density.ravel())[::-1]
    held = np.cumsum(ordered) / len(samples)
    positions = np.minimum(np.searchsorted(held, _MASSES), len(ordered) - 1)
    heights = sorted(set(ordered[positions].tolist()))
    centres = [(edge[1:] + edge[:-1]) / 2 for edge in edges]
    heights = [h for h in heights if 0 < h < density.max()]
    if heights:
        axes.contourf(
            *centres,
            density.T,
            levels=[*heights, density.max() * 1.01],
            colors=_SHADES[-len(heights) :],
        )
    values, vectors = np.linalg.eigh(covariance)
    angle = float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))
    for mass in _MASSES:
        radius = math.sqrt(-2 * math.log(1 - mass))
        long, short = (2 * radius * math.sqrt(max(0.0, float(v))) for v in (values[1], values[0]))
        axes.add_patch(
            Ellipse(tuple(mean), long, short, angle=angle, fill=False, edgecolor=colour, linewidth=1.3)
        )
    axes.plot(*mean, marker="+", color=colour, markersize=6)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel=axis_names[0], ylabel=axis_names[1])
    alt = (
        f"{title}: oracle’s density, and the rule’s ellipses with centre ({mean[0]:.2f}, {mean[1]:.2f}) and "
        f"standard deviations {spread[0]:.2g} and {spread[1]:.2g}, in units of the oracle’s."
    )
    return Panel(title, _svg(canvas, prefix), alt)


def quantile_differences(oracle: Oracle, prediction: Prediction) -> Drawing:
    """Predicted less true quantile of each output, over its true interquartile range."""
    true = oracle.quantiles.values
    law = prediction.law
    if isinstance(law, Gaussian | DiagonalGaussian):
        spread = law.variance[0].flatten().double().clamp(min=0).sqrt().numpy()
        predicted = law.mean[0].flatten().double().numpy() + ndtri(LEVELS)[:, None] * spread
    else:
        predicted = prediction.quantiles.values
    ranges = true[14] - true[4]
    known = ranges > 0
    shown = [j for j in range(true.shape[1]) if known[j]][: len(_OUTPUTS)]
    errors = oracle.quantiles.replicates(100).std(0)
    with look():
        canvas, axes = _canvas()
        description = []
        for j in shown:
            line = (predicted[:, j] - true[:, j]) / ranges[j]
            noise = 2 * errors[:, j] / ranges[j]
            axes.fill_between(LEVELS, line - noise, line + noise, color=_OUTPUTS[j], alpha=0.25, linewidth=0)
            axes.plot(LEVELS, line, color=_OUTPUTS[j])
            description.append(
                f"output {j}: {line[0]:.2g} at 5 %, {line[9]:.2g} at 50 %, {line[-1]:.2g} at 95 %"
            )
        axes.axhline(0, color=INK, linewidth=0.9)
        axes.set(xlabel="level", ylabel="difference / IQR", xlim=(0, 1))
        axes.xaxis.set_major_formatter(lambda level, _: f"{100 * level:.0f} %")
        panel = Panel("", _svg(canvas, "quantiles"), f"Line chart: {'; '.join(description)}.")
        legend = legend_of([Style(f"output {j}", _OUTPUTS[j], "", ()) for j in shown], "quantile-swatch")
    left = true.shape[1] - len(shown)
    rest = f" Not shown: {labels.plural(left, 'output')}." if left else ""
    return Drawing(
        anchor="figure-quantiles",
        title="Quantile differences",
        caption="Predicted less true quantile of each output, over the true interquartile range; the band is "
        f"two standard errors of the oracle. 0 is exact, above it the rule’s quantile is too high.{rest}",
        panels=(panel,),
        legend=legend,
    )


def covariances(moments: Moments, prediction: Prediction) -> Drawing | None:
    """Covariance matrices side by side, in units of the true standard deviations; None if too large."""
    if len(moments.mean) > _LARGEST_MATRIX:
        return None
    spread = np.sqrt(moments.covariance.diagonal())
    spread = np.where(spread > 0, spread, 1.0)
    units = np.outer(spread, spread)
    true, predicted = moments.covariance / units, _moments_of(prediction)[1] / units
    panels: list[Panel] = []
    for title, matrix in (("Oracle", true), ("Rule", predicted), ("Rule − oracle", predicted - true)):
        panels.append(_matrix(title, matrix))
    return Drawing(
        anchor="figure-covariance",
        title="Covariance matrices of the outputs",
        caption="Each entry over the two outputs’ true standard deviations, so that the oracle’s matrix is "
        "that of its correlations. Orange above 0, blue below; full at ±1, or at the largest entry above.",
        panels=tuple(panels),
    )


def _matrix(title: str, matrix: Array) -> Panel:
    few = len(matrix) <= 5
    top = max(1.0, float(np.abs(matrix).max()))
    entries = [[_entry(value) for value in row] for row in matrix]
    names = [str(output) for output in range(len(matrix))]
    heat_map = HeatMap(
        matrix,
        entries,
        [[name] for name in names],
        names,
        across="output",
        along="output",
        colours=ScalarMappable(Normalize(-top, top), _DIVERGING),
        edges=GRID,
        height=0.8 if few else 0.95,
        size=10.5 if few else 6.5,
    )
    rows = "; ".join(", ".join(row) for row in entries)
    return Panel(title, heat_map.svg, f"{title}, by rows: {rows}.")


def _entry(value: float) -> str:
    """Three significant figures at most, for a cell."""
    if value != 0 and not 1e-3 <= abs(value) < 1e4:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("-", "−")
    return (f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}").replace("-", "−")


def _moments_of(prediction: Prediction) -> tuple[Array, Array]:
    law = prediction.gaussian
    covariance = law.covariance[0].double()
    return law.mean[0].flatten().double().numpy(), torch.as_tensor(covariance).numpy()


def _canvas(height: float = 0.86, width: float = 4.0) -> tuple[Canvas, Axes]:
    canvas = Canvas(figsize=(width, width * height), layout="constrained")
    axes = canvas.subplots()
    axes.tick_params(axis="both", which="both", length=0)
    return canvas, axes


def _svg(canvas: Canvas, name: str) -> str:
    """SVG without the tick marks, of length 0: a defined path, and its uses in groups of their own."""
    marks = r"<g>\s*(<defs>\s*<path [^>]*/>\s*</defs>\s*)?<g>\s*<use [^>]*/>\s*</g>\s*</g>"
    return re.sub(marks, "", svg_of(canvas, f"drill-{name}"))
