"""Figures of a single ReLU: distributions before and after it, and W1 over the mean of the input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sdp_bench.oracles.exact.quadrature import Mixed
from sdp_bench.oracles.exact.stable import NORMAL
from sdp_bench.reports.sections.relu.relu import Image, SingleReLU
from sdp_bench.reports.style.figure import SMALL, Figure, label_ends, log_scale, look, panels
from sdp_bench.reports.style.labels import number
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.style.theme import GREY, INK, Style, styles

_REACH = 3.2
"""Range of the density panels, in standard deviations of the input."""
_TRUE = Style("ReLU(X)", INK, "o")
_INPUT = Style("X", GREY, "", (1.0, 1.5))


@look()
def figure(w1: pd.DataFrame) -> Figure:
    """W1 of each rule over the mean of the input, from `reports.sections.relu.relu`."""
    styled = styles(w1["rule"], RuleTraits())  # of the package's own rules
    sigma = float(w1["sigma"].iloc[0])
    title = f"ReLU(X), X ~ N(μ, {sigma:g}²)"
    at_zero = w1[w1["mean"] == 0].set_index("rule")["w1"]
    drawing, (axes,) = panels([title], width=4.6, height=2.6, right=1.8, left=0.6)
    log_scale(axes.yaxis)
    ends = []
    for rule, style in styled.items():
        own = w1[w1["rule"] == rule].sort_values("mean")
        axes.plot(own["mean"], own["w1"], **style.line | {"markersize": 3})
        ends.append((float(own["w1"].iloc[-1]), style.label, style.colour))
    axes.set(xlabel="mean of the input μ", ylabel="W₁")
    label_ends(axes, ends)
    parts = "; ".join(f"{style.label} {at_zero[rule]:.4f}" for rule, style in styled.items())
    return Figure(
        "figure-relu",
        "One ReLU: W1 over the mean of the input",
        "Exact W1 between ReLU(X) and the prediction (quadrature, no samples; logarithmic scale). "
        "In one dimension the marginal rules are the full ones.",
        f"Line chart for {title}: W1 over μ. At μ = 0: {parts}.",
        drawing,
    )


@look()
def densities(relu: SingleReLU) -> Figure | None:
    """Exact and predicted distributions at one ReLU: densities as lines, point masses as stems."""
    if not relu.images:
        return None
    styled = styles(dict.fromkeys(name for image in relu.images for name in image.predictions), RuleTraits())
    titles = [f"ReLU(X), X ~ N({number(image.mean)}, {number(image.sigma**2)})" for image in relu.images]
    drawing, every = panels(
        titles, [_INPUT, _TRUE, *styled.values()], columns=2, width=3.6, height=2.3, above=0.62
    )
    words = []
    for axes, title, image in zip(every, titles, relu.images, strict=True):
        told = [
            f"{styled[rule].label}: TV {tv:.3f}, W1 {w1:.3f}" for rule, (tv, w1) in image.distances.items()
        ]
        _draw(axes, image, styled)
        axes.set_title(title, pad=6 + 9.5 * len(told))
        axes.text(
            0, 1.02, "\n".join(told), transform=axes.transAxes, fontsize=SMALL, va="bottom", linespacing=1.3
        )
        words.append(f"Densities and point masses for {title}. {'; '.join(told)}.")
    caption = "Lines are densities; a stem is a point mass, as high as the mass. Exact, by formulas."
    return Figure("figure-relu-laws", "One ReLU: distributions", caption, " ".join(words), drawing)


def _draw(axes: Any, image: Image, styled: dict[str, Style]) -> None:
    x = image.mean + image.sigma * np.linspace(-_REACH, _REACH, 241)
    laws = [
        (Mixed.location_scale(NORMAL, image.mean, image.sigma), _INPUT, 1.4),
        (image.exact, _TRUE, 2.4),
        *(
            (image.predictions[rule], style, 1.4)
            for rule, style in styled.items()
            if rule in image.predictions
        ),
    ]
    for law, style, width in laws:
        if law.pieces:
            density = np.sum([piece.density(x) for piece in law.pieces], axis=0)
            axes.plot(
                x, np.where(density > 0, density, np.nan), **style.line | {"marker": "", "linewidth": width}
            )
        for position, mass in law.atoms:
            axes.vlines(position, 0, mass, color=style.colour, linewidth=1.2)
            axes.plot([position], [mass], **style.line)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(bottom=0)
    axes.set(xlabel="x", ylabel="density, mass")
