"""A single ReLU, for which everything is exact: densities, W1 over the mean, and the theorem's checks.

The section imports this module where it is shown, since it imports torch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import optimize
from torch import nn

from sdp_ref.laws import DiagonalGaussian
from sdp_ref.rules import rule as rule_named

from ....oracles.exact.quadrature import Mixed, exact_total_variation, exact_wasserstein
from ....oracles.exact.stable import NORMAL
from ....oracles.exact.theorem import Candidate, Optimality
from ...results import facts
from ...style.figure import SMALL, Figure, log_scale, look, panels
from ...style.labels import number
from ...style.names import RuleTraits
from ...style.theme import GREY, INK, Style, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REACH = 3.2
"""Range of the density panels, in standard deviations of the input."""
_TRUE = Style("ReLU(X)", INK, "o")
_INPUT = Style("X", GREY, "", (1.0, 1.5))


@look()
def figure(w1: pd.DataFrame) -> Figure:
    """W1 of each rule over the mean of the input, from `reports.sections.relu.relu`."""
    styles_of_rules = styles(w1["rule"], RuleTraits())  # of the package's own rules
    sigma = float(w1["sigma"].iloc[0])
    title = f"ReLU(X), X ~ N(μ, {sigma:g}²)"
    drawing, (axes,) = panels([title], styles_of_rules.values(), width=4.6, height=2.6, left=0.6)
    log_scale(axes.yaxis)
    for rule, style in styles_of_rules.items():
        curve = w1[w1["rule"] == rule].sort_values("mean")
        axes.plot(curve["mean"], curve["w1"], **style.line | {"markersize": 3})
    axes.set(xlabel="mean of the input μ", ylabel="W₁")
    return Figure(
        "figure-relu",
        "One ReLU: W1 over the mean of the input",
        "Exact W1 between ReLU(X) and the prediction (quadrature, no samples; logarithmic scale). "
        "In one dimension the marginal rules are the full ones.",
        drawing,
    )


@look()
def densities(relu: SingleReLU) -> Figure:
    """Exact and predicted distributions at one ReLU: densities as lines, point masses as stems."""
    styles_of_rules = styles(RULES, RuleTraits())
    titles = [f"ReLU(X), X ~ N({number(image.mean)}, {number(image.sigma**2)})" for image in relu.images]
    drawing, axes_of_panels = panels(
        titles, [_INPUT, _TRUE, *styles_of_rules.values()], columns=2, width=3.6, height=2.3, above=0.62
    )
    for axes, title, image in zip(axes_of_panels, titles, relu.images, strict=True):
        lines = []
        for rule, (tv, w1) in image.distances.items():
            lines.append(f"{styles_of_rules[rule].label}: TV {tv:.3f}, W1 {w1:.3f}")
        x = image.mean + image.sigma * np.linspace(-_REACH, _REACH, 241)
        _draw_law(axes, x, Mixed.location_scale(NORMAL, image.mean, image.sigma), _INPUT)
        _draw_law(axes, x, image.exact, _TRUE, linewidth=2.4)
        for rule, style in styles_of_rules.items():
            _draw_law(axes, x, image.predictions[rule], style)
        axes.set(xlim=(x[0], x[-1]), xlabel="x", ylabel="density, mass")
        axes.set_ylim(bottom=0)
        axes.set_title(title, pad=6 + 9.5 * len(lines))
        axes.text(
            0, 1.02, "\n".join(lines), transform=axes.transAxes, fontsize=SMALL, va="bottom", linespacing=1.3
        )
    caption = "Lines are densities; a stem is a point mass, as high as the mass. Exact, by formulas."
    return Figure("figure-relu-laws", "One ReLU: distributions", caption, drawing)


def _draw_law(
    axes: Axes, x: NDArray[np.float64], law: Mixed, style: Style, *, linewidth: float = 1.4
) -> None:
    if law.pieces:
        density = np.sum([piece.density(x) for piece in law.pieces], axis=0)
        line = style.line | {"marker": "", "linewidth": linewidth}
        axes.plot(x, np.where(density > 0, density, np.nan), **line)
    for position, mass in law.atoms:
        axes.vlines(position, 0, mass, color=style.colour, linewidth=1.2)
        axes.plot([position], [mass], **style.line)


SIGMA = 0.1  # as in the paper's figure
RULES = ("sdp", "marginal_moment_matching")  # the figure's two; in one dimension the full rules are the same
POINTS = 121
MEANS = (-0.5, 0.5)
"""Means of the two inputs that are drawn, with standard deviation 1; the paper's are unknown."""
_WIDTHS = 5.0  # the figure reaches this many sigma to either side; the paper does not say how far


class ReLUImage(NamedTuple):
    """ReLU(X) for one normal X, the predictions of rules, and their total variation and W1 by rule."""

    mean: float
    sigma: float
    exact: Mixed
    predictions: Mapping[str, Mixed]
    distances: Mapping[str, tuple[float, float]]


Intervals = Sequence[tuple[float, float]]


@dataclass(frozen=True, eq=False)
class SingleReLU:
    """Content of the section: `w1` over the mean, where moment matching is nearer, and two drawn images."""

    w1: pd.DataFrame
    nearer: Intervals
    checks: tuple[Optimality, ...]
    images: tuple[ReLUImage, ...]

    @property
    def sentences(self) -> list[str]:
        return [_sentence_on_w1(self.nearer), _sentence_on_theorem(self.checks)]


