"""Figures of a drill-down: errors by layer, projections, quantiles, covariances."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations

import contourpy
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.special import ndtri

from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.prediction import Prediction
from sdp_bench.bench.replay.error_by_layer import ErrorByLayer, OutputErrors
from sdp_bench.oracles.moments.moments import Moments
from sdp_bench.oracles.partitions.quantiles import LEVELS
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.axis import Axis
from sdp_bench.reports.style.chart import Chart, Guide, Series
from sdp_bench.reports.style.colours import GRID, INK, Colours
from sdp_bench.reports.style.drawing import Style, styles
from sdp_bench.reports.style.figure import Figure, Panel
from sdp_bench.reports.style.heat_map import HeatMap
from sdp_bench.reports.style.rules import RuleTraits
from sdp_ref.laws import DiagonalGaussian, Gaussian

Array = NDArray[np.float64]

RULE, DROPPED, CLOSURE = "#0072b2", "#e69f00", "#d55e00"
KINDS = {"formula": "the rule’s own", "dropped": "covariances it drops", "closure": "closure"}
"""Labels of the errors in :class:`sdp_bench.bench.replay.error_by_layer.OutputErrors`."""

_ENTERING = {
    kind: Style(KINDS[kind], colour, "square")
    for kind, colour in (("formula", RULE), ("dropped", DROPPED), ("closure", CLOSURE))
}
_TOTAL = Style("total", INK, "circle")
_OUTPUTS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8c564b", "#7a7a2e")
_OUTPUT_MARKERS = ("circle", "square", "diamond", "up", "down", "plus", "cross", "star")
_DIVERGING = ("#3e91d5", "#f2f1f1", "#ca7734")
"""Blue below 0, orange above."""
_GREY = "#8a8a8a"
_MASSES = (0.5, 0.9, 0.99)
_SHADES = (0.25, 0.5, 0.8)
_BINS = 72
_DRAWN = 2**20  # samples; more make no visible difference
_AXES = 3
_TURNS = 73  # points of an ellipse
_NOTHING = 1e-4  # of the sum of all errors
_LARGEST_MATRIX = 10


def layer_names(errors: ErrorByLayer) -> list[str]:
    """Layers numbered by kind: ``Linear 1``, ``ReLU 1``, ``Linear 2``."""
    seen: Counter[str] = Counter()
    names = []
    for layer in errors.layers:
        seen[layer.label] += 1
        names.append(f"{layer.label} {seen[layer.label]}")
    return names


def by_layer(errors: ErrorByLayer, output: OutputErrors, scale: str) -> Figure:
    """Errors at each layer, and their contributions to the error at the output in the measure `scale`."""
    names = layer_names(errors)
    shown = [kind for kind in KINDS if sum(getattr(output, kind)) > _NOTHING * output.sum_of_parts]
    return Figure(
        anchor="figure-layers",
        title="Error by layer",
        caption="Left: after each layer, relative to the root of its true total variance; each of the bars "
        "starts anew at its layer, and the total is what the rule has come to there. Right: the share of the "
        f"error of the output that enters at each layer ({scale}).",
        panels=(_at_layers(errors, names), _at_output(output, names, scale)),
        styles=(*(_ENTERING[kind] for kind in shown), _TOTAL),
    )


def _at_layers(errors: ErrorByLayer, names: list[str]) -> Panel:
    positions = np.arange(len(names))
    rule = np.array([layer.rule.value for layer in errors.layers])
    closure = np.array([layer.closure.value for layer in errors.layers])
    total = [layer.total.value for layer in errors.layers]
    floor = [layer.total.floor95 for layer in errors.layers]
    # where a rule has an error at all, nearly all of it is dropped covariance
    dropped = np.array([layer.dropped for layer in errors.layers]) > 0.5 * rule
    bars = (
        (_ENTERING["formula"], -0.2, np.where(dropped, np.nan, rule)),
        (_ENTERING["dropped"], -0.2, np.where(dropped, rule, np.nan)),
        (_ENTERING["closure"], 0.2, closure),
    )
    chart = Chart(
        _layers(names),
        Axis("relative distance", 0),
        (
            *(Series(style, positions + aside, values, wide=0.38) for style, aside, values in bars),
            Series(_TOTAL, positions, total, width=1.1, size=2),
        ),
        (
            Guide(
                [*positions, *positions[::-1]],
                [*floor, *np.zeros(len(floor))],
                colour=_GREY,
                opacity=0.35,
                filled=True,
            ),
        ),
        gridless=True,
        inclined=True,
    )
    description = "; ".join(
        f"{n}: rule {r:.2g}, closure {c:.2g}, total {t:.2g}"
        for n, r, c, t in zip(names, rule, closure, total, strict=True)
    )
    return Panel("After each layer", chart, f"Bar chart by layer. {description}.")


def _at_output(output: OutputErrors, names: list[str], scale: str) -> Panel:
    positions, bottom = np.arange(len(names)), np.zeros(len(names))
    entered = output.sum_of_parts or 1.0
    bars = []
    for kind, style in _ENTERING.items():
        part = np.array(getattr(output, kind)) / entered
        if part.sum() > _NOTHING:
            bars.append(Series(style, positions, bottom + part, wide=0.7, base=bottom))
            bottom = bottom + part
    chart = Chart(
        _layers(names),
        Axis("share of what enters", 0, write=_percent, told=_percent),
        tuple(bars),
        gridless=True,
        inclined=True,
    )
    description = "; ".join(f"{name} {100 * share:.0f} %" for name, share in zip(names, bottom, strict=True))
    return Panel("As seen at the output", chart, f"Bar chart ({scale}): {description}.")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _layers(names: list[str]) -> Axis:
    step = math.ceil(len(names) / 16)
    ticks = tuple((float(place), names[place]) for place in range(0, len(names), step))
    return Axis(low=-0.6, high=len(names) - 0.4, ticks=ticks, told=lambda place: names[round(place)])


def style_beside_oracle(rule: str, traits: RuleTraits) -> Style:
    """Style of a rule next to its oracle, which is grey, as sampling rules are in other figures."""
    style = styles([rule], traits)[rule]
    return replace(style, colour=RULE if traits.is_sampling(rule) else style.colour, marker="", dashes=())


def projections(oracle: Oracle, prediction: Prediction, style: Style) -> Figure | None:
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
    panels = tuple(
        _projection(
            samples[:, [i, j]],
            mean[[i, j]],
            covariance[np.ix_([i, j], [i, j])],
            (f"axis {i + 1} (sd {spreads[i]:.3g})", f"axis {j + 1} (sd {spreads[j]:.3g})"),
            style,
            f"Axes {i + 1} and {j + 1}",
        )
        for i, j in combinations(range(len(kept)), 2)
    )
    return Figure(
        anchor="figure-projections",
        title="Oracle and prediction in the oracle’s principal axes",
        caption=f"Grey: the smallest regions with 50, 90 and 99 % of the oracle’s {which}samples. Lines: the "
        "regions with the same masses under the rule’s law. Axes in units of the oracle’s standard deviation "
        "along each; ellipses may run out of the frame.",
        panels=panels,
        styles=(style, Style("oracle", _GREY, "square")),
    )


def _projection(
    samples: Array,
    mean: Array,
    covariance: Array,
    axis_names: tuple[str, str],
    style: Style,
    title: str,
) -> Panel:
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
    regions = contourpy.contour_generator(x=centres[0], y=centres[1], z=density.T, fill_type="OuterOffset")
    shades = [
        Guide(*_broken(points, offsets), colour=_GREY, opacity=shade, filled=True)
        for shade, first, last in zip(
            _SHADES[-len(heights) :], heights, [*heights[1:], density.max() * 1.01], strict=False
        )
        for points, offsets in zip(*regions.filled(first, last), strict=True)
    ]
    ellipses = [Guide(*_ellipse(mean, covariance, mass), colour=style.colour, width=1.3) for mass in _MASSES]
    chart = Chart(
        Axis(axis_names[0], low[0], high[0]),
        Axis(axis_names[1], low[1], high[1]),
        (Series(replace(style, marker="plus"), mean[:1], mean[1:], name=f"{style.label}, mean"),),
        (*shades, *ellipses),
        height=0.9,
    )
    alt = (
        f"{title}: oracle’s density, and the rule’s ellipses with centre ({mean[0]:.2f}, {mean[1]:.2f}) and "
        f"standard deviations {spread[0]:.2g} and {spread[1]:.2g}, in units of the oracle’s."
    )
    return Panel(title, chart, alt)


def _broken(points: Array, offsets: NDArray[np.integer]) -> tuple[Array, Array]:
    """Combine a polygon and its holes, consecutive in `points`, into one path."""
    parts = np.split(points, offsets[1:-1])
    x, y = np.concatenate([np.vstack([part, [[math.nan] * 2]]) for part in parts])[:-1].T
    return x, y


def _ellipse(mean: Array, covariance: Array, mass: float) -> tuple[Array, Array]:
    """Edge of the smallest region of a Gaussian with a given mass."""
    values, vectors = np.linalg.eigh(covariance)
    radii = math.sqrt(-2 * math.log(1 - mass)) * np.sqrt(np.clip(values, 0, None))
    turns = np.linspace(0, 2 * math.pi, _TURNS)
    x, y = mean[:, None] + vectors @ (radii[:, None] * np.stack([np.cos(turns), np.sin(turns)]))
    return x, y


def quantile_differences(oracle: Oracle, prediction: Prediction) -> Figure:
    """Predicted minus true quantile of each output, relative to its true interquartile range."""
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
    lines, description = [], []
    for j in shown:
        line = (predicted[:, j] - true[:, j]) / ranges[j]
        style = Style(f"output {j}", _OUTPUTS[j], _OUTPUT_MARKERS[j])
        lines.append(Series(style, LEVELS, line, error=2 * errors[:, j] / ranges[j], band=True, size=2))
        description.append(f"output {j}: {line[0]:.2g} at 5 %, {line[9]:.2g} at 50 %, {line[-1]:.2g} at 95 %")
    chart = Chart(
        Axis("level", 0, 1, write=_percent, told=_percent),
        Axis("difference / IQR"),
        tuple(lines),
        (Guide([0, 1], [0, 0]),),
    )
    left = true.shape[1] - len(shown)
    rest = f" Not shown: {labels.plural(left, 'output')}." if left else ""
    return Figure(
        anchor="figure-quantiles",
        title="Quantile differences",
        caption="Predicted less true quantile of each output, over the true interquartile range; the band is "
        f"two standard errors of the oracle. 0 is exact, above it the rule’s quantile is too high.{rest}",
        panels=(Panel("", chart, f"Line chart: {'; '.join(description)}."),),
        styles=tuple(line.style for line in lines),
    )


def covariances(moments: Moments, prediction: Prediction) -> Figure | None:
    """Covariance matrices in units of the true standard deviations; None if there are too many outputs."""
    if len(moments.mean) > _LARGEST_MATRIX:
        return None
    spread = np.sqrt(moments.covariance.diagonal())
    spread = np.where(spread > 0, spread, 1.0)
    units = np.outer(spread, spread)
    true, predicted = moments.covariance / units, _moments_of(prediction)[1] / units
    panels: list[Panel] = []
    for title, matrix in (("Oracle", true), ("Rule", predicted), ("Rule − oracle", predicted - true)):
        panels.append(_matrix(title, matrix))
    return Figure(
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
        colours=Colours(-top, top, _DIVERGING),
        edges=GRID,
        height=0.8 if few else 0.95,
        size=10.5 if few else 6.5,
    )
    rows = "; ".join(", ".join(row) for row in entries)
    return Panel(title, heat_map, f"{title}, by rows: {rows}.")


def _entry(value: float) -> str:
    if value != 0 and not 1e-3 <= abs(value) < 1e4:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("-", "−")
    return (f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}").replace("-", "−")


def _moments_of(prediction: Prediction) -> tuple[Array, Array]:
    law = prediction.gaussian
    covariance = law.covariance[0].double()
    return law.mean[0].flatten().double().numpy(), torch.as_tensor(covariance).numpy()
