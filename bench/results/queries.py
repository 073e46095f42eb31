"""Questions to stored results: runs, measurements as a frame, failures, nets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdp_ref.rules import Traits

from ..errors import UserError
from . import schema
from .record import Run, StoredNet
from .tables import Tables, filled, texts, to_rows

_FRAME = (
    *("experiment", "network", "activation", "depth", "net", "seed", "input", "noise", "sigma", "dataset"),
    *("objective", "rule", "rule_label", "sampling", "marginal", "reference", "metric_spec", "component"),
    *("value", "floor", "floor95", "stderr", "unit_of_measure", "seconds", "accuracy", "recipe", "samples"),
    *("unit", "fingerprint", "run", "precision", "metric"),
)
_OF_UNITS = (
    *("network", "activation", "depth", "net", "seed", "input", "noise", "sigma", "dataset", "objective"),
    *("accuracy", "recipe", "samples"),
)
_SUBJECT = ("net", "input", "noise", "sigma", "dataset", "objective", "seed", "recipe")
"""Columns of a unit that say what is measured, and not how."""

_WORDS_OF_FAILURES = ("rule", "metric", "error")

_Ages = NDArray[np.unsignedinteger[Any]]


class Queries(ABC):
    """Results in a file or an export; `path` is for messages."""

    path: Path
    _parsed: tuple[pd.DataFrame, dict[int, Run]] | None = None

    @abstractmethod
    def table(self, name: str) -> pd.DataFrame:
        """Return a table of the schema, with rows in the order of their keys.

        Raises RunFailedError if its contents do not have their checksums.
        """

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return all tables."""
        return {name: self.table(name) for name in schema.TABLES}

    def runs(self) -> list[int]:
        """Return the numbers of all runs, the oldest first."""
        return sorted(self._runs())

    def run(self, number: int | None = None) -> Run:
        """Return a run, by default the newest; raises UserError if it does not exist."""
        runs = self._runs()
        if number is None and runs:
            number = max(runs)
        if number not in runs:
            raise UserError(f"no run in {self.path}" if number is None else f"no run {number} in {self.path}")
        return runs[number]

    def _runs(self) -> dict[int, Run]:
        table = self.table("runs")
        if self._parsed is None or self._parsed[0] is not table:
            self._parsed = table, {row["id"]: Run.from_row(row) for row in _dicts(table)}
        return self._parsed[1]

    def rules(self) -> dict[str, Traits]:
        """Return the traits of all rules by spec, in the order of reports."""
        rows = _dicts(self.table("rules").sort_values(["rank", "spec"]))
        return {
            row.pop("spec"): Traits(
                **row | {"marginal": bool(row["marginal"]), "reference": bool(row["reference"])}
            )
            for row in rows
        }

    def stored_nets(self) -> dict[str, StoredNet]:
        """Return all nets by digest, with their weights where these are stored."""
        return {row["digest"]: StoredNet.from_row(row) for row in _dicts(self.table("nets"))}

    def nets(self, *runs: Run) -> list[dict[str, Any]]:
        """Return the nets that some runs measured on, without weights."""
        members, units, nets = self.table("members"), self.table("units"), self.table("nets")
        keys = members["unit"][members["run"].isin([run.id for run in runs])].unique()
        own = nets[nets["digest"].isin(units["net"][units["key"].isin(keys)].unique())]
        names = ["network", "activation", "depth", "seed", "digest", "accuracy", "recipe_label", "source"]
        own = own[names].sort_values(["activation", "depth", "seed"], kind="stable")
        return _dicts(own.rename(columns={"recipe_label": "recipe"}))

    def failures(self, *runs: Run) -> pd.DataFrame:
        """Return what could not be measured of the units and rules of some runs, and was not measured since.

        The columns are `group`, `rule`, `metric`, `error` and `seconds`; a missing rule stands for all rules.
        """
        members, failures = self.table("members"), self.table("failures")
        chosen = np.zeros(len(failures), dtype=bool)
        for run in runs if len(failures) else ():
            rules = {rule for selection in run.experiments.values() for rule in selection.rules}
            of_units = failures["unit"].isin(members["unit"][members["run"] == run.id])
            chosen |= (of_units & (failures["rule"].isin(rules) | failures["rule"].isna())).to_numpy()
        own = failures[chosen]
        units = {row["key"]: row for row in _dicts(self._units(own["unit"].unique()))}
        words = {name: own[name].astype(object).where(own[name].notna(), None) for name in _WORDS_OF_FAILURES}
        groups = pd.Series([_group(units[unit]) for unit in own["unit"]], own.index, dtype=object)
        frame = own.assign(**words, group=groups)[["group", *_WORDS_OF_FAILURES, "seconds"]].drop_duplicates()
        return frame.sort_values(["group", "rule"], na_position="first", ignore_index=True)

    def find(self, prefix: str) -> list[dict[str, Any]]:
        """Return the measurements whose key (unit/rule/metric) has a prefix, with their unit and weights."""
        records = self.table("records")
        unit = prefix.partition("/")[0]
        records = records[records["unit"].cat.categories.str.startswith(unit)[records["unit"].cat.codes]]
        own = records[keys(records.rename(columns={"metric": "metric_spec"})).str.startswith(prefix)]
        chosen = ("net", "input", "noise", "sigma", "sampler", "samples", "dataset", "objective")
        units = self.table("units").rename(columns={"key": "unit"})[["unit", *chosen]]
        nets = self.table("nets").rename(columns={"digest": "net"})[["net", "weights"]]
        return _dicts(own.merge(units, on="unit", how="left").merge(nets, on="net", how="left"))

    def measured(self, units: Iterable[str]) -> set[tuple[str, str, str, str]]:
        """Return the stored measurements of some units: (unit, rule, metric, versions)."""
        records = self.table("records")
        own = records.loc[records["unit"].isin(list(units)), ["unit", "rule", "metric", "fingerprint"]]
        return set(own.drop_duplicates().astype(object).itertuples(index=False, name=None))

    def threads_of(self, key: str) -> int:
        """Return the BLAS threads that a measurement was made with; another number may round differently."""
        rows = self.find(key)
        return int(self.run(rows[0]["run"]).environment["blas threads"]) if rows else 1

    def without_idle_runs(self) -> Tables:
        """Return all tables without runs that were cut off before they measured anything.

        Units and nets of these runs alone are left out too.
        """
        tables = self.tables()
        runs, members, records, failures = (
            tables[name] for name in ("runs", "members", "records", "failures")
        )
        idle = runs.loc[runs["finished"].isna(), "id"]
        idle = idle[~idle.isin(records["run"].unique()) & ~idle.isin(failures["run"])]
        if idle.empty:
            return tables
        left = members[~members["run"].isin(idle)]
        used = {*left["unit"], *records["unit"].unique(), *failures["unit"]}
        gone = members["unit"][members["run"].isin(idle)]
        units = tables["units"][~(tables["units"]["key"].isin(gone) & ~tables["units"]["key"].isin(used))]
        lost = set(tables["units"]["net"].dropna()) - set(units["net"].dropna())
        nets = tables["nets"][~tables["nets"]["digest"].isin(lost)]
        return tables | {"runs": runs[~runs["id"].isin(idle)], "members": left, "units": units, "nets": nets}

    def _units(self, chosen: Iterable[str]) -> pd.DataFrame:
        """Units by key in order, with the columns of their nets."""
        units = self.table("units")
        units = units[units["key"].isin(list(chosen))].sort_values("key", ignore_index=True)
        nets = self.table("nets")
        nets = nets.set_index(nets["digest"].astype(object)).reindex(units["net"].astype(object))
        nets = nets.reset_index(drop=True)
        own = {name: nets[name] for name in ("network", "activation", "depth", "accuracy")}
        recipe = nets["recipe_label"].astype("str").fillna(units["design"].astype("str")).astype("category")
        return units.assign(**own, seed=nets["seed"].fillna(units["seed"]), recipe=recipe)

    def frame(self, *runs: Run) -> pd.DataFrame:
        """Return the measurements of the experiments of some runs, the oldest run first.

        There is one row for each measurement and experiment, in the order of experiment, depth, seed, sigma,
        input, rule, metric and component. What several runs ask for, perhaps with other settings, counts once
        in an experiment, as the newest of them has it. `component` is empty, and not missing, if a metric has
        one number. `recipe` is the training of the net or, without a net, the design of the unit.
        :func:`keys` makes the names of the measurements.
        """
        members = self.table("members")
        members = members[members["run"].isin([run.id for run in runs])]
        units = self._units(members["unit"].unique())
        records = self.table("records").rename(columns={"metric": "metric_spec"})
        here = records["unit"].array.categories.isin(units["key"])[records["unit"].array.codes]
        records = records[here].reset_index(drop=True)
        for name in records.select_dtypes("category"):
            records[name] = records[name].cat.remove_unused_categories()
        records["component"] = filled(records["component"])
        keys_of_units = pd.Index(units["key"].astype(object))
        at, members_at = (
            keys_of_units.get_indexer(column.array.categories)[column.array.codes]
            for column in (records["unit"], members["unit"])
        )
        newest: dict[str, _Ages] = {}  # by experiment, the last run that asks for each record, counted from 1
        for age, run in enumerate(runs, 1):
            for name, selection in run.experiments.items():
                ages = newest.setdefault(name, np.zeros(len(records), np.min_scalar_type(len(runs))))
                member = np.zeros(len(units), dtype=bool)
                own = (members["run"] == run.id) & (members["experiment"] == name)
                member[members_at[own.to_numpy()]] = True
                selected = member[at]
                for column, specs in (("metric_spec", selection.metrics), ("rule", selection.rules)):
                    codes = records[column].cat.codes
                    selected &= records[column].cat.categories.isin(specs)[codes]
                ages[selected] = age
        order = _order(units, records, at)
        subjects = _subjects(units, records, at)
        chosen: dict[str, NDArray[np.intp]] = {}
        for name, ages in newest.items():  # the records of the newest run that measured their subject
            latest = np.zeros(len(records), ages.dtype)  # by subject
            np.maximum.at(latest, subjects, ages)
            chosen[name] = order[((ages > 0) & (ages == latest[subjects]))[order]]
        rows = np.concatenate([*chosen.values(), np.empty(0, dtype=np.intp)])
        experiment = np.repeat(np.arange(len(chosen)), [len(own) for own in chosen.values()])
        rule, metric = records["rule"].array, records["metric_spec"].array
        rules = self.table("rules").set_index("spec").loc[list(rule.categories)]
        columns: dict[str, Any] = {"experiment": texts(experiment, list(chosen))}
        columns |= {name: units[name].array.take(at[rows]) for name in _OF_UNITS}
        columns["rule_label"] = rules["label"].astype("str").astype("category").array.take(rule.codes[rows])
        columns["sampling"] = rules["sampling"].array.take(rule.codes[rows])
        for name in ("marginal", "reference"):
            columns[name] = rules[name].to_numpy(bool)[rule.codes[rows]]
        columns["metric"] = _metrics(metric.categories).take(metric.codes[rows])
        columns |= {name: records[name].array.take(rows) for name in records}
        columns["run"] = records["run"].to_numpy(np.int64)[rows]
        return pd.DataFrame({name: columns.pop(name) for name in _FRAME}, copy=False)


