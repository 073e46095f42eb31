"""Conventions that the paper leaves open, by distance of their results from the printed numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...bench.metrics import recorded_metric
from ...bench.noise import GAUSSIAN
from ..paper import Printed, printed
from ..statement import PUBLISHED, REGULAR
from ..style import labels
from ..style.names import NetKind
from ..tables.frame import by_kind
from . import claims
from .claims import CONVENTIONS

SUITES = (*claims.SUITES, "iris-claims-w1-recipes", "iris-sensitivity")
"""Experiments that vary what the paper leaves open."""
KIND = NetKind("relu", 4)
"""Nets that are measured under every recipe."""
KINDS = ("1-tv", "w1", "std_ratio")
"""Printed quantities: shared mass, Wasserstein distances, ratios of standard deviations."""
LEVEL = 0.95
DRAWS = 400
"""Resamples of nets for an interval; its ends are the 10th smallest and largest of them."""
_CELL = ["sigma", "rule", "component"]
_CellKey = tuple[float, str, str]  # as _CELL
Convention = tuple[str, str]
"""Recipe of training, and partition of the outputs (empty for kinds without one)."""


@dataclass(frozen=True)
class Gap:
    """Distance of measurements from the paper's numbers in the same cells.

    `size` is the root mean square over cells of the difference of the means over nets, for 1 - TV as it is
    and for other kinds in logarithms. `low` and `high` are its 95 % interval over nets (percentiles of 400
    resamples), NaN with fewer than three nets and infinite if resamples are infinitely far.
    """

    kind: str
    size: float
    low: float
    high: float
    nets: int
    cells: int

    @property
    def text(self) -> str:
        """The size with its interval, for kinds in logarithms as a factor."""

        def shown(size: float) -> str:
            return labels.number(size, 3) if self.kind == "1-tv" else labels.number(math.exp(size))

        text = shown(self.size) if self.kind == "1-tv" else f"× {shown(self.size)}"
        if math.isfinite(self.high):
            text += f" ({shown(self.low)} to {shown(self.high)})"
        return text


def nearness(frame: pd.DataFrame) -> dict[str, Any] | None:
    """Compare every convention with the paper, each kind of number in the cells that all conventions have.

    The result has `conventions`, closest first, `unreached` cells, farthest first, and the number of compared
    `cells` by kind. Return None if fewer than two conventions were measured. A convention is a training
    `recipe` and a `partition` of the outputs, on which only 1 - TV depends. Its `gaps` are by kind. Its
    `rank` is the share of conventions that are closer to the paper (of recipes, for kinds without a
    partition), averaged over the kinds that were measured under every recipe.
    """
    means = _means(frame)
    gaps: dict[str, dict[Convention, Gap]] = {}
    unreached: list[dict[str, Any]] = []
    if len(means):
        for kind, means_of_kind in means.groupby("kind", sort=False):
            values, cells = _shared_cells(str(kind), means_of_kind)
            paper = np.array([cell.mean for cell in cells.values()])
            gaps[str(kind)] = {key: _gap(str(kind), numbers, paper) for key, numbers in values.items()}
            unreached += _unreached(str(kind), values, cells)
    conventions = _conventions(gaps)
    if len(conventions) < 2:
        return None
    cell_counts = {}
    for kind, gaps_of_kind in gaps.items():
        if gaps_of_kind:
            cell_counts[kind] = next(iter(gaps_of_kind.values())).cells
    return {
        "nets": KIND.label,
        "kinds": [kind for kind in KINDS if kind in cell_counts],
        "conventions": sorted(conventions, key=lambda entry: (entry["rank"], entry["gaps"]["1-tv"].size)),
        "unreached": sorted(unreached, key=lambda cell: -cell["gap"]),
        "cells": cell_counts,
    }


def _conventions(gaps: Mapping[str, Mapping[Convention, Gap]]) -> list[dict[str, Any]]:
    """Conventions of 1 - TV with their gaps of each kind, and their rank."""
    partitions = list(gaps.get("1-tv", ()))
    recipes = {recipe for recipe, _ in partitions}
    kinds_of_all_recipes = [kind for kind in gaps if {recipe for recipe, _ in gaps[kind]} >= recipes]
    conventions = []
    for recipe, partition in partitions:
        known: dict[str, Gap] = {}
        for kind, gaps_of_kind in gaps.items():
            # Kinds without a partition have one gap per recipe.
            gap = gaps_of_kind.get((recipe, partition)) or gaps_of_kind.get((recipe, ""))
            if gap:
                known[kind] = gap
        shares = []
        for kind in kinds_of_all_recipes:
            sizes = np.array([gap.size for gap in gaps[kind].values()])
            shares.append(np.mean(sizes < known[kind].size))
        rank = float(np.mean(shares))
        conventions.append({"recipe": recipe, "partition": partition, "gaps": known, "rank": rank})
    return conventions


def _means(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over inputs of each net for printed quantities: columns of `_CELL`, recipe, partition."""
    rows = frame[frame["experiment"].isin(SUITES) & (frame["depth"] == KIND.depth)]
    rows = rows[(rows["activation"] == KIND.activation) & (rows["noise"] == GAUSSIAN.family)]
    metrics = {spec: recorded_metric(spec) for spec in rows["metric_spec"].unique()}
    # Any partition of the outputs is a reading of the paper's total variation.
    kinds = {spec: "1-tv" if metric.convention else metric.published for spec, metric in metrics.items()}
    partitions = {spec: metric.variant if metric.convention else "" for spec, metric in metrics.items()}
    specs = rows["metric_spec"].astype(str)
    rows = rows.assign(kind=specs.map(kinds), partition=specs.map(partitions))
    rows = rows[rows["kind"].isin(KINDS)]
    rows = rows.assign(value=rows["value"].where(rows["kind"] != "1-tv", 1 - rows["value"]))
    rows = rows.drop_duplicates([*_CELL, "recipe", "kind", "partition", "net", "input"])
    rows = rows.astype(dict.fromkeys(("rule", "component", "recipe"), str))
    keys = ["kind", "recipe", "partition", *_CELL, "seed"]
    return rows.groupby(keys, observed=True)["value"].mean().reset_index()


