"""Statements of the paper on uncertainty about seen and unseen data."""

from __future__ import annotations

from collections.abc import Mapping

from sdp_bench.bench.studies.two_moons import EXPERIMENT
from sdp_bench.bench.studies.two_moons.group import RECIPES
from sdp_bench.reports.replication.statement import Convention, Effect, Evidence, Rule, Trial, Tried, finite
from sdp_bench.reports.sections.two_moons import of_one_design
from sdp_bench.reports.style import labels


def _regularised(evidence: Evidence) -> Tried | None:
    """Far points are more uncertain than seen ones after training with propagation, for each recipe."""
    own = evidence.of(EXPERIMENT.name)
    if own.empty:  # the column of objectives may not exist
        return None
    own = of_one_design(own[own["metric"] == EXPERIMENT.metrics[0]])
    chances = {
        recipe.how: own["value"][own["objective"] == name]
        for name, recipe in RECIPES.items()
        if recipe.propagated
    }
    trials: dict[Convention, Trial] = {
        (how,): Trial((Effect("chance that a far point is more uncertain", finite(values), 0.5),), "seed")
        for how, values in chances.items()
        if len(values)
    }
    if not trials:
        return None
    seeds = labels.plural(int(own["seed"].nunique()), "seed")
    return Tried(trials, f"{seeds}; the paper: one picture", "#two-moons")


RULES: Mapping[str, Rule] = {"regularize": _regularised}
