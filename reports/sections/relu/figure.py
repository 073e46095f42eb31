"""One ReLU, drawn: laws before and after it, and W1 over the mean of the input."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from sdp_bench.oracles.exact.quadrature import Mixed
from sdp_bench.oracles.exact.stable import NORMAL
from sdp_bench.reports.sections.relu.relu import Image, SingleReLU
from sdp_bench.reports.style.drawing import (
    INK,
    Figure,
    Panel,
    Style,
    canvas_of,
    legend_of,
    look,
    styles,
    svg_of,
)
from sdp_bench.reports.style.labels import number
from sdp_bench.reports.style.rules import RuleTraits

_REACH = 3.2
"""Of the densities' panels, in standard deviations of the input."""
_TRUE = Style("ReLU(X)", "#4a4a4a", "o", ())
_INPUT = Style("X", "#9a9a9a", ".", (1.0, 1.5))


def figure(w1: pd.DataFrame) -> Figure:
    """W1 of each rule over the mean of the input of one ReLU, as `reports.sections.relu.relu` gives it."""
    styled = styles(w1["rule"], RuleTraits())  # of the package's own rules
    sigma = float(w1["sigma"].iloc[0])
    with look():
        canvas, axes = canvas_of(height=0.86, left=0.72)
        for rule, style in styled.items():
            line = w1[w1["rule"] == rule].sort_values("mean")
            axes.plot(line["mean"], line["w1"], color=style.colour, dashes=style.dashes or (1, 0))
        axes.set(yscale="log", xlabel="mean of the input μ", ylabel="W1")
        title = f"ReLU(X), X ~ N(μ, {sigma:g}²)"
        at_zero = w1[w1["mean"] == 0].set_index("rule")["w1"]
        parts = "; ".join(f"{style.label} {at_zero[rule]:.4f}" for rule, style in styled.items())
        panel = Panel(
            title, svg_of(canvas, "relu-0"), f"Line chart for {title}: W1 over μ. At μ = 0: {parts}."
        )
        return Figure(
            anchor="figure-relu",
            title="One ReLU: W1 over the mean of the input",
            caption="Exact W1 between ReLU(X) and the prediction (quadrature, no samples; log scale). "
            "In one dimension the marginal rules are the full ones.",
            panels=(panel,),
            legend=legend_of(styled.values(), "relu-swatch"),
        )


def densities(relu: SingleReLU) -> Figure:
    """Laws before and after one ReLU, exact and predicted: densities as lines, point masses as stems."""
    styled = styles(dict.fromkeys(name for each in relu.images for name in each.predictions), RuleTraits())
    with look():
        panels = tuple(_laws(each, styled, place) for place, each in enumerate(relu.images))
        return Figure(
            anchor="figure-relu-laws",
            title="One ReLU: laws",
            caption="Lines are densities; a stem is a point mass, as high as the mass. Exact, by formulas.",
            panels=panels,
            legend=legend_of((_INPUT, _TRUE, *styled.values()), "relu-laws-swatch"),
        )


def _laws(image: Image, styled: dict[str, Style], place: int) -> Panel:
    canvas, axes = canvas_of(height=0.8, left=0.6)
    x = image.mean + image.sigma * np.linspace(-_REACH, _REACH, 481)
    _draw(axes, Mixed.location_scale(NORMAL, image.mean, image.sigma), x, _INPUT)
    _draw(axes, image.exact, x, _TRUE, width=2.6)
    for rule, style in styled.items():
        _draw(axes, image.predictions[rule], x, style)
    axes.set(xlim=(x[0], x[-1]), ylim=(0, None), xlabel="x", ylabel="density, mass")
    title = f"ReLU(X), X ~ N({number(image.mean)}, {number(image.sigma**2)})"
    told = "; ".join(
        f"{styled[rule].label}: TV {tv:.3f}, W1 {w1:.3f}" for rule, (tv, w1) in image.distances.items()
    )
    axes.set_title(told, fontsize=9, color=INK, loc="left")
    alt = f"Densities and point masses for {title}. {told}."
    return Panel(title, svg_of(canvas, f"relu-laws-{place}"), alt)


def _draw(axes: Axes, law: Mixed, x: np.ndarray, style: Style, width: float = 1.6) -> None:
    dashes = style.dashes or (1, 0)
    if law.pieces:
        density = np.sum([piece.density(x) for piece in law.pieces], axis=0)
        axes.plot(
            x, np.where(density > 0, density, np.nan), color=style.colour, dashes=dashes, linewidth=width
        )
    for position, mass in law.atoms:
        axes.plot([position] * 2, [0, mass], color=style.colour, dashes=dashes, linewidth=width)
        axes.plot(position, mass, color=style.colour, marker="o", markersize=5)
