"""The section on Table 1 under the paper's open choices: recipe, scaling, kind of TV, bin range, bins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from sdp_bench.bench.experiments.iris import OTHER_WASSERSTEIN, SENSITIVITY
from sdp_bench.bench.metrics import Metric, recorded_metric
from sdp_bench.bench.metrics.distances import StandardDeviationRatio
from sdp_bench.bench.metrics.total_variation import HeadlineTotalVariation
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.recipes import recipe_for
from sdp_bench.bench.noise import GAUSSIAN
from sdp_bench.reports.numbers import Group, Number, Page, slug
from sdp_bench.reports.paper import printed
from sdp_bench.reports.results import POOR_ACCURACY, Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.site import PAPER
from sdp_bench.reports.statistics.ranking import Labels, labels_of
from sdp_bench.reports.style.names import NetKind
from sdp_bench.reports.tables.frame import by_kind, places

DVIA = {
    "dvia": "as published",
    "dvia:means=regular_covariance": "with its covariance at the regular pass",
}
RULES = ("sdp", *DVIA, "moment_matching", "monte_carlo:samples=100")
AGREEMENT = ("sdp", "marginal_sdp")


@dataclass(frozen=True)
class Variant:
    """One choice: mean 1 - TV by (sigma, rule), with the labels of its measurements in `rows`.

    `accuracy` and `agreement` are for recipes only. `agreement` is the root mean square of log(here / paper)
    over the columns of SDP and marginal SDP in the paper's Table 28.
    """

    name: str
    nets: int
    units: int
    values: Mapping[tuple[float, str], float]
    metric: Metric
    rows: Mapping[tuple[float, str], Labels]
    accuracy: float = math.nan
    agreement: float = math.nan


@dataclass(frozen=True)
class Sensitivity:
    """Variants of one base: kinds of TV with the default recipe, and recipes with two kinds of TV."""

    sigmas: tuple[float, ...]
    rules: tuple[str, ...]
    layers: str
    metrics: tuple[Variant, ...]
    recipes: tuple[Variant, ...]

    @property
    def sentences(self) -> list[str]:
        said, last = [], self.sigmas[-1]
        for title, variants in (("kinds of TV, bins and cells", self.metrics), ("recipes", self.recipes)):
            if len(variants) < 2:
                continue
            for dvia, version in DVIA.items():
                parts = []
                for sigma in self.sigmas:
                    leads = [
                        v.values[sigma, "sdp"] - v.values[sigma, dvia]
                        for v in variants
                        if {(sigma, "sdp"), (sigma, dvia)} <= v.values.keys()
                    ]
                    if leads:
                        ahead = sum(lead > 0 for lead in leads)
                        parts.append(f"{ahead} of {len(leads)} at σ\u00a0=\u00a0{sigma:g}")
                if parts:
                    said.append(
                        f"With {len(variants)} {title}, 1 − TV of SDP is above that of DVIA {version} in "
                        f"{', '.join(parts)}."
                    )
            values = [(v.values[last, "sdp"], v.name) for v in variants if (last, "sdp") in v.values]
            if values:
                (low, lowest), (high, highest) = min(values), max(values)
                said.append(
                    f"1 − TV of SDP at σ\u00a0=\u00a0{last:g} ranges from {low:.3f} ({lowest}) to {high:.3f} "
                    f"({highest})."
                )
        return said


class WhatIsOpen(Section):
    """Table 1 of the paper under every choice that it leaves open."""

    name = "sensitivity"
    title = "Sensitivity"
    page = PAPER
    order = 80
    # a table would average over recipes
    experiments = (SENSITIVITY.name, OTHER_WASSERSTEIN.name)

    def build(self, results: Results) -> Context | None:
        shown = sensitivity(results.frame)
        return {"sensitivity": shown, "poor": POOR_ACCURACY} if shown else None

    def numbers(self, results: Results, context: Context) -> Iterator[Number]:
        shown: Sensitivity = context["sensitivity"]
        page = Page(
            "sensitivity.html", f"Sensitivity to open choices, {shown.layers}", SENSITIVITY.name, self.name
        )
        for kind, variants in (("cells", shown.metrics), ("recipe", shown.recipes)):
            for variant in variants:
                group = Group(page, slug(kind, variant.name), variant.name, variant.metric)
                for (sigma, rule), value in variant.values.items():
                    anchor = slug(group.anchor, f"{sigma:g}", rule)
                    title = f"{results.traits.label(rule)}, σ = {sigma:g}"
                    yield Number(group, anchor, title, value, variant.rows[sigma, rule])


def sensitivity(frame: pd.DataFrame) -> Sensitivity | None:
    """Variants of the sensitivity experiment on the least deep nets; None if it was not run."""
    own = frame[(frame["experiment"] == SENSITIVITY.name) & (frame["noise"] == GAUSSIAN.family)]
    if own.empty:
        return None
    own = own[(own["activation"] == own["activation"].iloc[0]) & (own["depth"] == own["depth"].min())]
    first = own.iloc[0]
    activation, depth = str(first["activation"]), int(first["depth"])
    names = list(dict.fromkeys(own["recipe"]))
    listed = [recipe.label for recipe in SENSITIVITY.recipes]
    names.sort(key=lambda name: listed.index(name) if name in listed else len(listed))
    chosen = recipe_for(Architecture(depth, activation)).label
    base = chosen if chosen in names else names[0]
    tv = own[by_kind(own["metric"], lambda name: bool(recorded_metric(name).convention))]
    specs = list(dict.fromkeys(tv[tv["recipe"] == base]["metric_spec"]))
    metrics = [
        _variant(recorded_metric(spec).variant, tv[(tv["recipe"] == base) & (tv["metric_spec"] == spec)])
        for spec in specs
    ]
    headline = _headline([str(spec) for spec in specs])
    in_headline = tv[tv["metric_spec"] == headline]
    recipes = [
        _variant(name, in_headline[in_headline["recipe"] == name], own[own["recipe"] == name])
        for name in names
    ]
    return Sensitivity(
        sigmas=tuple(sorted(own["sigma"].unique())),
        rules=tuple(rule for rule in RULES if rule in set(own["rule"])),
        layers=NetKind(activation, depth).label,
        metrics=tuple(sorted(metrics, key=lambda v: v.name)),
        recipes=tuple(recipe for recipe in recipes if recipe.values),
    )


def _headline(specs: list[str]) -> str:
    """The headline metric among specs: that whose cells the experiment does not vary."""
    fixed = [text for text in SENSITIVITY.metrics if text.startswith(f"{HeadlineTotalVariation.name}:")]
    headlines = [spec for spec in specs if isinstance(recorded_metric(spec), HeadlineTotalVariation)]
    plain = [spec for spec in headlines if not any(spec.startswith(f"{text},") for text in fixed)]
    return (plain or headlines or [""])[0]


def _variant(name: str, part: pd.DataFrame, whole: pd.DataFrame | None = None) -> Variant:
    values, rows = {}, {}
    measured, labels = part["value"].to_numpy(), part.index.to_numpy()
    for (sigma, rule), own in places(part, ("sigma", "rule")):
        values[sigma, rule] = float(1 - measured[own].mean())
        rows[sigma, rule] = labels_of(labels[own])
    metric = recorded_metric(str(part["metric"].iloc[0])) if len(part) else HeadlineTotalVariation()
    accuracy = math.nan if whole is None else float(whole.drop_duplicates("net")["accuracy"].min())
    agreement = math.nan if whole is None else _agreement(whole)
    units = len(part.drop_duplicates(["net", "input"]))
    return Variant(name, part["net"].nunique(), units, values, metric, rows, accuracy, agreement)


def _agreement(whole: pd.DataFrame) -> float:
    ratios = whole[(whole["metric"] == StandardDeviationRatio.name) & whole["rule"].isin(AGREEMENT)]
    cells = ratios.groupby(["activation", "depth", "sigma", "rule", "component"], observed=True)
    gaps = []
    for cell, ours in cells["value"].mean().items():
        theirs = printed(StandardDeviationRatio.published, *cell)  # type: ignore[misc]
        if theirs and ours > 0:
            gaps.append(math.log(ours / theirs.mean) ** 2)
    return math.sqrt(sum(gaps) / len(gaps)) if gaps else math.nan