def theorem() -> tuple[Optimality, ...]:
    """Return the checks of the theorem, which take 15 seconds and are therefore committed."""
    checks = []
    for case in facts()["theorem"]:
        candidates = {name: Candidate(**case[name]) for name in ("theorem", "density", "point")}
        checks.append(Optimality(**case | candidates))
    return tuple(checks)


@functools.lru_cache
def single_relu() -> SingleReLU:
    """Content of the section, cached; it takes about three seconds."""
    return SingleReLU(wasserstein_over_mean(), nearer(), theorem(), tuple(map(_image, MEANS)))


def _image(mean: float, sigma: float = 1.0) -> ReLUImage:
    """ReLU(X) for X ~ N(mean, sigma^2), and the predictions of two rules, as in the paper's figure."""
    x = _normal([mean], sigma)
    exact = Mixed.of(x).relu()
    predictions = {name: Mixed.of(rule_named(name).propagate(nn.ReLU(), x)) for name in RULES}
    distances = {
        name: (exact_total_variation(exact, prediction), exact_wasserstein(exact, prediction))
        for name, prediction in predictions.items()
    }
    return ReLUImage(mean, sigma, exact, predictions, distances)


def wasserstein_over_mean(
    means: Iterable[float] | None = None, sigma: float = SIGMA, rules: Iterable[str] = RULES
) -> pd.DataFrame:
    """W1 between ReLU(X), X ~ N(mu, sigma^2), and each rule's prediction, over mu (the paper's figure).

    `means` are 121 values from -5 sigma to 5 sigma by default. `rules` are specs; the rules themselves run on
    a net with one ReLU. The frame has the columns `rule`, `mean`, `sigma` and `w1` (to 1e-10 sigma).
    """
    grid = _grid(sigma) if means is None else [float(mean) for mean in means]
    x = _normal(grid, sigma)
    images = [Mixed.of(x[index]).relu() for index in range(len(grid))]
    rows = []
    for name in rules:
        prediction = rule_named(name).propagate(nn.ReLU(), x)
        for index, mean in enumerate(grid):
            w1 = exact_wasserstein(images[index], Mixed.of(prediction[index]))
            rows.append({"rule": name, "mean": mean, "sigma": sigma, "w1": w1})
    return pd.DataFrame(rows, columns=["rule", "mean", "sigma", "w1"])


def nearer(rule: str = RULES[1], other: str = RULES[0]) -> Intervals:
    """Find the means, in sigma, for which one rule is closer to ReLU(X) in W1 than another.

    Ends are accurate to 1e-6. An interval between two adjacent means of the figure is missed.
    """

    def difference(mean: float) -> float:
        w1, w1_of_other = wasserstein_over_mean([mean], SIGMA, (rule, other))["w1"]
        return float(w1 - w1_of_other)

    means = _grid(SIGMA)
    w1 = wasserstein_over_mean(means, SIGMA, (rule, other)).pivot_table("w1", "mean", "rule")
    is_nearer = (w1[rule] < w1[other]).tolist()
    crossings = [
        optimize.brentq(difference, means[index - 1], means[index], xtol=1e-7 * SIGMA)
        for index in range(1, len(means))
        if is_nearer[index] != is_nearer[index - 1]
    ]
    ends = list(crossings)  # of intervals, start and end in turn
    if is_nearer[0]:
        ends.insert(0, means[0])
    if is_nearer[-1]:
        ends.append(means[-1])
    in_sigma = [end / SIGMA for end in ends]
    return list(zip(in_sigma[::2], in_sigma[1::2], strict=True))


def _sentence_on_w1(intervals: Intervals) -> str:
    sdp, moments = RuleTraits().label(RULES[0]), RuleTraits().label(RULES[1])
    if not intervals:
        return f"{moments} is nowhere nearer in W1 than {sdp} (|μ| ≤ {_WIDTHS:g}σ)."
    spans = " and ".join(f"{number(low, 3)}σ < μ < {number(high, 3)}σ" for low, high in intervals)
    return f"In W1, {moments} is nearer than {sdp} only for {spans} (|μ| ≤ {_WIDTHS:g}σ)."


def _sentence_on_theorem(checks: tuple[Optimality, ...]) -> str:
    verdicts = [check.verdict for check in checks]
    ties = sorted({check.ratio for check in checks if check.verdict == "tie"})
    text = f"In {verdicts.count('holds')} of {len(checks)} cases the theorem’s law is the nearest in TV"
    if ties:
        where = ", ".join(f"{ratio:g}" for ratio in ties)
        text += f"; in {verdicts.count('tie')} (median / scale = {where}) a point mass and a density tie"
    return f"{text}; in {verdicts.count('fails') or 'none'} another law is nearer."


def _normal(means: Sequence[float], sigma: float) -> DiagonalGaussian:
    mean = torch.tensor(means, dtype=torch.float64).reshape(-1, 1)
    return DiagonalGaussian(mean, torch.full_like(mean, sigma**2))


def _grid(sigma: float) -> list[float]:
    return [float(mean) for mean in np.linspace(-_WIDTHS * sigma, _WIDTHS * sigma, POINTS)]
