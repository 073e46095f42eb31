"""What is read from a results file: runs, measurements as frames, and what is known already."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.errors import DatabaseError

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.results import checksums, schema
from sdp_bench.bench.results.checksums import Parts, Row
from sdp_bench.bench.results.record import Run, StoredNet, Verification
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


def unreadable(path: Path, error: Exception) -> RunFailedError:
    """What SQLite met in a file, or in the place of it pandas, in one line."""
    damaged = type(error.__cause__ or error) in {checksums.DamageError, sqlite3.DatabaseError}
    reason = " ".join(str(error.__cause__ or error).split())
    return RunFailedError(f"{path} is damaged: {reason}" if damaged else f"cannot read {path}: {reason}")


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
        self._verified = False

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
        return Run.from_row(rows[0])

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
        self._verify()
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
        self._verify()
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
        return {row["digest"]: StoredNet.from_row(row) for row in rows}

    def verifications(self) -> list[Verification]:
        """Evidence by which records of older code got the fingerprints of newer code, the oldest first."""
        rows = self._rows("SELECT * FROM verifications ORDER BY finished", ())
        return [Verification.from_row(row) for row in rows]

    def nets(self, run: Run) -> list[dict[str, Any]]:
        """Nets that a run measured on, without their weights."""
        return self._rows(_NETS, (run.id,))

    def measured(self, units: Iterable[str]) -> set[tuple[str, str, str, str]]:
        """What is known: (unit, rule, metric, fingerprint)."""
        self._verify()
        asked = set(units)
        rows = self._connection.execute("SELECT DISTINCT unit, rule, metric, fingerprint FROM records")
        return {row for row in rows if row[0] in asked}

    def threads_of(self, key: str) -> int:
        """BLAS threads that a measurement was made with: another number may round differently."""
        rows = self.find(key)
        return int(self.run(rows[0]["run"]).environment["blas threads"]) if rows else 1

    def find(self, prefix: str) -> list[dict[str, Any]]:
        """Measurements whose key (unit/rule/metric) begins with `prefix`, with unit and weights."""
        self._verify()
        return self._rows(_FIND, (len(prefix), prefix))

    def parts(self, table: str) -> Parts:
        """Rows of a table by the part that their checksum is of, each when that was found right.

        Yields
        ------
        (str, list of tuple)
            As :func:`sdp_bench.bench.results.checksums.verified`.

        Raises
        ------
        RunFailedError
            If it was not.
        """
        with self._reading():
            yield from checksums.verified(self._connection, table)

    def contents(self) -> dict[str, Iterator[Row]]:
        """Rows of all tables, to be gone through once, as :meth:`parts` gives them."""
        return {name: (row for _, rows in self.parts(name) for row in rows) for name in schema.TABLES}

    def verify(self) -> dict[str, int]:
        """Compare all that is here with its checksums, and every index with its table.

        Returns
        -------
        dict of str to int
            Rows by table.

        Raises
        ------
        RunFailedError
            If anything is not as it was written.
        """
        with self._reading():
            checksums.check_structure(self._connection, *schema.TABLES)
            return {
                table: sum(len(rows) for _, rows in checksums.verified(self._connection, table))
                for table in schema.TABLES
            }

    def _verify(self) -> None:
        """Have looked at all records once, before any number is read; the other tables were, on opening."""
        if not self._verified:
            with self._reading():
                checksums.check_structure(self._connection, "records")
                checksums.check(self._connection, {"records": None})
            self._verified = True

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Tell in one line that the file is damaged, or cannot be read."""
        try:
            yield
        except (sqlite3.Error, DatabaseError) as error:
            raise unreadable(self.path, error) from error

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        cursor = self._connection.execute(query, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]
