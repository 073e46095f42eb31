"""The section on equal compute: when a rule that looks inside a net beats samples of the same cost."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sdp_bench.bench.studies.compute import EXPERIMENT, RULES, TRAININGS, USES
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.site import CHOICE
from sdp_bench.reports.statistics.equal_compute import (
    NET,
    best_inside,
    crossovers,
    factors,
    shares,
    verdicts,
)
from sdp_bench.reports.style.figure import SMALL, Figure, log_scale, look, panels
from sdp_bench.reports.style.labels import listed, span
from sdp_bench.reports.style.theme import LIGHT, ORDERED, Style

TITLES = {
    "mean": "mean",
    "standard_deviation": "standard deviations",
    "whole_distribution": "whole distribution",
    "class": "class",
    "tail": "tails",
}
KINDS = {
    (training, activation): f"{training}, {name}"
    for training in TRAININGS
    for activation, name in (("relu", "ReLU"), ("gelu", "GELU"))
}
SHALLOW = 2
"""Hidden layers of nets on which moments are exact, or nearly, by moment matching."""


class EqualCompute(Section):
    name = "compute"
    title = "Inside the net or sampling"
    page = CHOICE
    order = 22
    experiments = (EXPERIMENT.name,)

    def build(self, results: Results) -> Context | None:
        compared = comparison(results)
        if compared is None:
            return None
        best = best_inside(compared)
        by_rule = shares(compared, ["rule", "use"]).set_index(["rule", "use"])
        passes = compared.groupby("rule", observed=True)["passes"].agg(["min", "max"])
        return {
            "answer": answer(best),
            "noise_shares": noise_shares(best),
            "compared_nets": len(_complete(best).drop_duplicates(NET)),
            "compared_widths": listed([str(width) for width in sorted(set(_complete(best)["width"]))]),
            "without_limits": _by_noise(_complete(best_inside(compared.assign(accurate=True)))),
            "figures": [_wins(best), _crossings(crossovers(best))],
            "nets": len(best.drop_duplicates(NET)),
            "depths": span(best["depth"], 0),
            "widths": span(best["width"], 0),
            "uses": TITLES,
            "rows": [
                (
                    results.traits.label(rule),
                    tuple(passes.loc[rule]),
                    [by_rule.loc[(rule, use)] if (rule, use) in by_rule.index else None for use in USES],
                )
                for rule in RULES
                if rule in passes.index
            ],
        }


def comparison(results: Results) -> pd.DataFrame | None:
    """Return the factors of compute of all settings, None if they were not measured."""
    frame = results.frame
    if frame.empty or not (own := frame[frame["experiment"] == EXPERIMENT.name])["metric"].isin(USES).any():
        return None
    return factors(own[["objective", "seed", "rule", "metric", "component", "value"]])


def answer(best: pd.DataFrame) -> str:
    """Say in which settings looking inside wins, from one rule of each setting."""
    best = _complete(best)
    widths = listed([str(width) for width in sorted(set(best["width"]))])
    large = best["noise"] > 1
    shallow = large & (best["depth"] <= SHALLOW) & best["use"].isin(("mean", "standard_deviation"))
    said = (
        f"On nets of {widths} units a layer, a rule that looks inside the net is accurate enough and "
        f"takes less than half the operations of the best sampler in {_by_noise(best)}."
    )
    if not shallow.any() or not (large & ~shallow).any():
        return said
    return (
        f"{said} At larger noise, the share is {_share(best[shallow])} for means and standard deviations of "
        f"nets with one or two hidden layers, and {_share(best[large & ~shallow])} otherwise."
    )


def noise_shares(best: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Return the share of settings in which looking inside wins, by noise and by uses and depths."""
    best = _complete(best)
    large = best["noise"] > 1
    shallow = (best["depth"] <= SHALLOW) & best["use"].isin(("mean", "standard_deviation"))
    above = "above one kink distance"
    rows = (
        ("below one kink distance", "all", best["noise"] < 1),
        ("one kink distance", "all", best["noise"] == 1),
        (above, "all", large),
        (above, "mean and standard deviations, one or two hidden layers", large & shallow),
        (above, "all others", large & ~shallow),
    )
    return [(noise, part, _share(best[chosen])) for noise, part, chosen in rows if chosen.any()]


def _complete(best: pd.DataFrame) -> pd.DataFrame:
    """Leave out widths that lack some depths: looking inside wins more often on shallow nets."""
    depths = best.groupby("width")["depth"].nunique()
    return best[best["width"].isin(depths.index[depths == depths.max()])]