def _dicts(frame: pd.DataFrame) -> list[dict[str, Any]]:
    names = [str(name) for name in frame]
    return [dict(zip(names, row, strict=True)) for row in to_rows(frame)]


def _group(unit: dict[str, Any]) -> str:
    """Name a unit: ``4-100-3 seed 0, input 1, sigma 0.1``, or ``yacht 6-64 seed 0``."""
    if unit["network"] is None:
        objective = f" {unit['objective']}" if unit["objective"] else ""
        return f"{unit['dataset']}{objective} seed {unit['seed']}"
    noise = "" if unit["noise"] in (None, "gaussian") else f", {unit['noise']}"
    return f"{unit['network']} seed {unit['seed']}, input {unit['input']}{noise}, sigma {unit['sigma']}"


def _order(units: pd.DataFrame, records: pd.DataFrame, at: NDArray[np.intp]) -> NDArray[np.intp]:
    """Order of records by depth, seed, sigma and input of their units, then rule, metric and component."""
    names = ("depth", "seed", "sigma", "input")  # missing ones first
    subject = np.array([units[name].to_numpy(float, na_value=-np.inf) for name in names])
    rank = np.unique(subject.T, axis=0, return_inverse=True)[1]
    inner = (records[name].cat.codes.to_numpy() for name in ("component", "metric_spec", "rule"))
    # The last key decides first; units with equal subject are ordered by their keys.
    return np.lexsort((at, *inner, rank[at]))


