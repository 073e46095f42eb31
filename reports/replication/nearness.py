"""Conventions that the paper leaves open, by distance of their results from the printed numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
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
_CELL = ["sigma", "rule", "component"]


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
        def shown(size: float) -> str:
            return labels.number(size, 3) if self.kind == "1-tv" else labels.number(math.exp(size))

        factor = "" if self.kind == "1-tv" else "× "
        interval = f" ({shown(self.low)} to {shown(self.high)})" if math.isfinite(self.high) else ""
        return f"{factor}{shown(self.size)}{interval}"


def nearness(frame: pd.DataFrame) -> dict[str, Any] | None:
    """Compare every convention with the paper, each kind of number in the cells that all conventions have.

    The result has `conventions`, closest first, `unreached` cells, farthest first, and the number of compared
    `cells` by kind. Return None if fewer than two conventions were measured. A convention is a training
    `recipe` and a `partition` of the outputs, on which only 1 - TV depends. Its `gaps` are by kind. Its
    `place` is the share of conventions that are closer to the paper (of recipes, for kinds without a
    partition), averaged over the kinds that were measured under every recipe.
    """
    means = _means(frame)
    gaps: dict[str, dict[tuple[str, str], Gap]] = {}
    unreached: list[dict[str, Any]] = []
    for kind, own in means.groupby("kind", sort=False) if len(means) else ():
        gaps[str(kind)], missed = _compared(str(kind), own)
        unreached += missed
    partitions = list(gaps.get("1-tv", ()))
    if len(partitions) < 2:
        return None
    recipes = {recipe for recipe, _ in partitions}
    everywhere = [kind for kind, own in gaps.items() if {recipe for recipe, _ in own} >= recipes]
    conventions: list[dict[str, Any]] = []
    for recipe, partition in partitions:
        of = {kind: own.get((recipe, partition)) or own.get((recipe, "")) for kind, own in gaps.items()}
        known = {kind: gap for kind, gap in of.items() if gap}
        closer = [np.mean([g.size < known[kind].size for g in gaps[kind].values()]) for kind in everywhere]
        one = {"recipe": recipe, "partition": partition, "gaps": known, "place": float(np.mean(closer))}
        conventions.append(one)
    cells = {kind: next(iter(own.values())).cells for kind, own in gaps.items() if own}
    return {
        "nets": KIND.label,
        "kinds": [kind for kind in KINDS if kind in cells],
        "conventions": sorted(conventions, key=lambda one: (one["place"], one["gaps"]["1-tv"].size)),
        "unreached": sorted(unreached, key=lambda cell: -cell["gap"]),
        "cells": cells,
    }


def _means(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over inputs of each net for printed quantities: columns of `_CELL`, recipe, partition."""
    own = frame[frame["experiment"].isin(SUITES) & (frame["depth"] == KIND.depth)]
    own = own[(own["activation"] == KIND.activation) & (own["noise"] == GAUSSIAN.family)]
    metrics = {spec: recorded_metric(spec) for spec in own["metric_spec"].unique()}
    # Any partition of the outputs is a reading of the paper's total variation.
    kinds = {spec: "1-tv" if metric.convention else metric.published for spec, metric in metrics.items()}
    partitions = {spec: metric.variant if metric.convention else "" for spec, metric in metrics.items()}
    specs = own["metric_spec"].astype(str)
    own = own.assign(kind=specs.map(kinds), partition=specs.map(partitions))
    own = own[own["kind"].isin(KINDS)]
    own = own.assign(value=own["value"].where(own["kind"] != "1-tv", 1 - own["value"]))
    own = own.drop_duplicates([*_CELL, "recipe", "kind", "partition", "net", "input"])
    own = own.astype(dict.fromkeys(("rule", "component", "recipe"), str))
    keys = ["kind", "recipe", "partition", *_CELL, "seed"]
    return own.groupby(keys, observed=True)["value"].mean().reset_index()


def _compared(kind: str, means: pd.DataFrame) -> tuple[dict[tuple[str, str], Gap], list[dict[str, Any]]]:
    """Gap of every convention in the printed cells that all of them have, and cells that none reaches.

    The distance of such a cell from the range of all conventions exceeds its printed spread. `gap` is the
    distance to the closest one, in the units of :class:`Gap`.
    """
    by = {
        (str(recipe), str(partition)): own.pivot(index="seed", columns=_CELL, values="value")
        for (recipe, partition), own in means.groupby(["recipe", "partition"], observed=True)
    }
    shared: list[Any] = sorted(set.intersection(*(set(own.columns) for own in by.values())))
    cells: dict[Any, Printed] = {
        cell: one for cell in shared if (one := printed(kind, KIND.activation, KIND.depth, *cell)) is not None
    }
    paper = np.array([one.mean for one in cells.values()])
    values = {key: own[list(cells)].dropna().to_numpy(float) for key, own in by.items()}
    values = {key: own for key, own in values.items() if own.size}
    if not values:
        return {}, []
    averages = np.stack([own.mean(0) for own in values.values()])
    unreached = []
    ends = zip(averages.min(0).tolist(), averages.max(0).tolist(), strict=True)
    for ((sigma, rule, component), one), (low, high) in zip(cells.items(), ends, strict=True):
        spread = one.spread if math.isfinite(one.spread) else 0.0
        if not low - spread <= one.mean <= high + spread:
            gap = min(abs(float(_scaled(kind, end) - _scaled(kind, one.mean))) for end in (low, high))
            where = {"kind": kind, "label": one.label, "sigma": sigma, "rule": rule, "component": component}
            here = labels.span((low, high))
            unreached.append(where | {"printed": one.mean, "here": here, "gap": gap})
    return {key: _gap(kind, own, paper) for key, own in values.items()}, unreached


