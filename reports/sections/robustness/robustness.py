"""Robustness: accuracies under noise and attacks, by objective and scale, and the best scales."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from sdp_bench.bench.studies.robustness import EXPERIMENT, METHODS, METRICS, NOISE, RADII
from sdp_bench.reports.sections.robustness.figures import figures
from sdp_bench.reports.sections.robustness.row import ScaleRow
from sdp_bench.reports.sections.robustness.words import OBJECTIVES, SETS, finding, hidden
from sdp_bench.reports.style.figure import Figure

Accuracies = pd.DataFrame
"""Per cent: rows by objective and scale (0 if it has none), columns by method, metric and strength."""


@dataclass(frozen=True)
class SetOfImages:
    """One set of images.

    `radius` is that of the larger ball. `best` has, for each objective, the scale with the highest accuracy
    by the paper's count; `rows` has all scales.
    """

    title: str
    radius: str
    best: tuple[ScaleRow, ...]
    rows: tuple[ScaleRow, ...]
    finding: str
    figures: tuple[Figure, ...]
    recipe: str


@dataclass(frozen=True)
class Robust:
    """Content of the section."""

    sets: tuple[SetOfImages, ...]
    noise: tuple[float, ...] = NOISE


def accuracies(own: pd.DataFrame, how: Literal["mean", "std"] = "mean") -> Accuracies:
    scaled = own.assign(scale=own["sigma"].astype(float).fillna(0.0))
    columns = ["rule", "metric", "component"]
    return 100 * scaled.pivot_table("value", ["objective", "scale"], columns, aggfunc=how, observed=True)


def attacked(objective: str) -> str:
    """Attack by gradients of the training loss."""
    return "pgd_ce" if objective == "softmax" else "pgd_own"


def robustness(frame: pd.DataFrame) -> Robust | None:
    """Content of the section, from measurements of all experiments; None if it was not run."""
    own = frame[(frame["experiment"] == EXPERIMENT.name) & frame["rule"].isin(METHODS)]
    if own.empty:
        return None
    there = own["dataset"].unique()
    return Robust(tuple(_set_of(name, own[own["dataset"] == name]) for name in RADII if name in there))


def _set_of(name: str, own: pd.DataFrame) -> SetOfImages:
    table = accuracies(own)
    runs = own.assign(scale=own["sigma"].astype(float).fillna(0.0))
    counts = runs.groupby(["objective", "scale"], observed=True)["seed"].nunique()
    radius = f"{RADII[name][-1]}/255"
    rows = tuple(
        _row(table, objective, float(scale), radius, int(counts[objective, scale]))
        for objective in OBJECTIVES
        if objective in table.index.get_level_values(0)
        for scale in table.loc[objective].index
    )
    best = tuple(
        max((row for row in rows if row.objective == title), key=_preference)
        for title in dict.fromkeys(row.objective for row in rows)
    )
    recipe = str(
        own.sort_values("sigma", na_position="first")["recipe"].iloc[0]
    )  # that of softmax, if measured
    return SetOfImages(
        SETS[name],
        radius,
        best,
        rows,
        f"{finding(SETS[name], best, radius)} {hidden(rows)}".strip(),
        tuple(figures(name, table, accuracies(own, "std"))),
        recipe,
    )


def _preference(row: ScaleRow) -> tuple[float, float]:
    """The paper's count first, then accuracy; missing values come last."""
    return tuple(-1.0 if math.isnan(each) else each for each in (row.required, row.clean))  # type: ignore[return-value]


def _row(table: Accuracies, objective: str, scale: float, radius: str, runs: int) -> ScaleRow:
    known = dict(table.xs((objective, scale)))

    def value(method: str, metric: str = METRICS[0], strength: str = "") -> float:
        return float(known.get((method, metric, strength), math.nan))

    attack = attacked(objective)
    return ScaleRow(
        OBJECTIVES[objective].label,
        scale,
        value("clean"),
        tuple(value("noise", strength=f"{sigma:g}") for sigma in NOISE),
        value(attack, METRICS[1], radius),
        value(attack, METRICS[2], radius),
        value(attack, strength=radius),
        value("pgd_ce", strength=radius),
        value("square", strength=radius),
        runs,
    )
