"""Figures of a single ReLU: distributions before and after it, and W1 over the mean of the input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from sdp_bench.oracles.exact.quadrature import Mixed
from sdp_bench.oracles.exact.stable import NORMAL
from sdp_bench.reports.sections.relu.relu import Image, SingleReLU
from sdp_bench.reports.style.axis import Axis
from sdp_bench.reports.style.chart import Chart, Series
from sdp_bench.reports.style.drawing import Style, styles
from sdp_bench.reports.style.figure import Figure, Panel
from sdp_bench.reports.style.labels import number
from sdp_bench.reports.style.rules import RuleTraits

_REACH = 3.2
"""Range of the density panels, in standard deviations of the input."""
_TRUE = Style("ReLU(X)", "#4a4a4a", "circle")
_INPUT = Style("X", "#9a9a9a", "", (1.0, 1.5))
_EVERY = 20
"""Step between the points of a density that can be read."""


def figure(w1: pd.DataFrame) -> Figure:
    """W1 of each rule over the mean of the input, from `reports.sections.relu.relu`."""
    styled = styles(w1["rule"], RuleTraits())  # of the package's own rules
    sigma = float(w1["sigma"].iloc[0])
    by_rule = {rule: w1[w1["rule"] == rule].sort_values("mean") for rule in styled}
    title = f"ReLU(X), X ~ N(μ, {sigma:g}²)"
    at_zero = w1[w1["mean"] == 0].set_index("rule")["w1"]
    parts = "; ".join(f"{style.label} {at_zero[rule]:.4f}" for rule, style in styled.items())
    chart = Chart(
        Axis("mean of the input μ", told=lambda mean: f"μ = {number(mean)}"),
        Axis("W1", log=True),
        tuple(
            Series(style, by_rule[rule]["mean"], by_rule[rule]["w1"], size=2)
            for rule, style in styled.items()
        ),
    )
    alt = f"Line chart for {title}: W1 over μ. At μ = 0: {parts}."
    return Figure(
        anchor="figure-relu",
        title="One ReLU: W1 over the mean of the input",
        caption="Exact W1 between ReLU(X) and the prediction (quadrature, no samples; log scale). "
        "In one dimension the marginal rules are the full ones.",
        panels=(Panel(title, chart, alt),),
        styles=tuple(styled.values()),
    )


def densities(relu: SingleReLU) -> Figure:
    """Exact and predicted distributions at one ReLU: densities as lines, point masses as stems."""
    styled = styles(dict.fromkeys(name for each in relu.images for name in each.predictions), RuleTraits())
    return Figure(
        anchor="figure-relu-laws",
        title="One ReLU: laws",
        caption="Lines are densities; a stem is a point mass, as high as the mass. Exact, by formulas.",
        panels=tuple(_laws(each, styled) for each in relu.images),
        styles=(_INPUT, _TRUE, *styled.values()),
    )


def _laws(image: Image, styled: dict[str, Style]) -> Panel:
    x = image.mean + image.sigma * np.linspace(-_REACH, _REACH, 481)
    laws = (
        *_series(Mixed.location_scale(NORMAL, image.mean, image.sigma), x, _INPUT),
        *_series(image.exact, x, _TRUE, width=2.6),
        *(each for rule, style in styled.items() for each in _series(image.predictions[rule], x, style)),
    )
    title = f"ReLU(X), X ~ N({number(image.mean)}, {number(image.sigma**2)})"
    told = tuple(
        f"{styled[rule].label}: TV {tv:.3f}, W1 {w1:.3f}" for rule, (tv, w1) in image.distances.items()
    )
    chart = Chart(
        Axis("x", x[0], x[-1], told=lambda value: f"x = {number(value)}"),
        Axis("density, mass", 0),
        laws,
        height=0.8,
        note=told,
    )
    return Panel(title, chart, f"Densities and point masses for {title}. {'; '.join(told)}.")


def _series(law: Mixed, x: np.ndarray, style: Style, width: float = 1.6) -> Iterator[Series]:
    if law.pieces:
        density = np.sum([piece.density(x) for piece in law.pieces], axis=0)
        curve = replace(style, marker="")
        known = np.where(density > 0, density, np.nan)
        yield Series(curve, x, known, name=f"{style.label}, density", width=width, every=_EVERY)
    for position, mass in law.atoms:
        yield Series(style, [position], [mass], name=f"{style.label}, mass", low=[0.0], high=[mass])
