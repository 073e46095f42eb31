"""What is read from a results file: runs, measurements as frames, and what is known already."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.results.record import LeftOut, Run, Selection, StoredNet, Verification
from sdp_ref.rules import Traits

_FRAME = """
SELECT m.experiment, n.network, n.activation, n.depth, u.net, COALESCE(n.seed, u.seed) AS seed, u.input,
       u.noise, u.sigma, u.dataset, u.objective, r.rule, t.label AS rule_label, t.sampling, t.marginal,
       t.reference, r.metric AS metric_spec, r.component, r.value, r.floor, r.floor95, r.stderr,
       r.unit_of_measure, r.seconds, n.accuracy, COALESCE(n.recipe_label, u.design) AS recipe, u.samples,
       r.unit, r.fingerprint, r.run, r.precision
FROM members m JOIN units u ON u.key = m.unit LEFT JOIN nets n ON n.digest = u.net
     JOIN records r ON r.unit = u.key JOIN rules t ON t.spec = r.rule
WHERE m.run = ? AND m.experiment = ?
ORDER BY n.depth, COALESCE(n.seed, u.seed), u.sigma, u.input, r.rule, r.metric, r.component"""

_TYPES = {
    **dict.fromkeys(("depth", "seed", "input", "sampling", "samples"), "Int64"),
    **dict.fromkeys(("marginal", "reference"), "bool"),
    **dict.fromkeys(("sigma", "value", "floor", "floor95", "stderr", "seconds", "accuracy"), "float64"),
}

_FAILURES = """
SELECT DISTINCT COALESCE(n.network || ' seed ' || n.seed || ', input ' || u.input || ', sigma ' || u.sigma,
           u.dataset || COALESCE(' ' || u.objective, '') || ' seed ' || u.seed) AS "group",
       f.rule, f.metric, f.error, f.seconds
FROM members m JOIN failures f ON f.unit = m.unit JOIN units u ON u.key = m.unit
     LEFT JOIN nets n ON n.digest = u.net
WHERE m.run = ? ORDER BY 1, 2"""

_NETS = """
SELECT DISTINCT n.network, n.activation, n.depth, n.seed, n.digest, n.accuracy,
       n.recipe_label AS recipe, n.source
FROM members m JOIN units u ON u.key = m.unit JOIN nets n ON n.digest = u.net
WHERE m.run = ? ORDER BY n.activation, n.depth, n.seed"""

_RECORDS = """
SELECT r.unit, r.rule, r.metric, r.component, r.value, r.floor, r.floor95, r.stderr, r.fingerprint, r.run,
       u.net, n.network, n.activation, COALESCE(n.seed, u.seed) AS seed, u.input, u.noise, u.sigma, u.dataset,
       u.objective
