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
from ...numbers import Number, NumberGroup, Page, slug
from ...paper import printed
from ...results import POOR_ACCURACY, Results
from ...section import Context, Section
from ...site import MEASURED
from ...statistics.ranking import labels_of
from ...style.names import NetKind
from ...tables.frame import by_kind, positions_by

DVIA = {
    "dvia": "as published",
    "dvia:means=regular_covariance": "with its covariance at the regular pass",
}
RULES = ("sdp", *DVIA, "moment_matching", "monte_carlo:samples=100")
AGREEMENT = ("sdp", "marginal_sdp")


class Sensitivity(Section):
    name = "sensitivity"
    title = "Sensitivity"
    page = MEASURED
    order = 135
    # a table would average over recipes
    experiments = (SENSITIVITY.name, OTHER_WASSERSTEIN.name)

    def build(self, results: Results) -> Context | None:
        context = sensitivity(results.frame)
        return {"sensitivity": context, "poor": POOR_ACCURACY} if context else None

    def numbers(self, results: Results, context: Context) -> Iterator[Number]:
        metrics, recipes = context["sensitivity"]["metrics"], context["sensitivity"]["recipes"]
        title = f"Sensitivity to open choices, {context['sensitivity']['layers']}"
        page = Page("sensitivity.html", title, SENSITIVITY.name, self.name)
        for kind, variants in (("cells", metrics), ("recipe", recipes)):
            for variant in variants:
                group = NumberGroup(page, slug(kind, variant["name"]), variant["name"], variant["metric"])
                for (sigma, rule), value in variant["means"].items():
                    anchor = slug(group.anchor, f"{sigma:g}", rule)
                    title = f"{results.traits.label(rule)}, σ = {sigma:g}"
                    yield Number(group, anchor, title, value, variant["rows"][sigma, rule])


def sensitivity(frame: pd.DataFrame) -> Context | None:
    """Variants of the sensitivity experiment on the least deep nets; None if it was not run.

    `metrics` are kinds of TV with the default recipe, and `recipes` have the headline TV. Either is a list of
    mappings with the mean 1 - TV by (sigma, rule) in `means`; see :func:`_variant`.
    """
    rows = frame[(frame["experiment"] == SENSITIVITY.name) & (frame["noise"] == GAUSSIAN.family)]
    if rows.empty:
        return None
    rows = rows[(rows["activation"] == rows["activation"].iloc[0]) & (rows["depth"] == rows["depth"].min())]
    activation, depth = str(rows["activation"].iloc[0]), int(rows["depth"].iloc[0])
    metrics, recipes = _variants(rows, default_recipe=recipe_for(Architecture(depth, activation)).label)
    sigmas = sorted(rows["sigma"].unique())
    choices = []
    for title, variants in (("partition", metrics), ("training recipe", recipes)):
        if len(variants) > 1:
            choices.append(
                {
                    "choice": title,
                    "count": len(variants),
                    "ahead": [_share_above_dvia(variants, "dvia", sigma) or "–" for sigma in sigmas],
                    "extremes": _extremes(variants, sigmas[-1]) or "–",
                }
            )
    sentences: list[str] = []
    for title, variants in (("kinds of TV, bins and cells", metrics), ("recipes", recipes)):
        if len(variants) > 1:
            sentences += _sentences(title, variants, sigmas)
    return {
        "sigmas": sigmas,
        "rules": [rule for rule in RULES if rule in set(rows["rule"])],
        "layers": NetKind(activation, depth).label,
        "metrics": metrics,
        "recipes": recipes,
        "choices": choices,
        "sentences": sentences,
    }