def _by_noise(best: pd.DataFrame) -> str:
    levels = {
        " of settings at noise below one kink distance": best["noise"] < 1,
        " at one": best["noise"] == 1,
        " above": best["noise"] > 1,
    }
    return listed([_share(best[chosen]) + where for where, chosen in levels.items() if chosen.any()])


def _share(best: pd.DataFrame) -> str:
    share, low, high = (shares(best.assign(all=0), ["all"])[["inside", "low", "high"]].to_numpy() * 100)[0]
    return f"{share:.0f} % ({low:.0f} to {high:.0f} %)"


@look()
def _wins(best: pd.DataFrame) -> Figure:
    import seaborn as sns

    own = best.assign(wins=(verdicts(best) == "inside").astype(float))
    styled = {
        kind: Style(
            label, ORDERED[0 if kind[1] == "relu" else 4], "o", (2.0, 1.2) if kind[0] == "random" else ()
        )
        for kind, label in KINDS.items()
    }
    drawing, axes = panels([TITLES[use] for use in USES], styled.values(), columns=3)
    for use, place in zip(USES, axes, strict=False):
        for (training, activation), style in styled.items():
            chosen = (own["use"] == use) & (own["training"] == training) & (own["activation"] == activation)
            if chosen.any():
                sns.lineplot(
                    own[chosen], x="noise", y="wins", errorbar=("ci", 95), n_boot=400, seed=0, ax=place,
                    err_style="bars", legend=False, **style.line,
                )  # fmt: skip
        log_scale(place.xaxis)
        place.set(xlabel="noise, kink distances", ylabel="", ylim=(-0.03, 1.03))
    axes[0].set_ylabel("share of nets")
    return Figure(
        "figure-compute",
        "Where looking inside the net takes less compute than sampling",
        "Share of nets on which a rule that looks inside is accurate enough (errors of at most 0.05 standard "
        "deviations in the mean and in W1, 5 % in standard deviations, 1 point in the class, 25 % in tails) "
        "and takes less than half the operations of the best sampler with its error; mean and 95 % interval "
        "over nets. One kink distance is the noise at which, for half of the hidden units with a gradient, "
        "the kink is at most one standard deviation away. "
        "At 0.01, many settings are unresolved, since both are more accurate than the oracle shows.",
        drawing,
    )


@look()
def _crossings(crossings: pd.DataFrame) -> Figure:
    import seaborn as sns

    own = crossings.assign(size=np.log10(crossings["crossing"].clip(1e-3, None)))
    kinds = [kind for kind in KINDS if ((own["training"] == kind[0]) & (own["activation"] == kind[1])).any()]
    titles = [TITLES[use] if kind == kinds[0] else "" for kind in kinds for use in USES]
    drawing, axes = panels(
        titles,
        columns=len(USES),
        width=1.12,
        height=1.1,
        left=0.1,
        right=0.06,
        above=0.2,
        below=0.18,
        margin=0.8,
    )
    for place, ax in enumerate(axes):
        kind, use = kinds[place // len(USES)], USES[place % len(USES)]
        part = own[(own["training"] == kind[0]) & (own["activation"] == kind[1]) & (own["use"] == use)]
        ax.set_title(ax.get_title(loc="left"), fontsize=SMALL)
        ax.grid(visible=False)
        if part.empty:
            ax.axis("off")
            continue
        cells = part.groupby(["depth", "width"])
        text = cells["crossing"].agg(_ends)
        sns.heatmap(
            cells["size"].mean().unstack(), annot=text.unstack().fillna("").to_numpy(), fmt="", ax=ax,
            vmin=-3, vmax=2, cbar=False, cmap="cividis", annot_kws={"fontsize": 4.4}, linewidths=0.3,
            linecolor=LIGHT,
        )  # fmt: skip
        ax.tick_params(labelsize=SMALL - 1.2, length=0, labelrotation=0, pad=2)
        ax.set(xlabel="", ylabel="")
        if use == USES[0]:
            ax.set_ylabel(f"{KINDS[kind]}\ndepth", fontsize=SMALL)
        else:
            ax.set_yticks([])
    return Figure(
        "figure-crossover",
        "Largest noise at which looking inside the net wins",
        "In kink distances, by depth (rows) and width (columns); least and largest over nets. 0: at none of "
        "the five levels from 0.01 to 100.",
        drawing,
        cells=True,
    )


def _ends(levels: pd.Series[float]) -> str:
    texts = (f"{end:g}".removeprefix("0") or "0" for end in (levels.min(), levels.max()))
    return "–".join(dict.fromkeys(texts))
