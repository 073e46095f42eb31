"""The section on Table 1 under the paper's open choices: recipe, scaling, kind of TV, bin range, bins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from ....bench.experiments.iris import OTHER_WASSERSTEIN, SENSITIVITY
from ....bench.metrics import recorded_metric
from ....bench.metrics.total_variation import HeadlineTotalVariation
from ....bench.nets.architectures import Architecture
from ....bench.nets.recipes import recipe_for
from ....bench.noise import GAUSSIAN
from ...numbers import Group, Number, Page, slug
from ...paper import printed
from ...results import POOR_ACCURACY, Results
from ...section import Context, Section
from ...site import MEASURED
from ...statistics.ranking import labels_of
from ...style.names import NetKind
from ...tables.frame import by_kind, places

DVIA = {
    "dvia": "as published",
    "dvia:means=regular_covariance": "with its covariance at the regular pass",
}
RULES = ("sdp", *DVIA, "moment_matching", "monte_carlo:samples=100")
AGREEMENT = ("sdp", "marginal_sdp")


class WhatIsOpen(Section):
    name = "sensitivity"
    title = "Sensitivity"
    page = MEASURED
    order = 135
    # a table would average over recipes
    experiments = (SENSITIVITY.name, OTHER_WASSERSTEIN.name)

    def build(self, results: Results) -> Context | None:
        shown = sensitivity(results.frame)
        return {"sensitivity": shown, "poor": POOR_ACCURACY} if shown else None

    def numbers(self, results: Results, context: Context) -> Iterator[Number]:
        shown = context["sensitivity"]
        title = f"Sensitivity to open choices, {shown['layers']}"
        page = Page("sensitivity.html", title, SENSITIVITY.name, self.name)
        for kind, variants in (("cells", shown["metrics"]), ("recipe", shown["recipes"])):
            for variant in variants:
                group = Group(page, slug(kind, variant["name"]), variant["name"], variant["metric"])
                for (sigma, rule), value in variant["means"].items():
                    anchor = slug(group.anchor, f"{sigma:g}", rule)
                    title = f"{results.traits.label(rule)}, σ = {sigma:g}"
                    yield Number(group, anchor, title, value, variant["rows"][sigma, rule])


def sensitivity(frame: pd.DataFrame) -> Context | None:
    """Variants of the sensitivity experiment on the least deep nets; None if it was not run.

    `metrics` are kinds of TV with the default recipe, and `recipes` have the headline TV.
    """
    own = frame[(frame["experiment"] == SENSITIVITY.name) & (frame["noise"] == GAUSSIAN.family)]
    if own.empty:
        return None
    own = own[(own["activation"] == own["activation"].iloc[0]) & (own["depth"] == own["depth"].min())]
    first = own.iloc[0]
    activation, depth = str(first["activation"]), int(first["depth"])
    listed = [recipe.label for recipe in SENSITIVITY.recipes]
    names = sorted(own["recipe"].unique(), key=lambda name: (*listed, name).index(name))
    chosen = recipe_for(Architecture(depth, activation)).label
    base = chosen if chosen in names else names[0]
    tv = own[by_kind(own["metric"], lambda name: bool(recorded_metric(name).convention))]
    by_spec = dict(list(tv[tv["recipe"] == base].groupby("metric_spec", sort=False, observed=True)))
    metrics = [_variant(recorded_metric(str(spec)).variant, part) for spec, part in by_spec.items()]
    metrics.sort(key=lambda variant: variant["name"])
    in_headline = tv[tv["metric_spec"] == _headline(list(map(str, by_spec)))]
    chosen_parts = ((name, in_headline[in_headline["recipe"] == name]) for name in names)
    recipes = [_variant(name, part, own[own["recipe"] == name]) for name, part in chosen_parts if len(part)]
    sigmas = sorted(own["sigma"].unique())
    kinds = (("kinds of TV, bins and cells", metrics), ("recipes", recipes))
    return {
        "sigmas": sigmas,
        "rules": [rule for rule in RULES if rule in set(own["rule"])],
        "layers": NetKind(activation, depth).label,
        "metrics": metrics,
        "recipes": recipes,
        "choices": [
            {
                "choice": title,
                "count": len(some),
                "ahead": [_ahead(some, "dvia", sigma) or "–" for sigma in sigmas],
                "extremes": _extremes(some, sigmas[-1]) or "–",
            }
            for title, some in (("partition", metrics), ("training recipe", recipes))
            if len(some) > 1
        ],
        "sentences": [said for title, some in kinds if len(some) > 1 for said in _said(title, some, sigmas)],
    }


def _said(title: str, variants: Sequence[Context], sigmas: Sequence[float]) -> Iterator[str]:
    """Sentences on the order of SDP and DVIA over variants, and on the range of SDP."""
    for dvia, version in DVIA.items():
        counts = {sigma: count for sigma in sigmas if (count := _ahead(variants, dvia, sigma))}
        if counts:
            parts = ", ".join(f"{count} at σ\u00a0=\u00a0{sigma:g}" for sigma, count in counts.items())
            yield f"With {len(variants)} {title}, 1 − TV of SDP is above that of DVIA {version} in {parts}."
    if text := _extremes(variants, sigmas[-1]):
        yield f"1 − TV of SDP at σ\u00a0=\u00a0{sigmas[-1]:g} ranges from {text}."


def _ahead(variants: Sequence[Context], dvia: str, sigma: float) -> str:
    """Count the variants in which 1 - TV of SDP is above that of DVIA: ``5 of 9``; empty if not measured."""
    own = [one["means"] for one in variants if {(sigma, "sdp"), (sigma, dvia)} <= one["means"].keys()]
    return f"{sum(means[sigma, 'sdp'] > means[sigma, dvia] for means in own)} of {len(own)}" if own else ""


def _extremes(variants: Sequence[Context], sigma: float) -> str:
    """Smallest and largest 1 - TV of SDP with their variants; empty if not measured."""
    known = [(own["means"][sigma, "sdp"], own["name"]) for own in variants if (sigma, "sdp") in own["means"]]
    if not known:
        return ""
    (low, lowest), (high, highest) = min(known), max(known)
    return f"{low:.3f} ({lowest}) to {high:.3f} ({highest})"


def _headline(specs: list[str]) -> str:
    """The headline metric among specs: that whose cells the experiment does not vary."""
    fixed = tuple(f"{text}," for text in SENSITIVITY.metrics if text.startswith("tv_headline:"))
    headlines = [spec for spec in specs if isinstance(recorded_metric(spec), HeadlineTotalVariation)]
    plain = [spec for spec in headlines if not spec.startswith(fixed)]
    return (plain or headlines or [""])[0]


def _variant(name: str, part: pd.DataFrame, whole: pd.DataFrame | None = None) -> Context:
    """One choice: mean 1 - TV by (sigma, rule), and the labels of its measurements.

    `accuracy` and `agreement` are for recipes only, from all of their measurements. `agreement` is the root
    mean square of log(here / paper) over the columns of SDP and marginal SDP in the paper's Table 28.
    """
    means, rows = {}, {}
    measured, labels = part["value"].to_numpy(), part.index.to_numpy()
    for (sigma, rule), own in places(part, ("sigma", "rule")):
        means[sigma, rule] = float(1 - measured[own].mean())
        rows[sigma, rule] = labels_of(labels[own])
    return {
        "name": name,
        "nets": part["net"].nunique(),
        "units": len(part.drop_duplicates(["net", "input"])),
        "means": means,
        "rows": rows,
        "metric": recorded_metric(str(part["metric"].iloc[0])) if len(part) else HeadlineTotalVariation(),
        "accuracy": math.nan if whole is None else float(whole.drop_duplicates("net")["accuracy"].min()),
        "agreement": math.nan if whole is None else _agreement(whole),
    }


def _agreement(whole: pd.DataFrame) -> float:
    ratios = whole[(whole["metric"] == "std_ratio") & whole["rule"].isin(AGREEMENT)]
    cells = ratios.groupby(["activation", "depth", "sigma", "rule", "component"], observed=True)
    gaps = []
    for cell, ours in cells["value"].mean().items():
        theirs = printed("std_ratio", *cell)  # type: ignore[misc]
        if theirs and ours > 0:
            gaps.append(math.log(ours / theirs.mean) ** 2)
    return math.sqrt(sum(gaps) / len(gaps)) if gaps else math.nan
