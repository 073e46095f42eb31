"""Plans joined with measurements: what runs asked for and found, as reports and users read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdp_ref.rules import Traits

from .columns import ASKED, CELL, FAILED, MEASURED, SUBJECT, UNDEFINED, UNSUPPORTED, filled, keys, metric_names, texts
from .folder import LeftOut, Run, Stored, cells, plan_of

_COLUMNS = (
    *("experiment", "network", "activation", "depth", "net", "seed", "input", "noise", "sigma", "dataset"),
    *("objective", "rule", "rule_label", "sampling", "marginal", "reference", "metric_spec", "component"),
    *("value", "floor", "floor95", "stderr", "unit_of_measure", "seconds", "accuracy", "recipe", "samples"),
    *("unit", "fingerprint", "run", "precision", "metric"),
)
_MEASURED = ("net", "input", "noise", "sigma", "dataset", "objective", "seed", "recipe")
"""Columns of a unit that say what is measured, and not how."""


def joined(stored: Stored, runs: Sequence[Run]) -> pd.DataFrame:
    """Return the measurements of the experiments of some runs, the oldest run first.

    There is one row for each measurement and experiment, in the order of experiment, depth, seed, sigma, input,
    rule, metric and component. What several runs ask for, perhaps with other settings, counts once in an
    experiment, as the newest of them has it. `component` is empty, and not missing, if a metric has one number.
    """
    measured = stored.measurements
    measured = measured[measured["status"] == MEASURED].reset_index(drop=True)
    measured["component"] = filled(measured["component"])
    asked = _asked(measured, runs)
    experiments = asked["experiment"].cat.categories
    cell = cells(measured)
    units = measured.drop_duplicates("unit")
    order, subjects = _order(measured, units, cell)
    rows = pd.DataFrame({"cell": cell[order], "row": order}).merge(asked, on="cell")
    # The measurements of the newest run that asks for their subject.
    subject = subjects[rows["row"]]
    of_experiment = rows["experiment"].cat.codes.to_numpy().astype(np.int64)
    question = of_experiment * (subjects.max(initial=0) + 1) + subject
    _, question = np.unique(question, return_inverse=True)
    latest = np.zeros(question.max(initial=-1) + 1, dtype=np.int64)
    np.maximum.at(latest, question, rows["age"].to_numpy())
    rows = rows[rows["age"].to_numpy() == latest[question]]
    rows = rows.iloc[np.argsort(rows["experiment"].cat.codes.to_numpy(), kind="stable")]
    chosen = rows["row"].to_numpy()
    columns: dict[str, Any] = {"experiment": texts(rows["experiment"].cat.codes.to_numpy(), [*experiments])}
    columns["metric"] = metric_names(measured["metric_spec"].cat.categories).take(
        measured["metric_spec"].cat.codes.to_numpy()[chosen]
    )
    columns |= {name: measured[name].array.take(chosen) for name in _COLUMNS if name not in columns}
    frame = pd.DataFrame({name: columns[name] for name in _COLUMNS}, copy=False)
    for name in frame.select_dtypes("category"):
        frame[name] = frame[name].cat.remove_unused_categories()
    return frame


def _asked(measured: pd.DataFrame, runs: Sequence[Run]) -> pd.DataFrame:
    """Return the cells of measurements that runs ask for, by experiment, with the last such run from 1."""
    parts = []
    names: list[str] = []
    for age, run in enumerate(runs, 1):
        plan = plan_of(run, ["experiment", *CELL])
        number = np.zeros(len(plan), dtype=np.int64)
        known = np.ones(len(plan), dtype=bool)
        for name in CELL:
            categories = measured[name].cat.categories
            codes = categories.get_indexer(plan[name].cat.categories)[plan[name].cat.codes]
            known &= codes >= 0
            number = number * (len(categories) + 1) + codes
        names += [name for name in plan["experiment"].cat.categories if name not in names]
        index = pd.Index(names).get_indexer(plan["experiment"].cat.categories)
        parts.append(
            pd.DataFrame({"cell": number, "experiment": index[plan["experiment"].cat.codes], "age": age})[known]
        )
    asked = pd.concat(parts) if parts else pd.DataFrame({"cell": [], "experiment": [], "age": []}, dtype=np.int64)
    asked = asked.drop_duplicates(["cell", "experiment"], keep="last")
    return asked.assign(experiment=pd.Categorical.from_codes(asked["experiment"], names))


def _order(
    measured: pd.DataFrame, units: pd.DataFrame, cell: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Return the order of measurements, and a number for what each of them measures, whatever the settings."""
    names = ("depth", "seed", "sigma", "input")  # missing ones first
    setting = np.array([units[name].to_numpy(float, na_value=-np.inf) for name in names])
    rank = np.unique(setting.T, axis=0, return_inverse=True)[1]
    subject = units.groupby([*_MEASURED], dropna=False, observed=True).ngroup().to_numpy()
    codes = units["unit"].cat.codes.to_numpy()
    by_unit = np.zeros((2, len(units["unit"].cat.categories)), dtype=np.int64)
    by_unit[:, codes] = rank, subject
    unit = measured["unit"].cat.codes.to_numpy()
    rule, metric, component = (
        measured[name].cat.codes.to_numpy().astype(np.int64) for name in ("rule", "metric_spec", "component")
    )
    # The last key decides first; units with equal setting are ordered by their keys.
    order = np.lexsort((unit, component, metric, rule, by_unit[0][unit]))
    names_of_metrics = metric_names(measured["metric_spec"].cat.categories).codes[metric]
    kinds = pd.DataFrame({"unit": by_unit[1][unit], "rule": rule, "metric": names_of_metrics, "part": component})
    return order, kinds.groupby([*kinds]).ngroup().to_numpy()


