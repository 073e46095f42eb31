"""The picture that explains the project: a true output distribution and predictions, at three noise levels.

``python -m sdp_bench.reports.sections.overview.distributions`` computes it, from a committed net.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from sdp_bench.reports.style.figure import SMALL, Figure, clean, look, panels
from sdp_bench.reports.style.names import RuleTraits
from sdp_bench.reports.style.theme import GREY, INK, styles

DATA = Path(__file__).with_name("distributions.json")
RULES = ("sdp", "dvia", "unscented", "marginal_moment_matching")
SIGMAS = (0.1, 1.0, 10.0)
ROW, OUTPUT = 108, 1
"""Example of Iris, and the class of the shown score."""
BINS, SAMPLES = 80, 10**6
_OUTSIDE = 0.003  # share of the samples on either side of a panel


def compute(samples: int = SAMPLES, seed: int = 0) -> list[dict[str, Any]]:
    """Histogram of the true output, and mean and standard deviation of each prediction, by noise level."""
    import torch

    import sdp_ref
    from sdp_bench import oracles
    from sdp_bench.bench.nets.architectures import Architecture
    from sdp_bench.bench.nets.fully_connected import committed
    from sdp_bench.bench.nets.net import inputs_of
    from sdp_bench.bench.nets.recipes import recipe_for

    architecture = Architecture(4, "relu")
    (trained,) = committed(architecture, recipe_for(architecture), 1)
    net, x = trained.build(), inputs_of(trained).batch([ROW]).float()
    computed = []
    for sigma in SIGMAS:
        noisy = sdp_ref.DiagonalGaussian(x, torch.full_like(x, sigma**2))
        outputs = oracles.sample_outputs(net, noisy, samples=samples, seed=seed)[:, OUTPUT].double().numpy()
        low, high = np.quantile(outputs, [_OUTSIDE, 1 - _OUTSIDE])
        counts, _ = np.histogram(outputs, BINS, (low, high))
        rules = {}
        for rule in RULES:
            law = sdp_ref.propagate(net, noisy, rule)
            rules[rule] = _rounded(law.mean[0, OUTPUT].item(), law.variance[0, OUTPUT].item() ** 0.5)
        density = _rounded(*(counts / samples / ((high - low) / BINS)))
        computed.append({"sigma": sigma, "range": _rounded(low, high), "density": density, "rules": rules})
    return computed


def _rounded(*numbers: float) -> list[float]:
    return [float(f"{number:.5g}") for number in numbers]


@look()
def distributions(traits: RuleTraits) -> Figure:
    levels = json.loads(DATA.read_text(encoding="utf-8"))
    styled = styles(RULES, traits)
    drawing, every = panels(
        [f"σ = {level['sigma']:g}" for level in levels],
        width=1.28,
        height=0.95,
        left=0.08,
        right=0.08,
        above=0.22,
        below=0.24,
    )
    for axes, level in zip(every, levels, strict=True):
        low, high = level["range"]
        edges = np.linspace(low, high, BINS + 1)
        axes.stairs(level["density"], edges, fill=True, color=GREY, alpha=0.35)
        axes.stairs(level["density"], edges, color=INK, linewidth=0.7)
        x = np.linspace(low, high, 240)
        for rule, (mean, sd) in level["rules"].items():
            axes.plot(
                x,
                np.exp(-(((x - mean) / sd) ** 2) / 2) / (sd * np.sqrt(2 * np.pi)),
                **styled[rule].line | {"marker": ""},
            )
        axes.set(xlim=(low, high), ylim=(0, 1.25 * max(level["density"])), yticks=[])
        axes.locator_params(axis="x", nbins=4)
        axes.grid(visible=False)
    names = [
        ("truth", INK),
        *((clean(style.label).replace("moment ", "moment\n"), style.colour) for style in styled.values()),
    ]
    for place, (name, colour) in enumerate(names):
        at = (0.98, 0.98 - 0.13 * place)
        every[1].annotate(
            name, at, xycoords="axes fraction", fontsize=SMALL, color=colour, ha="right", va="top"
        )
    return Figure(
        "figure-distributions",
        "True and predicted distributions of an output",
        "A class score of a net with 4 ReLU layers for one flower of Iris with Gaussian noise. Grey: 10⁶ "
        "samples of the truth. Lines: predictions. Marginal moment matching is far too narrow.",
        drawing,
    )


if __name__ == "__main__":
    DATA.write_text(json.dumps(compute()).replace("}, {", "},\n {") + "\n", encoding="utf-8")
