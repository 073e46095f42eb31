"""Figures of a drill-down: errors by layer, projections, quantiles, covariances."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.special import ndtri

from sdp_ref.laws import DiagonalGaussian, Gaussian

from ...bench.metrics.oracle import Oracle, Prediction
from ...bench.replay.error_by_layer import ErrorByLayer, OutputErrors
from ...oracles.partitions.quantiles import LEVELS
from ..style import labels
from ..style.figure import SMALL, Figure, look, panels
from ..style.names import RuleTraits
from ..style.theme import GREY, INK, LIGHT, LINE, Style, shade, styles

Array = NDArray[np.float64]

RULE, DROPPED, CLOSURE = "#0072b2", shade("#e69f00", LIGHT), "#d55e00"
KINDS = {"formula": "the rule’s own", "dropped": "covariances it drops", "closure": "closure"}
"""Labels of the errors in :class:`sdp_bench.bench.replay.error_by_layer.OutputErrors`."""

_ENTERING = dict(zip(KINDS, (RULE, DROPPED, CLOSURE), strict=True))
_TOTAL = Style("total", INK, "o")
_OUTPUTS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8c564b", "#7a7a2e")
_OUTPUT_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
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
    kinds = [layer.label for layer in errors.layers]
    return [f"{kind} {kinds[: place + 1].count(kind)}" for place, kind in enumerate(kinds)]


@look()
def by_layer(errors: ErrorByLayer, output: OutputErrors, scale: str) -> Figure:
    """Errors at each layer, and their contributions to the error at the output in the measure `scale`."""
    from matplotlib.patches import Patch

    names = layer_names(errors)
    shown = [kind for kind in KINDS if sum(getattr(output, kind)) > _NOTHING * output.sum_of_parts]
    legend = [*(Patch(facecolor=_ENTERING[kind], label=KINDS[kind]) for kind in shown), _TOTAL]
    below = 0.3 + 0.05 * max(map(len, names))
    titles = ["After each layer", "As seen at the output"]
    drawing, (left, right) = panels(titles, legend, width=3.7, height=2.2, below=below)
    _after_layers(left, errors)
    bottom = np.zeros(len(names))
    for kind in shown:
        part = np.array(getattr(output, kind)) / output.sum_of_parts
        right.bar(range(len(names)), part, 0.7, bottom=bottom, color=_ENTERING[kind])
        bottom = bottom + part
    right.yaxis.set_major_formatter(_per_cent)
    right.set_ylabel("share of the total")
    step = math.ceil(len(names) / 16)
    leaning: dict[str, Any] = {"rotation": 55, "ha": "right", "rotation_mode": "anchor"}
    for axes in (left, right):
        axes.set_xticks(range(0, len(names), step), names[::step], **leaning)
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_ylim(bottom=0)
        axes.grid(visible=False, axis="x")
    return Figure(
        "figure-layers",
        "Error by layer",
        "Left: after each layer, relative to the root of its true total variance; each of the bars "
        "starts again at its layer, and the total is the rule's accumulated error. Right: the share of the "
        f"error of the output that enters at each layer ({scale}).",
        drawing,
    )


def _per_cent(share: float, _: Any) -> str:
    return f"{100 * share:.0f} %"


def _after_layers(axes: Any, errors: ErrorByLayer) -> None:
    positions = np.arange(len(errors.layers))
    rule, closure, total, floor = np.array(
        [(one.rule.value, one.closure.value, one.total.value, one.total.floor95) for one in errors.layers]
    ).T
    # where a rule has an error at all, nearly all of it is dropped covariance
    dropped = np.array([layer.dropped for layer in errors.layers]) > 0.5 * rule
    axes.fill_between(positions, 0, floor, color=GREY, alpha=0.35, linewidth=0)
    axes.bar(positions - 0.2, rule, 0.38, color=np.where(dropped, DROPPED, RULE).tolist())
    axes.bar(positions + 0.2, closure, 0.38, color=CLOSURE)
    axes.plot(positions, total, **_TOTAL.line | {"linewidth": 1.1, "markersize": 3})
    axes.set_ylabel("relative distance")


@look()
def projections(oracle: Oracle, prediction: Prediction, rule: str, traits: RuleTraits) -> Figure | None:
    """Oracle and prediction on pairs of the oracle's principal axes; None for a single output."""
    style = replace(styles([rule], traits)[rule], marker="", dashes=())
    if traits.is_sampling(rule):  # which is grey in other figures, as the oracle is here
        style = replace(style, colour=RULE)
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
    pairs = list(combinations(range(len(kept)), 2))
    legend = [style, Style("oracle", GREY, "s")]
    drawing, every = panels([f"Axes {i + 1} and {j + 1}" for i, j in pairs], legend, width=2.4, height=2.3)
    for axes, (i, j) in zip(every, pairs, strict=True):
        _projection(axes, samples[:, [i, j]], mean[[i, j]], covariance[np.ix_([i, j], [i, j])], style)
        axes.set(xlabel=f"axis {i + 1} (sd {spreads[i]:.3g})", ylabel=f"axis {j + 1} (sd {spreads[j]:.3g})")
    return Figure(
        "figure-projections",
        "Oracle and prediction in the oracle’s principal axes",
        f"Grey: the smallest regions with 50, 90 and 99 % of the oracle’s {which}samples. Lines: the "
        "regions with the same masses under the rule’s law. Axes in units of the oracle’s standard deviation "
        "along each; ellipses may run out of the frame.",
        drawing,
    )