def rules(stored: Stored) -> dict[str, Traits]:
    """Return the traits of all rules by spec, as the newest run has them, in the order of reports."""
    names = ["rule", "rule_label", "colour", "sampling", "marginal", "reference", "rank"]
    measured = stored.measurements[[*names, "run"]].drop_duplicates([*names, "run"])
    # A run that found everything measured already has its traits in its plan only.
    planned = [plan_of(run, names).drop_duplicates().assign(run=run.id) for run in stored.runs.values()]
    rows = pd.concat([part.astype(object) for part in (measured, *planned)]).sort_values("run", kind="stable")
    rows = rows.drop_duplicates("rule", keep="last").sort_values(["rank", "rule"])
    rows = rows.where(rows.notna(), None)
    return {
        row.rule: Traits(row.rule_label, row.colour, row.sampling, row.marginal, row.reference, row.rank)
        for row in rows.itertuples(index=False)
    }


def nets(stored: Stored, runs: Sequence[Run]) -> pd.DataFrame:
    """Return the nets that some runs measured on: one row for each."""
    names = ["network", "activation", "depth", "seed", "net", "accuracy", "recipe", "net_source"]
    digests = {net for run in runs for net in plan_of(run, ["net"])["net"].cat.categories}
    rows = stored.measurements[stored.measurements["net"].isin(digests)][names]
    rows = rows.drop_duplicates("net").sort_values(["activation", "depth", "seed"], kind="stable")
    return rows.rename(columns={"net": "digest", "net_source": "source"}).reset_index(drop=True)


def find(stored: Stored, prefix: str) -> pd.DataFrame:
    """Return the measurements whose key (unit/rule/metric) has a prefix."""
    measured = stored.measurements
    unit = prefix.partition("/")[0]
    column = measured["unit"].cat
    rows = measured[column.categories.str.startswith(unit)[column.codes] & (measured["status"] == MEASURED)]
    return rows[keys(rows).str.startswith(prefix)]


def unsupported(stored: Stored, runs: Sequence[Run]) -> list[LeftOut]:
    """Return the rules that do not support a net or noise of some runs, with the reasons."""
    rows = _of_runs(stored, runs, UNSUPPORTED).drop_duplicates(["rule", "activation", "reason"])
    return [LeftOut(row.rule, row.activation, row.reason) for row in rows.itertuples(index=False)]


def failures(stored: Stored, runs: Sequence[Run]) -> pd.DataFrame:
    """Return what failed or is undefined in some runs, and was not measured since.

    The columns are `group`, `rule`, `metric`, `error`, `seconds` and `status`. A missing metric stands for all
    metrics of a rule, and a missing rule for all rules of a unit.
    """
    rows = _of_runs(stored, runs, FAILED, UNDEFINED)
    rows = rows[rows["reason"].fillna("") != ""]
    columns = ["group", "rule", "metric", "error", "seconds", "status"]
    if rows.empty:
        return pd.DataFrame(columns=columns)
    whole = stored.measurements[stored.measurements["unit"].isin(rows["unit"].unique())]
    whole = whole.astype({"unit": str, "rule": str}).drop_duplicates(CELL)
    metrics_of = whole.groupby(["unit", "rule"]).size()
    rules_of = whole.groupby("unit")["rule"].nunique()
    lines = []
    for (unit, reason), part in rows.groupby(["unit", "reason"], sort=False, observed=True):
        name = _name_of(part.iloc[0])
        entire = [rule for rule, own in part.groupby("rule", observed=True) if len(own) == metrics_of[unit, rule]]
        seconds, status = part["seconds"].max(), part["status"].iloc[0]
        if len(entire) == rules_of[unit] and status == FAILED and len(entire) > 1:
            lines.append((name, None, None, reason, seconds, status))
            continue
        for row in part.drop_duplicates(["rule", "metric_spec"]).itertuples(index=False):
            metric = None if row.rule in entire and status == FAILED else row.metric_spec
            lines.append((name, row.rule, metric, reason, row.seconds, status))
    frame = pd.DataFrame(lines, columns=columns).drop_duplicates(["group", "rule", "metric", "error"])
    return frame.sort_values(["group", "rule"], na_position="first", ignore_index=True)


def _of_runs(stored: Stored, runs: Sequence[Run], *statuses: str) -> pd.DataFrame:
    """Return measurements with some statuses that runs ask for, once for each cell."""
    rows = stored.measurements
    rows = rows[rows["status"].isin(statuses)].drop_duplicates(CELL)
    if rows.empty or not runs:
        return rows.head(0)
    asked = pd.concat([plan_of(run, CELL).astype(object) for run in runs]).drop_duplicates()
    plain = rows.astype({name: object for name in (*SUBJECT, *ASKED, "reason", "status") if name in rows})
    return plain.merge(asked, on=CELL)


def _name_of(unit: pd.Series) -> str:
    """Name a unit: ``4-100-3 seed 0, input 1, sigma 0.1``, or ``yacht seed 0``."""
    if unit["net"] is None or pd.isna(unit["net"]):
        objective = f" {unit['objective']}" if pd.notna(unit["objective"]) else ""
        return f"{unit['dataset']}{objective} seed {unit['seed']}"
    noise = "" if unit["noise"] == "gaussian" else f", {unit['noise']}"
    return f"{unit['network']} seed {unit['seed']}, input {unit['input']}{noise}, sigma {unit['sigma']}"
