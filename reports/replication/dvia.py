"""The paper's numbers for DVIA next to our versions of the rule, and conventions column by column."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from sdp_bench.bench.metrics import recorded_metric
from sdp_bench.bench.noise import GAUSSIAN
from sdp_bench.reports.paper.printed import printed
from sdp_bench.reports.replication.claims import CONVENTIONS
from sdp_bench.reports.replication.statement import PUBLISHED, REGULAR
from sdp_bench.reports.style import labels
from sdp_bench.reports.tables.frame import by_kind

_LOCATED = "dvia:means=regular"
_VERSIONS = {"published": PUBLISHED, "regular": REGULAR, "located": _LOCATED}
_COLUMNS = (
    *(("sdp", "sdp"), ("dvia", PUBLISHED), ("dvia", REGULAR), ("dvia", _LOCATED)),
    *(("marginal_sdp", "marginal_sdp"), ("marginal_moment_matching", "marginal_moment_matching")),
    *((f"monte_carlo:samples={k}", f"monte_carlo:samples={k}") for k in (5, 10, 100, 1000)),
)
"""Columns of the paper's tables, and the rules that are compared with them."""
_DEPTH = 4


def _means(frame: pd.DataFrame, experiment: str, **where: object) -> pd.DataFrame:
    """Mean values of an experiment on ReLU nets, by depth, sigma, component (rows) and rule (columns)."""
    own = frame[(frame["experiment"] == experiment) & (frame["noise"] == GAUSSIAN.family)]
    own = own[own["activation"] == "relu"]
    for column, value in where.items():
        own = own[own[column] == value]
    return own.pivot_table("value", ["depth", "sigma", "component"], "rule", aggfunc="mean", observed=True)


def _paper(kind: str, column: str, index: pd.Index[Any]) -> pd.Series:
    """Printed numbers of a column; NaN if the paper has none."""
    cells = (printed(kind, "relu", int(d), float(s), column, str(c)) for d, s, c in index)
    return pd.Series([cell.mean if cell else math.nan for cell in cells], index, dtype=float)


def table_28(frame: pd.DataFrame) -> dict[str, Any] | None:
    """Ratios of standard deviations that Table 28 prints for DVIA, next to those of both versions."""
    means = _means(frame, "iris-std", metric="std_ratio", depth=_DEPTH)
    if not {PUBLISHED, REGULAR} <= set(means):
        return None
    shown = means[[PUBLISHED, REGULAR]].dropna().set_axis(["published", "regular"], axis=1)
    shown["paper"] = _paper("std_ratio", PUBLISHED, shown.index)
    own = frame[(frame["experiment"] == "iris-std") & (frame["depth"] == _DEPTH) & (frame["rule"] == REGULAR)]
    nets = own["net"].nunique()
    inputs = len(own.drop_duplicates(["net", "input"])) // max(nets, 1)
    relative = (shown[["published", "regular"]].div(shown["paper"], axis=0) - 1).abs().median()
    return {
        "rows": shown.reset_index().to_dict("records"),
        "design": f"{nets} nets × {inputs} inputs",
        "deviation": relative.to_dict(),
    }


def _convention(spec: str) -> str:
    return recorded_metric(spec).convention


def _deviation(measured: pd.Series, paper: pd.Series) -> float:
    difference = (measured - paper).dropna()
    return float(np.sqrt((difference**2).mean())) if len(difference) else math.nan


def nearer(frame: pd.DataFrame) -> dict[str, Any] | None:
    """Distance of the versions of DVIA from the paper's column, table by table.

    1 - TV uses the convention that is closest to the paper's column for SDP, which does not depend on DVIA.
    Deviations are root mean squares over the noise levels, of logarithms for W1.
    """
    shared = {}
    frame = frame.assign(convention=by_kind(frame["metric_spec"], _convention))
    for name, metric in CONVENTIONS.items():
        if metric.published:
            own = 1 - pd.concat([_means(frame, one, convention=name) for one in ("iris-tv", "iris-tv-deep")])
            if {"sdp", REGULAR, _LOCATED} <= set(own):
                own = own.dropna(subset=[REGULAR, _LOCATED])
                shared[name] = _deviation(own["sdp"], _paper(metric.published, "sdp", own.index)), own
    if not shared:
        return None
    convention, (_, masses) = min(shared.items(), key=lambda each: each[1][0])
    distances = _means(frame, "iris-w1", metric="w1")
    rows: list[dict[str, Any]] = []
    kinds: list[tuple[str, str, pd.DataFrame, Callable[[Any], Any]]] = [
        ("1-tv", f"1 − TV, {convention}", masses, float),
        ("w1", "log W1, 2000 points", distances, np.log),
    ]
    for kind, title, means, scaled in kinds:
        if not {REGULAR, _LOCATED} <= set(means):
            continue
        known = means.dropna(subset=[REGULAR, _LOCATED])
        for depth in sorted(set(known.index.get_level_values("depth"))):
            own = known[known.index.get_level_values("depth") == depth]
            paper = _paper(kind, PUBLISHED, own.index).map(scaled)
            deviations = {key: _deviation(own[rule].map(scaled), paper) for key, rule in _VERSIONS.items()}
            rows.append({"name": f"{title}, {labels.layers([depth])}"} | deviations)
    return {
        "rows": rows,
        "nearer": sum(row["regular"] < row["located"] for row in rows),
        "convention": convention,
    }


def columns(frame: pd.DataFrame) -> dict[str, Any] | None:
    """Distance of each convention of total variation from Table 9, column by column."""
    own = frame[(frame["experiment"] == "iris-tv") & (frame["depth"] == _DEPTH)]
    own = own.assign(convention=by_kind(own["metric_spec"], _convention))
    conventions = [name for name, metric in CONVENTIONS.items() if metric.published]
    rows = []
    for column, rule in _COLUMNS:
        deviations = []
        for name in conventions:
            means = 1 - _means(own, "iris-tv", convention=name)
            if rule not in means:
                deviations.append(math.nan)
                continue
            deviations.append(_deviation(means[rule], _paper("1-tv", column, means.index)))
        known = [value for value in deviations if not math.isnan(value)]
        if known:
            rows.append({"column": column, "rule": rule, "deviations": deviations, "least": min(known)})
    return {"conventions": conventions, "rows": rows} if rows else None
