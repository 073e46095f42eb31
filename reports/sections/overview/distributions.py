"""The picture that explains the project: a true output distribution and predictions, at three noise levels.

``python -m tests.reports.record_distributions`` computes it, from a committed net.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ...style.figure import SMALL, Figure, look, panels
from ...style.names import RuleTraits
from ...style.theme import GREY, INK, clean, styles

DATA = Path(__file__).with_name("distributions.json")
RULES = ("sdp", "dvia", "unscented", "marginal_moment_matching")
SIGMAS = (0.1, 1.0, 10.0)
BINS = 80


@look()
def distributions(traits: RuleTraits) -> Figure:
    """Draw the committed densities of the truth and the rules' Gaussians, in a panel for each noise level."""
    levels = json.loads(DATA.read_text(encoding="utf-8"))
    styles_of_rules = styles(RULES, traits)
    drawing, axes_of_panels = panels(
        [f"σ = {level['sigma']:g}" for level in levels],
        width=1.28,
        height=0.95,
        left=0.08,
        right=0.08,
        above=0.22,
        below=0.24,
    )
    for axes, level in zip(axes_of_panels, levels, strict=True):
        low, high = level["range"]
        edges = np.linspace(low, high, BINS + 1)
        axes.stairs(level["density"], edges, fill=True, color=GREY, alpha=0.35)
        axes.stairs(level["density"], edges, color=INK, linewidth=0.7)
        x = np.linspace(low, high, 240)
        for rule, (mean, sd) in level["rules"].items():
            density = np.exp(-(((x - mean) / sd) ** 2) / 2) / (sd * np.sqrt(2 * np.pi))
            axes.plot(x, density, **styles_of_rules[rule].line | {"marker": ""})
        axes.set(xlim=(low, high), ylim=(0, 1.25 * max(level["density"])), yticks=[])
        axes.locator_params(axis="x", nbins=4)
        axes.grid(visible=False)
    colour_of_name = {"truth": INK}
    for style in styles_of_rules.values():
        name = clean(style.label).replace("moment ", "moment\n")
        colour_of_name[name] = style.colour
    for line, (name, colour) in enumerate(colour_of_name.items()):
        position = (0.98, 0.98 - 0.13 * line)
        axes_of_panels[1].annotate(
            name, position, xycoords="axes fraction", fontsize=SMALL, color=colour, ha="right", va="top"
        )
    return Figure(
        "figure-distributions",
        "True and predicted distributions of an output",
        "A class score of a net with 4 ReLU layers for one flower of Iris with Gaussian noise. Grey: 10⁶ "
        "samples of the truth. Lines: predictions by SDP (stable distribution propagation), DVIA "
        "(deterministic variational inference) and others. Marginal moment matching is far too narrow.",
        drawing,
    )
