"""Plans joined with measurements: what runs requested and found, as reports and users read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdp_ref.rules import Traits

from .columns import (
    ASKED,
    CELL,
    FAILED,
    MEASURED,
    SUBJECT,
    UNDEFINED,
    UNSUPPORTED,
    filled,
    keys,
    metric_names,
    records,
    texts,
    without_unused,
)
from .folder import LeftOut, Run, Stored, cells, read_plan, read_plans

_COLUMNS = (
    "experiment",
    "network",
    "activation",
    "depth",
    "net",
    "seed",
    "input",
    "noise",
    "sigma",
    "dataset",
    "objective",
    "rule",
    "rule_label",
    "sampling",
    "marginal",
    "reference",
    "metric_spec",
    "component",
    "value",
    "floor",
    "floor95",
    "stderr",
    "unit_of_measure",
    "seconds",
    "accuracy",
    "recipe",
    "samples",
    "unit",
    "fingerprint",
    "run",
    "precision",
    "metric",
)
_MEASURED = ("net", "input", "noise", "sigma", "dataset", "objective", "seed", "recipe")
"""Columns of a unit that say what is measured, and not how."""


def joined_measurements(stored: Stored, runs: Sequence[Run]) -> pd.DataFrame:
    """Return the measurements of the experiments of some runs, the oldest run first.

    There is one row for each measurement and experiment, in the order of experiment, depth, seed, sigma,
    input, rule, metric and component. What several runs request, perhaps with other settings, counts once in
    an experiment, as the newest of them has it. `component` is empty, and not missing, if a metric has one
    number.
    """
    measured = stored.measurements
    is_measured = (measured["status"] == MEASURED).to_numpy()
    if not is_measured.all():  # a copy of all committed results takes half a second
        measured = measured[is_measured].reset_index(drop=True)
    measured = measured.assign(component=filled(measured["component"]))
    order = _order(measured)
    requests = _requests(measured, runs)
    rows = pd.DataFrame({"cell": cells(measured)[order], "row": order}).merge(requests, on="cell")
    rows["subject"] = _subjects(measured)[rows["row"]]
    rows = rows[_is_latest(rows)].sort_values("experiment", kind="stable")
    chosen = rows["row"].to_numpy()
    names = [name for run in runs for name in run.experiments]
    columns: dict[str, Any] = {
        "experiment": texts(rows["experiment"].to_numpy(), list(dict.fromkeys(names))),
        "metric": metric_names(measured["metric_spec"].cat.categories).take(
            measured["metric_spec"].cat.codes.to_numpy()[chosen]
        ),
    }
    for name in _COLUMNS:
        if name not in columns:
            columns[name] = measured[name].array.take(chosen)
    frame = pd.DataFrame({name: columns[name] for name in _COLUMNS}, copy=False)
    for name in [str(name) for name in frame.select_dtypes("category")]:
        frame[name] = without_unused(frame[name].array)
    return frame


def _is_latest(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which rows are of the last run that requests their subject in their experiment."""
    pair, distinct = pd.factorize(rows["subject"] * (rows["experiment"].max() + 1) + rows["experiment"])
    age = rows["age"].to_numpy()
    latest = np.zeros(len(distinct), age.dtype)
    np.maximum.at(latest, pair, age)
    return age == latest[pair]


def _requests(measured: pd.DataFrame, runs: Sequence[Run]) -> pd.DataFrame:
    """Return the measured cells that runs request.

    There is a row for each experiment and cell, with the last run that requests it, counted from 1. Cells are
    numbers as of :func:`cells`; experiments are numbered in the order of the runs.
    """
    plan = read_plans(runs, ["experiment", *CELL])
    cell = np.zeros(len(plan), dtype=np.int64)
    is_measured = np.ones(len(plan), dtype=bool)
    for name in CELL:
        known = measured[name].cat.categories
        code = known.get_indexer(plan[name].cat.categories)[plan[name].cat.codes]
        is_measured &= code >= 0
        cell = cell * (len(known) + 1) + code
    names = pd.Index(dict.fromkeys(name for run in runs for name in run.experiments))
    experiment = names.get_indexer(plan["experiment"].cat.categories)[plan["experiment"].cat.codes]
    requests = pd.DataFrame({"cell": cell, "experiment": experiment, "age": plan["age"]})[is_measured]
    # One number for cell and experiment, since pandas takes longer for two columns.
    pair = requests["cell"] * len(names) + requests["experiment"]
    return requests[~pair.duplicated(keep="last").to_numpy()]


def _order(measured: pd.DataFrame) -> NDArray[np.intp]:
    """Order measurements by depth, seed, sigma and input of their units, then rule, metric and component."""
    units = measured.drop_duplicates("unit")
    names = ("depth", "seed", "sigma", "input")  # missing ones first
    setting = np.array([units[name].to_numpy(float, na_value=-np.inf) for name in names])
    rank = np.unique(setting.T, axis=0, return_inverse=True)[1]
    rank = _of_units(measured, units, rank)
    inner = [measured[name].cat.codes.to_numpy() for name in ("component", "metric_spec", "rule")]
    # The last key decides first; units with equal setting are ordered by their keys.
    return np.lexsort((measured["unit"].cat.codes.to_numpy(), *inner, rank))


def _subjects(measured: pd.DataFrame) -> NDArray[np.int64]:
    """Number what each row measures, whatever the settings."""
    units = measured.drop_duplicates("unit")
    subject = units.groupby([*_MEASURED], dropna=False, observed=True).ngroup().to_numpy()
    metrics = metric_names(measured["metric_spec"].cat.categories)
    number = _of_units(measured, units, subject).astype(np.int64)
    for codes, count in (
        (measured["rule"].cat.codes, len(measured["rule"].cat.categories)),
        (metrics.codes[measured["metric_spec"].cat.codes], len(metrics.categories)),
        (measured["component"].cat.codes, len(measured["component"].cat.categories)),
    ):
        number = number * count + np.asarray(codes)
    return number