FROM records r JOIN units u ON u.key = r.unit LEFT JOIN nets n ON n.digest = u.net
ORDER BY r.unit, r.rule, r.metric, r.component"""

_FIND = """
SELECT r.*, u.net, u.input, u.noise, u.sigma, u.sampler, u.samples, u.dataset, u.objective, n.weights
FROM records r JOIN units u ON u.key = r.unit LEFT JOIN nets n ON n.digest = u.net
WHERE substr(r.unit || '/' || r.rule || '/' || r.metric, 1, ?) = ?
ORDER BY r.unit, r.rule, r.metric, r.component"""


class Queries:
    """Questions to a results file.

    Parameters
    ----------
    path : Path
        For messages.
    connection : sqlite3.Connection
        To a file of today's schema.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection

    def run(self, number: int | None = None) -> Run:
        """One run, the newest by default.

        Returns
        -------
        Run

        Raises
        ------
        UserError
            If there is no such run.
        """
        rows = self._rows("SELECT * FROM runs WHERE id = COALESCE(?, id) ORDER BY id DESC LIMIT 1", (number,))
        if not rows:
            raise UserError(
                f"no run {number} in {self.path}" if number is not None else f"no run in {self.path}"
            )
        experiments = json.loads(rows[0].pop("experiments"))
        left_out = json.loads(rows[0].pop("left_out"))
        nested = {name: json.loads(rows[0].pop(name)) for name in ("settings", "environment")}
        return Run(
            **rows[0],
            **nested,
            experiments={
                name: Selection(tuple(part["metrics"]), tuple(part["rules"]))
                for name, part in experiments.items()
            },
            left_out=tuple(LeftOut(**line) for line in left_out),
        )

    def runs(self) -> list[int]:
        """Numbers of all runs, the oldest first."""
        return [row[0] for row in self._connection.execute("SELECT id FROM runs ORDER BY id")]

    def rules(self) -> dict[str, Traits]:
        """Traits of all rules that were asked for, by spec."""
        rows = self._connection.execute(
            "SELECT spec, label, colour, sampling, marginal, reference, rank FROM rules ORDER BY rank, spec"
        )
        return {
            spec: Traits(label, colour, sampling, bool(marginal), bool(reference), rank)
            for spec, label, colour, sampling, marginal, reference, rank in rows
        }

    def frame(self, run: Run) -> pd.DataFrame:
        """Measurements of a run's experiments.

        Returns
        -------
        DataFrame
            One row each, long format; see :class:`Record`. `component` is empty, and not missing, where a
            metric has one number: what is grouped by it is to keep these rows. `recipe` is how the net was
            trained or, without a net, the design of the unit.
        """
        parts = []
        for name, selection in run.experiments.items():
            part = pd.read_sql_query(_FRAME, self._connection, params=(run.id, name))
            parts.append(part[part.metric_spec.isin(selection.metrics) & part.rule.isin(selection.rules)])
        frame = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
        frame = frame.fillna({"component": ""}).astype(_TYPES)
        frame["metric"] = [spec.partition(":")[0] for spec in frame.metric_spec]
        frame["key"] = frame.unit + "/" + frame.rule + "/" + frame.metric_spec
        return frame

    def failures(self, run: Run) -> pd.DataFrame:
        """What could not be measured of a run's units and has not been since; no rule stands for all."""
        rules = {rule for selection in run.experiments.values() for rule in selection.rules}
        frame = pd.read_sql_query(_FAILURES, self._connection, params=(run.id,))
        return frame[frame.rule.isin(rules) | frame.rule.isna()].reset_index(drop=True)

    def records(self) -> pd.DataFrame:
        """All records of all runs, with what they were measured on; what is not known is missing."""
        types = {name: kind for name, kind in _TYPES.items() if name in ("seed", "input")}
        return pd.read_sql_query(_RECORDS, self._connection).astype(types)

    def asked(self) -> pd.DataFrame:
        """What the runs asked for together: experiment, unit, rule and metric, each combination once.

        Experiments share units, so that a measurement may be asked for by several of them.

        Returns
        -------
        DataFrame
            Columns `experiment`, `unit`, `rule` and `metric`.
        """
        selections = [
            (number, name, rule, metric)
            for number in self.runs()
            for name, selection in self.run(number).experiments.items()
            for rule in selection.rules
            for metric in selection.metrics
        ]
        names = ["run", "experiment", "rule", "metric"]
        members = pd.read_sql_query("SELECT run, experiment, unit FROM members", self._connection)
        found = members.merge(pd.DataFrame(selections, columns=names), on=["run", "experiment"])
        return found.drop(columns="run").drop_duplicates(ignore_index=True)

    def stored_nets(self) -> dict[str, StoredNet]:
        """All nets, by digest, with their weights where these are kept."""
        rows = self._rows("SELECT * FROM nets", ())
        return {row["digest"]: StoredNet(**{**row, "recipe": json.loads(row["recipe"])}) for row in rows}

    def verifications(self) -> list[Verification]:
        """Evidence by which records of older code got the fingerprints of newer code, the oldest first."""
        rows = self._rows("SELECT * FROM verifications ORDER BY finished", ())
        nested = ({name: json.loads(row[name]) for name in ("environment", "experiments")} for row in rows)
        return [
            Verification(**{**row, **values, "experiments": tuple(values["experiments"])})
            for row, values in zip(rows, nested, strict=True)
        ]

    def nets(self, run: Run) -> list[dict[str, Any]]:
        """Nets that a run measured on, without their weights."""
        return self._rows(_NETS, (run.id,))

    def measured(self, units: Iterable[str]) -> set[tuple[str, str, str, str]]:
        """What is known: (unit, rule, metric, fingerprint)."""
        asked = set(units)
        rows = self._connection.execute("SELECT DISTINCT unit, rule, metric, fingerprint FROM records")
        return {row for row in rows if row[0] in asked}

    def threads_of(self, key: str) -> int:
        """BLAS threads that a measurement was made with: another number may round differently."""
        rows = self.find(key)
        return int(self.run(rows[0]["run"]).environment["blas threads"]) if rows else 1

    def find(self, prefix: str) -> list[dict[str, Any]]:
        """Measurements whose key (unit/rule/metric) begins with `prefix`, with unit and weights."""
        return self._rows(_FIND, (len(prefix), prefix))

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        cursor = self._connection.execute(query, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]