def _subjects(units: pd.DataFrame, records: pd.DataFrame, at: NDArray[np.intp]) -> NDArray[np.integer[Any]]:
    """Number of what each record measures, whatever the settings."""
    kinds = {name: records[name].cat.codes.to_numpy() for name in ("rule", "component")}
    metrics = records["metric_spec"].array
    kinds["metric"] = _metrics(metrics.categories).codes[metrics.codes]
    kinds["unit"] = units.groupby(list(_SUBJECT), dropna=False, observed=True).ngroup().to_numpy()[at]
    return pd.DataFrame(kinds).groupby(list(kinds)).ngroup().to_numpy()


def _metrics(specs: Iterable[str]) -> pd.Categorical:
    """Names of metrics from their specs."""
    codes, names = pd.factorize(np.array([spec.partition(":")[0] for spec in specs], dtype=object))
    return texts(codes, list(names))


def keys(frame: pd.DataFrame) -> pd.Series:
    """Return the keys of measurements, ``unit/rule/metric``, from :meth:`Queries.frame` or some of its rows.

    They are empty if the frame has no units.
    """
    if "unit" not in frame:
        return pd.Series("", index=frame.index, dtype=object)
    parts = (frame[name].astype(object) for name in ("unit", "rule", "metric_spec"))
    return pd.Series(["/".join(part) for part in zip(*parts, strict=True)], frame.index, dtype=object)