def _projection(axes: Any, samples: Array, mean: Array, covariance: Array, style: Style) -> None:
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
    heights = sorted(h for h in set(ordered[positions].tolist()) if 0 < h < density.max())
    centres = [(edge[1:] + edge[:-1]) / 2 for edge in edges]
    for opacity, height in zip(_SHADES[-len(heights) :], heights, strict=False):
        axes.contourf(*centres, density.T, [height, density.max() * 1.01], colors=[GREY], alpha=opacity * 0.6)
    for mass in _MASSES:
        axes.plot(*_ellipse(mean, covariance, mass), color=style.colour, linewidth=1.3)
    axes.plot(*mean, color=style.colour, marker="P", markersize=5)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))


def _ellipse(mean: Array, covariance: Array, mass: float) -> tuple[Array, Array]:
    """Edge of the smallest region of a Gaussian with a given mass."""
    values, vectors = np.linalg.eigh(covariance)
    radii = math.sqrt(-2 * math.log(1 - mass)) * np.sqrt(np.clip(values, 0, None))
    turns = np.linspace(0, 2 * math.pi, _TURNS)
    x, y = mean[:, None] + vectors @ (radii[:, None] * np.stack([np.cos(turns), np.sin(turns)]))
    return x, y


@look()
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
    shown = np.flatnonzero(ranges > 0)[: len(_OUTPUTS)].tolist()
    errors = oracle.quantiles.replicates(100).std(0)
    looks = zip(shown, _OUTPUTS, _OUTPUT_MARKERS, strict=False)
    styled = {j: Style(f"output {j}", shade(colour, LIGHT), marker) for j, colour, marker in looks}
    drawing, (axes,) = panels([""], styled.values(), width=4.6, height=2.5)
    axes.axhline(0, color=INK, linewidth=0.9)
    for j, style in styled.items():
        line, error = (predicted[:, j] - true[:, j]) / ranges[j], 2 * errors[:, j] / ranges[j]
        axes.fill_between(LEVELS, line - error, line + error, color=style.colour, alpha=0.22, linewidth=0)
        axes.plot(LEVELS, line, **style.line | {"markersize": 3})
    axes.xaxis.set_major_formatter(_per_cent)
    axes.set(xlim=(0, 1), xlabel="level", ylabel="difference / IQR")
    left = true.shape[1] - len(shown)
    rest = f" Not shown: {labels.plural(left, 'output')}." if left else ""
    return Figure(
        "figure-quantiles",
        "Quantile differences",
        "Predicted minus true quantile of each output, over the true interquartile range; the band is "
        f"two standard errors of the oracle. At 0 the prediction is exact; above it the rule’s quantile is "
        f"too high.{rest}",
        drawing,
    )


@look()
def covariances(oracle: Oracle, prediction: Prediction) -> Figure | None:
    """Covariance matrices in units of the true standard deviations; None if there are too many outputs."""
    import seaborn as sns

    moments = oracle.moments
    size = len(moments.mean)
    if size > _LARGEST_MATRIX:
        return None
    spread = np.sqrt(moments.covariance.diagonal())
    spread = np.where(spread > 0, spread, 1.0)
    units = np.outer(spread, spread)
    true, predicted = moments.covariance / units, _moments_of(prediction)[1] / units
    matrices = {"Oracle": true, "Rule": predicted, "Rule − oracle": predicted - true}
    drawing, every = panels(list(matrices), width=2.5, height=2.2)
    for axes, matrix in zip(every, matrices.values(), strict=True):
        entries = [[_entry(value) for value in row] for row in matrix]
        top = max(1.0, float(np.abs(matrix).max()))
        axes.grid(visible=False)
        sns.heatmap(
            matrix, annot=np.array(entries), fmt="", vmin=-top, vmax=top, cbar=False, ax=axes,
            cmap=sns.diverging_palette(245, 40, as_cmap=True), linewidths=0.4, linecolor=LINE,
            annot_kws={"fontsize": SMALL if size <= 5 else 5.5},
        )  # fmt: skip
        axes.set(xlabel="output", ylabel="output")
    return Figure(
        "figure-covariance",
        "Covariance matrices of the outputs",
        "Each entry over the two outputs’ true standard deviations, so that the oracle’s matrix is "
        "that of its correlations. Orange above 0, blue below; full at ±1, or at the largest entry above.",
        drawing,
        cells=True,
    )


def _entry(value: float) -> str:
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    if value != 0 and not 1e-3 <= abs(value) < 1e4:
        text = f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return text.replace("-", "−")


def _moments_of(prediction: Prediction) -> tuple[Array, Array]:
    law = prediction.gaussian
    return law.mean[0].flatten().double().numpy(), torch.as_tensor(law.covariance[0]).double().numpy()