def _gap(kind: str, values: NDArray[np.float64], paper: NDArray[np.float64]) -> Gap:
    """Gap of the means over nets (rows) of some cells (columns), with its interval over nets."""

    def size(means: NDArray[np.float64]) -> Any:
        return np.sqrt(np.mean((_scaled(kind, means) - _scaled(kind, paper)) ** 2, axis=-1))

    low = high = math.nan
    if len(values) > 2:
        drawn = np.random.default_rng(0).integers(len(values), size=(DRAWS, len(values)))
        with np.errstate(invalid="ignore"):  # between infinite ones
            low, high = np.quantile(size(values[drawn].mean(1)), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Gap(kind, float(size(values.mean(0))), float(low), float(high), *values.shape)


def _scaled(kind: str, value: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Shared mass as it is; logarithms of distances and ratios, infinite if not positive."""
    with np.errstate(divide="ignore"):
        return np.asarray(value if kind == "1-tv" else np.log(np.maximum(value, 0)))


_LOCATED = "dvia:means=regular"
_VERSIONS = {"published": PUBLISHED, "regular": REGULAR, "located": _LOCATED}
_COLUMNS = (
    *(("sdp", "sdp"), ("dvia", PUBLISHED), ("dvia", REGULAR), ("dvia", _LOCATED)),
    *(("marginal_sdp", "marginal_sdp"), ("marginal_moment_matching", "marginal_moment_matching")),
    *((f"monte_carlo:samples={k}", f"monte_carlo:samples={k}") for k in (5, 10, 100, 1000)),
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
    cells = (printed(kind, "relu", int(d), float(s), column, str(c)) for d, s, c in index)
    return pd.Series([cell.mean if cell else math.nan for cell in cells], index, dtype=float)


def table_28(frame: pd.DataFrame) -> dict[str, Any] | None:
    """Ratios of standard deviations that Table 28 prints for DVIA, next to those of both versions."""
    own = frame[(frame["experiment"] == "iris-std") & (frame["depth"] == _DEPTH)]
    means = _means_by_level(own, metric="std_ratio")
    if not {PUBLISHED, REGULAR} <= set(means):
        return None
    shown = means[[PUBLISHED, REGULAR]].dropna().set_axis(["published", "regular"], axis=1)
    shown["paper"] = _paper("std_ratio", PUBLISHED, shown.index)
    own = own[own["rule"] == REGULAR]
    nets = own["net"].nunique()
    inputs = len(own.drop_duplicates(["net", "input"])) // max(nets, 1)
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


def _deviation(measured: pd.Series, paper: pd.Series) -> float:
    difference = (measured - paper).dropna()
    return float(np.sqrt((difference**2).mean())) if len(difference) else math.nan


def nearer(frame: pd.DataFrame) -> dict[str, Any] | None:
    """Distance of the versions of DVIA from the paper's column, table by table.

    1 - TV uses the convention that is closest to the paper's column for SDP, which does not depend on DVIA.
    Deviations are root mean squares over the noise levels, of logarithms for W1.
    """
    shared = {}
    frame = _by_convention(frame)
    for name, metric in CONVENTIONS.items():
        if metric.published:
            suites = ("iris-tv", "iris-tv-deep")
            own = 1 - pd.concat([_means_by_level(frame, experiment=s, convention=name) for s in suites])
            if {"sdp", REGULAR, _LOCATED} <= set(own):
                own = own.dropna(subset=[REGULAR, _LOCATED])
                shared[name] = _deviation(own["sdp"], _paper(metric.published, "sdp", own.index)), own
    if not shared:
        return None
    convention, (_, masses) = min(shared.items(), key=lambda each: each[1][0])
    distances = _means_by_level(frame, experiment="iris-w1", metric="w1")
    rows: list[dict[str, Any]] = []
    kinds: list[tuple[str, str, pd.DataFrame, Callable[[Any], Any]]] = [
        ("1-tv", f"1 − TV, {convention}", masses, float),
        ("w1", "log W1, 2000 points", distances, np.log),
    ]
    for kind, title, means, scaled in kinds:
        if not {REGULAR, _LOCATED} <= set(means):
            continue
        for depth, own in means.dropna(subset=[REGULAR, _LOCATED]).groupby("depth"):
            paper = _paper(kind, PUBLISHED, own.index).map(scaled)
            deviations = {key: _deviation(own[rule].map(scaled), paper) for key, rule in _VERSIONS.items()}
            rows.append({"name": f"{title}, {labels.layers([float(str(depth))])}"} | deviations)
    return {
        "rows": rows,
        "nearer": sum(row["regular"] < row["located"] for row in rows),
        "convention": convention,
    }


def columns(frame: pd.DataFrame) -> dict[str, Any] | None:
    """Distance of each convention of total variation from Table 9, column by column."""
    own = _by_convention(frame[(frame["experiment"] == "iris-tv") & (frame["depth"] == _DEPTH)])
    conventions = [name for name, metric in CONVENTIONS.items() if metric.published]
    tables = [1 - _means_by_level(own, convention=name) for name in conventions]
    rows = []
    for column, rule in _COLUMNS:
        deviations = [
            _deviation(means[rule], _paper("1-tv", column, means.index)) if rule in means else math.nan
            for means in tables
        ]
        if not np.isnan(deviations).all():
            least = np.nanmin(deviations)
            rows.append({"column": column, "rule": rule, "deviations": deviations, "least": least})
    return {"conventions": conventions, "rows": rows} if rows else None