def _shared_cells(
    kind: str, means: pd.DataFrame
) -> tuple[dict[Convention, NDArray[np.float64]], dict[_CellKey, Printed]]:
    """Return the means of each convention, by net and cell, in the printed cells that all conventions have.

    Nets without all of these cells are left out, and conventions without nets.
    """
    tables: dict[Convention, pd.DataFrame] = {}
    for (recipe, partition), rows in means.groupby(["recipe", "partition"], observed=True):
        tables[str(recipe), str(partition)] = rows.pivot(index="seed", columns=_CELL, values="value")
    shared: set[Any] = set.intersection(*[set(table.columns) for table in tables.values()])
    cells: dict[_CellKey, Printed] = {}
    for key in sorted(shared):
        cell = printed(kind, KIND.activation, KIND.depth, *key)
        if cell is not None:
            cells[key] = cell
    values = {key: table[list(cells)].dropna().to_numpy(float) for key, table in tables.items()}
    return {key: numbers for key, numbers in values.items() if numbers.size}, cells


def _unreached(
    kind: str, values: Mapping[Convention, NDArray[np.float64]], cells: Mapping[_CellKey, Printed]
) -> list[dict[str, Any]]:
    """Return the cells with a printed number farther from the range of all conventions than its spread.

    `gap` is the distance to the closest convention, in the units of :class:`Gap`.
    """
    if not values:
        return []
    averages = np.stack([numbers.mean(0) for numbers in values.values()])
    lowest, highest = averages.min(0).tolist(), averages.max(0).tolist()
    unreached = []
    for ((sigma, rule, component), cell), low, high in zip(cells.items(), lowest, highest, strict=True):
        spread = cell.spread if math.isfinite(cell.spread) else 0.0
        if low - spread <= cell.mean <= high + spread:
            continue
        distance_to_low = abs(float(_scaled(kind, low) - _scaled(kind, cell.mean)))
        distance_to_high = abs(float(_scaled(kind, high) - _scaled(kind, cell.mean)))
        unreached.append(
            {
                "kind": kind,
                "label": cell.label,
                "sigma": sigma,
                "rule": rule,
                "component": component,
                "printed": cell.mean,
                "here": labels.span((low, high)),
                "gap": min(distance_to_low, distance_to_high),
            }
        )
    return unreached


