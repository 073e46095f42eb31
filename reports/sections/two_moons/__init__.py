"""The section on uncertainty of nets on two moons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from sdp_bench.bench.studies.two_moons import EXPERIMENT
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section


@dataclass(frozen=True)
class RecipeRow:
    """A recipe: its name, and the mean, smallest and largest value over seeds of each number."""

    label: str
    numbers: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class Moons:
    """Content of the section."""

    rows: tuple[RecipeRow, ...]
    finding: str
    seeds: int
    recipe: str


class TwoMoons(Section):
    """Uncertainty at seen points and at far ones, by training."""

    name = "two-moons"
    title = "Two moons"
    order = 116
    experiments = (EXPERIMENT.name,)

    def build(self, results: Results) -> Context | None:
        section = moons(results.frame)
        return {"section": section} if section else None


def moons(frame: pd.DataFrame) -> Moons | None:
    """Content of the section, from measurements of all experiments; None if it was not run."""
    own = frame[frame["experiment"] == EXPERIMENT.name]
    if own.empty:
        return None
    own = of_one_design(own)
    seeds = int(own["seed"].nunique())
    recipes = own.loc[own["objective"] == "pairwise", "recipe"]
    recipe = str((recipes if len(recipes) else own["recipe"]).iloc[0])
    return Moons(tuple(_rows(own)), _finding(own), seeds, recipe)


def of_one_design(own: pd.DataFrame) -> pd.DataFrame:
    """Measurements of each objective with the design that has most seeds; training times differ."""
    seeds = own.groupby(["objective", "recipe"], observed=True)["seed"].nunique()
    kept = {recipe for _, recipe in seeds.groupby("objective", observed=True).idxmax()}
    return own[own["recipe"].isin(kept)]


def _rows(own: pd.DataFrame) -> Iterator[RecipeRow]:
    from sdp_bench.bench.studies.two_moons.group import RECIPES  # imports torch

    for name, recipe in RECIPES.items():
        part = own[own["objective"] == name]
        if part.empty:
            continue
        values = [part.loc[part["metric"] == metric, "value"] for metric in EXPERIMENT.metrics]
        yield RecipeRow(
            recipe.label, tuple((float(v.mean()), float(v.min()), float(v.max())) for v in values)
        )


def _finding(own: pd.DataFrame) -> str:
    from sdp_bench.bench.studies.two_moons.group import RECIPES

    own = own[own["metric"] == EXPERIMENT.metrics[0]]
    least = own.groupby("objective", observed=True)["value"].min()
    above: dict[bool, list[str]] = {True: [], False: []}
    for name, recipe in RECIPES.items():
        if least.get(name, 0.0) > 0.5:
            above[recipe.propagated].append(recipe.how)
    told = {
        propagated: f"with {' and with '.join(names)}" if names else "with none of these nets"
        for propagated, names in above.items()
    }
    return (
        "A far point is more uncertain than a seen one more often than not, with every seed: after training "
        f"with propagation {told[True]}; after training as usual {told[False]}."
    )
