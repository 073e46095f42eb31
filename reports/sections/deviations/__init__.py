"""The section on standard deviations: error factor and time of each rule, by noise level."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd

from ....bench.noise import GAUSSIAN
from ...results import Results
from ...section import Context, Section
from ...site import CHOICE
from ...statistics.costs import Costs
from ...statistics.ranking import Overall, metric_score, rank
from ...style import labels
from ...style.names import RuleTraits
from ..overview import families

METRIC = "std_ratio"


@dataclass(frozen=True)
class Deviation:
    """Error of a rule at one noise level, as a factor, with its 95 % interval in words.

    `is_best` marks the best rule and those tied with it, and `is_best_deterministic` the same among
    deterministic rules; neither is marked if all rules are tied.
    """

    factor: float
    interval: str
    is_best: bool
    is_best_deterministic: bool


@dataclass(frozen=True, eq=False)
class DeviationTable:
    """Errors of the standard deviations on one family of nets, by rule and noise level."""

    title: str
    sigmas: list[float]
    rules: list[str]
    cells: dict[tuple[str, float], Deviation]
    costs: Costs


def deviation_table(title: str, measurements: pd.DataFrame, traits: RuleTraits) -> DeviationTable | None:
    """Compare rules by the ratio of standard deviations; None without two rules that can be compared.

    The error factor of a rule is exp(mean |log ratio|). Kinds of nets have the same weight.
    """
    cells: dict[tuple[str, float], Deviation] = {}
    for sigma in measurements["sigma"].unique():
        rows = measurements[measurements["sigma"] == sigma]
        overall = Overall.from_measurements(rows, metric_score, traits)
        if overall is None:
            continue
        deterministic = [rule for rule in overall.rules if not traits.is_sampling(rule)]
        best = rank(overall, overall.rules).marked
        best_deterministic = rank(overall, deterministic).marked if deterministic else ()
        for rule in overall.rules:
            cells[rule, float(sigma)] = _deviation(overall, rule, best, best_deterministic)
    if not cells:
        return None
    rules = traits.in_order(rule for rule, _ in cells)
    sigmas = sorted({sigma for _, sigma in cells})
    return DeviationTable(title, sigmas, rules, cells, Costs.from_measurements(measurements, traits))


def _deviation(
    overall: Overall, rule: str, best: Collection[str], best_deterministic: Collection[str]
) -> Deviation:
    mean, half_width = overall.mean(rule), overall.half_width(rule)
    interval = ""
    if math.isfinite(mean) and math.isfinite(half_width):
        interval = " to ".join(shown(_factor(end)) for end in (mean - half_width, mean + half_width))
    return Deviation(_factor(mean), interval, rule in best, rule in best_deterministic)


def _factor(score: float) -> float:
    return math.exp(score) if score < math.log(1e6) else math.inf


def shown(factor: float) -> str:
    return labels.number(factor, 3 if factor < 10 else None)


class Deviations(Section):
    name = "deviations"
    title = "Standard deviations"
    page = CHOICE
    order = 21

    def build(self, results: Results) -> Context | None:
        frame = results.tabled
        chosen = frame[(frame["metric"] == METRIC) & (frame["noise"] == GAUSSIAN.family)]
        chosen = chosen.drop_duplicates(["net", "input", "noise", "sigma", "rule", "component"])
        named = [deviation_table(name, nets, results.traits) for name, nets in families(chosen)]
        tables = [table for table in named if table]
        return {"tables": tables, "styles": results.styles, "shown": shown} if tables else None