def _gap(kind: str, values: NDArray[np.float64], paper: NDArray[np.float64]) -> Gap:
    """Gap of the means over nets (rows) of some cells (columns), with its interval over nets.

    Percentile bootstrap (Efron 1979). Two nets have one nontrivial resample and give no interval.
    """

    def size(means: NDArray[np.float64]) -> Any:
        return np.sqrt(np.mean((_scaled(kind, means) - _scaled(kind, paper)) ** 2, axis=-1))

    low = high = math.nan
    if len(values) > 2:
        drawn = np.random.default_rng(0).integers(len(values), size=(DRAWS, len(values)))
        sizes = size(values[drawn].mean(1))
        with np.errstate(invalid="ignore"):  # quantiles between infinite sizes are NaN
            low, high = np.quantile(sizes, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    nets, cells = values.shape
    return Gap(kind, float(size(values.mean(0))), float(low), float(high), nets, cells)


def _scaled(kind: str, value: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Shared mass as it is; logarithms of distances and ratios, infinite if not positive."""
    if kind == "1-tv":
        return np.asarray(value)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(value, 0)))


_LOCATED = "dvia:means=regular"
_VERSIONS = {"published": PUBLISHED, "regular": REGULAR, "located": _LOCATED}
_COLUMNS = (
    ("sdp", "sdp"),
    ("dvia", PUBLISHED),
    ("dvia", REGULAR),
    ("dvia", _LOCATED),
    ("marginal_sdp", "marginal_sdp"),
    ("marginal_moment_matching", "marginal_moment_matching"),
    ("monte_carlo:samples=5", "monte_carlo:samples=5"),
    ("monte_carlo:samples=10", "monte_carlo:samples=10"),
    ("monte_carlo:samples=100", "monte_carlo:samples=100"),
    ("monte_carlo:samples=1000", "monte_carlo:samples=1000"),
)
"""Columns of the paper's tables, and the rules that are compared with them."""
_DEPTH = 4


def _means_by_level(frame: pd.DataFrame, **where: object) -> pd.DataFrame:
    """Mean values on ReLU nets, by depth, sigma, component (rows) and rule (columns)."""
    for column, value in (where | {"noise": GAUSSIAN.family, "activation": "relu"}).items():
        frame = frame[frame[column] == value]
    return frame.pivot_table("value", ["depth", "sigma", "component"], "rule", aggfunc="mean", observed=True)


def _paper(kind: str, column: str, index: pd.Index[Any]) -> pd.Series:
    """Printed numbers of a column; NaN if the paper has none."""
    means = []
    for depth, sigma, component in index:
        cell = printed(kind, "relu", int(depth), float(sigma), column, str(component))
        means.append(cell.mean if cell else math.nan)
    return pd.Series(means, index, dtype=float)


def table_28(frame: pd.DataFrame) -> dict[str, Any] | None:
    """Ratios of standard deviations that Table 28 prints for DVIA, next to those of both versions."""
    rows = frame[(frame["experiment"] == "iris-std") & (frame["depth"] == _DEPTH)]
    means = _means_by_level(rows, metric="std_ratio")
    if not {PUBLISHED, REGULAR} <= set(means):
        return None
    shown = means[[PUBLISHED, REGULAR]].dropna().set_axis(["published", "regular"], axis=1)
    shown["paper"] = _paper("std_ratio", PUBLISHED, shown.index)
    regular = rows[rows["rule"] == REGULAR]
    nets = regular["net"].nunique()
    inputs = len(regular.drop_duplicates(["net", "input"])) // max(nets, 1)
    relative = (shown[["published", "regular"]].div(shown["paper"], axis=0) - 1).abs().median()
    return {
        "rows": shown.reset_index().to_dict("records"),
        "design": f"{nets} nets × {inputs} inputs",
        "deviation": relative.to_dict(),
    }


def _by_convention(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(
        convention=by_kind(frame["metric_spec"], lambda spec: recorded_metric(spec).convention)
    )


def _deviation(means: pd.Series, paper: pd.Series) -> float:
    """Root mean square of the differences."""
    difference = (means - paper).dropna()
    return float(np.sqrt((difference**2).mean())) if len(difference) else math.nan


def nearer(frame: pd.DataFrame) -> dict[str, Any] | None:
    """Distance of the versions of DVIA from the paper's column, table by table.

    1 - TV uses the convention that is closest to the paper's column for SDP, which does not depend on DVIA.
    Deviations are root mean squares over the noise levels, of logarithms for W1.
    """
    frame = _by_convention(frame)
    masses = _masses_by_convention(frame)
    if not masses:
        return None
    deviation_of_sdp = {
        name: _deviation(means["sdp"], _paper("1-tv", "sdp", means.index)) for name, means in masses.items()
    }
    convention = min(deviation_of_sdp, key=deviation_of_sdp.__getitem__)
    distances = _means_by_level(frame, experiment="iris-w1", metric="w1")
    rows = _rows_of_versions("1-tv", f"1 − TV, {convention}", masses[convention], float)
    if {REGULAR, _LOCATED} <= set(distances):
        rows += _rows_of_versions("w1", "log W1, 2000 points", distances, np.log)
    return {
        "rows": rows,
        "nearer": sum(row["regular"] < row["located"] for row in rows),
        "convention": convention,
    }


def _masses_by_convention(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Means of 1 - TV under each convention that was measured for SDP and for both versions of DVIA."""
    masses = {}
    for name, metric in CONVENTIONS.items():
        if not metric.published:
            continue
        variations = [
            _means_by_level(frame, experiment=experiment, convention=name)
            for experiment in ("iris-tv", "iris-tv-deep")
        ]
        means = 1 - pd.concat(variations)
        if {"sdp", REGULAR, _LOCATED} <= set(means):
            masses[name] = means.dropna(subset=[REGULAR, _LOCATED])
    return masses


def _rows_of_versions(
    kind: str, title: str, means: pd.DataFrame, scaled: Callable[[Any], Any]
) -> list[dict[str, Any]]:
    """Deviation of each version of DVIA from the paper's column, by depth."""
    rows = []
    for depth, table in means.dropna(subset=[REGULAR, _LOCATED]).groupby("depth"):
        paper = _paper(kind, PUBLISHED, table.index).map(scaled)
        row: dict[str, Any] = {"name": f"{title}, {labels.layers([float(str(depth))])}"}
        for version, rule in _VERSIONS.items():
            row[version] = _deviation(table[rule].map(scaled), paper)
        rows.append(row)
    return rows


def columns(frame: pd.DataFrame) -> dict[str, Any] | None:
    """Distance of each convention of total variation from Table 9, column by column."""
    measurements = _by_convention(frame[(frame["experiment"] == "iris-tv") & (frame["depth"] == _DEPTH)])
    conventions = [name for name, metric in CONVENTIONS.items() if metric.published]
    tables = [1 - _means_by_level(measurements, convention=name) for name in conventions]
    rows = []
    for column, rule in _COLUMNS:
        deviations = []
        for means in tables:
            deviation = math.nan
            if rule in means:
                deviation = _deviation(means[rule], _paper("1-tv", column, means.index))
            deviations.append(deviation)
        if not np.isnan(deviations).all():
            least = np.nanmin(deviations)
            rows.append({"column": column, "rule": rule, "deviations": deviations, "least": least})
    return {"conventions": conventions, "rows": rows} if rows else None
