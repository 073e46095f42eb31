"""The section on uncertainty of nets on two moons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from ....bench.studies.two_moons import EXPERIMENT
from ....bench.studies.two_moons.recipes import RECIPES
from ...section import Context, Study
from ...statement import Answer, Convention, Effect, Evidence, Rule, finite
from ...style import labels
from ...style.names import RuleTraits


class TwoMoons(Study):
    name = "two-moons"
    title = "Two moons"
    order = 116
    experiments = (EXPERIMENT.name,)

    def content(self, measurements: pd.DataFrame, traits: RuleTraits) -> Context:  # noqa: ARG002
        """Return the template's variables.

        Rows have the label of a recipe, and the mean, smallest and largest value over seeds of each metric.
        """
        measurements = of_one_design(measurements)
        rows = []
        # Recipes whose nets are more uncertain at a far point more often than not, with every seed.
        with_propagation: list[str] = []
        without_propagation: list[str] = []
        for name, recipe in RECIPES.items():
            part = measurements[measurements["objective"] == name]
            if part.empty:
                continue
            columns = [part.loc[part["metric"] == metric, "value"] for metric in EXPERIMENT.metrics]
            rows.append((recipe.label, [tuple(column.agg(["mean", "min", "max"])) for column in columns]))
            if columns[0].min() > 0.5:
                (with_propagation if recipe.propagated else without_propagation).append(recipe.how)
        finding = (
            "A far point is more uncertain than a seen one more often than not, with every seed: after "
            f"training with propagation {_recipes_in_words(with_propagation)}; after training as usual "
            f"{_recipes_in_words(without_propagation)}."
        )
        recipes = measurements.loc[measurements["objective"] == "pairwise", "recipe"]
        recipe_of = str((recipes if len(recipes) else measurements["recipe"]).iloc[0])
        return {
            "rows": rows,
            "finding": finding,
            "seeds": int(measurements["seed"].nunique()),
            "recipe": recipe_of,
        }


def _recipes_in_words(names: Sequence[str]) -> str:
    return f"with {' and with '.join(names)}" if names else "with none of these nets"


def of_one_design(measurements: pd.DataFrame) -> pd.DataFrame:
    """Measurements of each objective with the design that has most seeds; training times differ."""
    seeds = measurements.groupby(["objective", "recipe"], observed=True)["seed"].nunique()
    kept = {recipe for _, recipe in seeds.groupby("objective", observed=True).idxmax()}
    return measurements[measurements["recipe"].isin(kept)]


def _regularised(evidence: Evidence) -> Answer | None:
    """Far points are more uncertain than seen ones after training with propagation, for each recipe."""
    measurements = evidence.of(EXPERIMENT.name)
    if measurements.empty:
        return None
    measurements = of_one_design(measurements[measurements["metric"] == EXPERIMENT.metrics[0]])
    chances = {
        recipe.how: measurements["value"][measurements["objective"] == name]
        for name, recipe in RECIPES.items()
        if recipe.propagated
    }
    effects: dict[Convention, list[Effect]] = {
        (how,): [Effect("chance that a far point is more uncertain", finite(values), 0.5)]
        for how, values in chances.items()
    }
    seeds = labels.plural(int(measurements["seed"].nunique()), "seed")
    return Answer.of(effects, "seed", f"{seeds}; the paper: one picture", "#two-moons")


RULES: Mapping[str, Rule] = {"regularize": _regularised}