def _of_units(measured: pd.DataFrame, units: pd.DataFrame, values: NDArray[Any]) -> NDArray[Any]:
    """Return values of units for each row of measurements."""
    by_code = np.zeros(len(units["unit"].cat.categories), dtype=values.dtype)
    by_code[units["unit"].cat.codes] = values
    return by_code[measured["unit"].cat.codes]


def rules(stored: Stored) -> dict[str, Traits]:
    """Return the traits of all rules by spec, as the newest run has them, in the order of reports."""
    names = ["rule", "rule_label", "colour", "sampling", "marginal", "reference", "rank"]
    measured = stored.measurements[[*names, "run"]].drop_duplicates([*names, "run"])
    parts = [measured.astype(object)]
    if stored.runs:  # a run that finds everything measured has its traits in its plan only
        newest = stored.run()
        parts.append(read_plan(newest, names).drop_duplicates().astype(object).assign(run=newest.id))
    rows = pd.concat(parts).sort_values("run", kind="stable").drop_duplicates("rule", keep="last")
    rows = rows.sort_values(["rank", "rule"])
    return {
        row["rule"]: Traits(
            label=row["rule_label"],
            colour=row["colour"],
            sampling=row["sampling"],
            marginal=row["marginal"],
            reference=row["reference"],
            rank=row["rank"],
        )
        for row in records(rows)
    }


def nets(stored: Stored, runs: Sequence[Run]) -> pd.DataFrame:
    """Return the nets that some runs measured on, a row for each net."""
    names = ["network", "activation", "depth", "seed", "net", "accuracy", "recipe", "net_source"]
    digests = read_plans(runs, ["net"])["net"].dropna().unique()
    rows = stored.measurements.loc[stored.measurements["net"].isin(digests), names]
    rows = rows.drop_duplicates("net").sort_values(["activation", "depth", "seed"], kind="stable")
    return rows.rename(columns={"net": "digest", "net_source": "source"}).reset_index(drop=True)


def find(stored: Stored, prefix: str) -> pd.DataFrame:
    """Return the measurements with a prefix of their key, unit/rule/metric."""
    measured = stored.measurements
    unit = prefix.partition("/")[0]
    column = measured["unit"].cat
    rows = measured[column.categories.str.startswith(unit)[column.codes] & (measured["status"] == MEASURED)]
    return rows[keys(rows).str.startswith(prefix)]


def unsupported(stored: Stored, runs: Sequence[Run]) -> list[LeftOut]:
    """Return the rules that do not support a net or noise of some runs, with the reasons."""
    rows = _of_runs(stored, runs, UNSUPPORTED).drop_duplicates(["rule", "activation", "reason"])
    return [LeftOut(row["rule"], row["activation"], row["reason"]) for row in records(rows)]


def failures(stored: Stored, runs: Sequence[Run]) -> pd.DataFrame:
    """Return what failed or is undefined in some runs, and was not measured since.

    The columns are `group`, `rule`, `metric`, `error`, `seconds` and `status`. A missing metric stands for
    all metrics of a rule.
    """
    rows = _of_runs(stored, runs, FAILED, UNDEFINED)
    rows = rows[rows["reason"].fillna("") != ""]
    columns = ["group", "rule", "metric", "error", "seconds", "status"]
    if rows.empty:
        return pd.DataFrame(columns=columns)
    known = stored.measurements.drop_duplicates(CELL)
    counts = known.groupby(["unit", "rule"], observed=True).size().rename("requested").reset_index()
    together = rows.groupby(["unit", "rule", "reason"])["metric_spec"].transform("size").rename("missing")
    rows = rows.assign(missing=together).merge(counts, on=["unit", "rule"], how="left")
    is_whole = (rows["missing"] == rows["requested"]) & (rows["status"] == FAILED)
    rows["metric"] = rows["metric_spec"].where(~is_whole, None)
    rows["group"] = [_name_of(row) for row in records(rows)]
    frame = rows.rename(columns={"reason": "error"})[columns]
    frame = frame.drop_duplicates(["group", "rule", "metric", "error"])
    return frame.sort_values(["group", "rule"], ignore_index=True)


def _of_runs(stored: Stored, runs: Sequence[Run], *statuses: str) -> pd.DataFrame:
    """Return measurements with some statuses that runs request, once for each cell."""
    rows = stored.measurements
    rows = rows[rows["status"].isin(statuses)].drop_duplicates(CELL)
    if rows.empty or not runs:
        return rows.head(0)
    requested = pd.concat([read_plan(run, CELL).astype(object) for run in runs]).drop_duplicates()
    plain = rows.astype({name: object for name in (*SUBJECT, *ASKED, "reason", "status") if name in rows})
    return plain.merge(requested, on=CELL)


def _name_of(unit: Mapping[str, Any]) -> str:
    """Name a unit: ``4-100-3 seed 0, input 1, sigma 0.1``, or ``yacht seed 0``."""
    if unit["net"] is None:
        objective = "" if unit["objective"] is None else f" {unit['objective']}"
        return f"{unit['dataset']}{objective} seed {unit['seed']}"
    noise = "" if unit["noise"] == "gaussian" else f", {unit['noise']}"
    return f"{unit['network']} seed {unit['seed']}, input {unit['input']}{noise}, sigma {unit['sigma']}"
