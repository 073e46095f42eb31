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
from sdp_bench.reports.tables.frame import by_kind

_COVARIANCE = "dvia:means=regular_covariance"
_VERSIONS = {"published": PUBLISHED, "regular": REGULAR, "covariance": _COVARIANCE}
_COLUMNS = (
    *(("sdp", "sdp"), ("dvia", PUBLISHED), ("dvia", REGULAR), ("dvia", _COVARIANCE)),
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


def _deviation(measured: pd.Series, paper: pd.Series) -> float:
    difference = (measured - paper).dropna()
    return float(np.sqrt((difference**2).mean())) if len(difference) else math.nan


def locations(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Distance of the versions of DVIA from the paper in 1 - TV, by convention, and in log W1."""
    rows: list[tuple[str, pd.DataFrame, str, Callable[[Any], Any]]] = []
    for name, metric in CONVENTIONS.items():
        if metric.published:
            means = 1 - pd.concat(
                [_means(frame, one, metric_spec=metric.spec) for one in ("iris-tv", "iris-tv-deep")]
            )
            rows.append((f"1 − TV, {name}", means, metric.published, float))
    for name, title in (("iris-w1", "2000 points"), ("iris-w1-certified", "30 000 points")):
        metric_name = "w1" if name == "iris-w1" else "w1_certified"
        means = _means(frame, name, metric=metric_name)
        rows.append((f"log W1, {title}", means[means.index.isin([""], level="component")], "w1", np.log))
    found = []
    for title, means, kind, scaled in rows:
        if REGULAR not in means:
            continue
        paper = _paper(kind, PUBLISHED, means.index)
        found.append(
            {"name": title}
            | {
                key: _deviation(means[rule].map(scaled), paper.map(scaled)) if rule in means else math.nan
                for key, rule in _VERSIONS.items()
            }
        )
    return found


def columns(frame: pd.DataFrame) -> dict[str, Any] | None:
    """Distance of each convention of total variation from Table 9, column by column."""
    own = frame[(frame["experiment"] == "iris-tv") & (frame["depth"] == _DEPTH)]
    own = own.assign(convention=by_kind(own["metric_spec"], lambda spec: recorded_metric(spec).convention))
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