def _variants(rows: pd.DataFrame, default_recipe: str) -> tuple[list[Context], list[Context]]:
    """Variants by kind of TV, with the default recipe, and by recipe, with the headline TV."""
    order = [recipe.label for recipe in SENSITIVITY.recipes]
    names = sorted(rows["recipe"].unique(), key=lambda name: (*order, name).index(name))
    if default_recipe not in names:
        default_recipe = names[0]
    is_tv = by_kind(rows["metric"], lambda name: bool(recorded_metric(name).convention))
    tv = rows[is_tv]
    metrics, specs = [], []
    default_rows = tv[tv["recipe"] == default_recipe]
    for spec, part in default_rows.groupby("metric_spec", sort=False, observed=True):
        specs.append(str(spec))
        metrics.append(_variant(recorded_metric(str(spec)).variant, part))
    metrics.sort(key=lambda variant: variant["name"])
    headline_tv = tv[tv["metric_spec"] == _headline(specs)]
    recipes = []
    for name in names:
        part = headline_tv[headline_tv["recipe"] == name]
        if len(part):
            recipes.append(_variant(name, part, rows[rows["recipe"] == name]))
    return metrics, recipes


def _sentences(title: str, variants: Sequence[Context], sigmas: Sequence[float]) -> Iterator[str]:
    """Sentences on the order of SDP and DVIA over variants, and on the range of SDP."""
    for dvia, version in DVIA.items():
        shares = {sigma: _share_above_dvia(variants, dvia, sigma) for sigma in sigmas}
        parts = [f"{share} at σ\u00a0=\u00a0{sigma:g}" for sigma, share in shares.items() if share]
        if parts:
            yield (
                f"With {len(variants)} {title}, 1 − TV of SDP is above that of DVIA {version} in "
                f"{', '.join(parts)}."
            )
    if text := _extremes(variants, sigmas[-1]):
        yield f"1 − TV of SDP at σ\u00a0=\u00a0{sigmas[-1]:g} ranges from {text}."


def _share_above_dvia(variants: Sequence[Context], dvia: str, sigma: float) -> str:
    """Count the variants in which 1 - TV of SDP is above that of DVIA: ``5 of 9``; empty if not measured."""
    above = measured = 0
    for variant in variants:
        means = variant["means"]
        if (sigma, "sdp") in means and (sigma, dvia) in means:
            measured += 1
            above += means[sigma, "sdp"] > means[sigma, dvia]
    return f"{above} of {measured}" if measured else ""


def _extremes(variants: Sequence[Context], sigma: float) -> str:
    """Smallest and largest 1 - TV of SDP with their variants; empty if not measured."""
    masses = [
        (variant["means"][sigma, "sdp"], variant["name"])
        for variant in variants
        if (sigma, "sdp") in variant["means"]
    ]
    if not masses:
        return ""
    low, lowest = min(masses)
    high, highest = max(masses)
    return f"{low:.3f} ({lowest}) to {high:.3f} ({highest})"


def _headline(specs: list[str]) -> str:
    """The headline metric among specs: that whose cells the experiment does not vary."""
    varied = tuple(f"{spec}," for spec in SENSITIVITY.metrics if spec.startswith("tv_headline:"))
    headlines = [spec for spec in specs if isinstance(recorded_metric(spec), HeadlineTotalVariation)]
    default_headlines = [spec for spec in headlines if not spec.startswith(varied)]
    return next(iter(default_headlines or headlines), "")


def _variant(name: str, part: pd.DataFrame, whole: pd.DataFrame | None = None) -> Context:
    """One choice: mean 1 - TV by (sigma, rule), and the labels of its measurements.

    `accuracy` and `agreement` are for recipes only, from all of their measurements. `agreement` is the root
    mean square of log(here / paper) over the columns of SDP and marginal SDP in the paper's Table 28.
    """
    means, rows = {}, {}
    values, labels = part["value"].to_numpy(), part.index.to_numpy()
    for (sigma, rule), positions in positions_by(part, ("sigma", "rule")):
        means[sigma, rule] = float(1 - values[positions].mean())
        rows[sigma, rule] = labels_of(labels[positions])
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
    squares = []
    for cell, mean in cells["value"].mean().items():
        paper = printed("std_ratio", *cell)  # type: ignore[misc]
        if paper and mean > 0:
            squares.append(math.log(mean / paper.mean) ** 2)
    return math.sqrt(sum(squares) / len(squares)) if squares else math.nan
