"""W1 over the mean of the input of one ReLU, drawn."""

from __future__ import annotations

import pandas as pd

from sdp_bench.reports.style.drawing import Figure, Panel, canvas_of, legend_of, look, styles, svg_of
from sdp_bench.reports.style.rules import RuleTraits


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
