"""What is read from a results file: runs, measurements as frames, and what is known already."""

from __future__ import annotations

import json
import operator
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.errors import DatabaseError

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.results import checksums, schema
from sdp_bench.bench.results.checksums import Parts, Row
from sdp_bench.bench.results.record import Run, Selection, StoredNet
from sdp_ref.rules import Traits

_OF_RUNS = "WHERE run IN (SELECT value FROM json_each(?))"
_MEMBERS = f"SELECT run, experiment, unit FROM members {_OF_RUNS}"  # noqa: S608  no value of anybody's
_UNITS = f"""
SELECT DISTINCT u.key AS unit, n.network, n.activation, n.depth, u.net, COALESCE(n.seed, u.seed) AS seed,
       u.input, u.noise, u.sigma, u.dataset, u.objective, n.accuracy,
       COALESCE(n.recipe_label, u.design) AS recipe, u.samples
FROM members m JOIN units u ON u.key = m.unit LEFT JOIN nets n ON n.digest = u.net
{_OF_RUNS} ORDER BY u.key"""  # noqa: S608  no value of anybody's

_OF_UNITS = f"WHERE unit IN (SELECT unit FROM members {_OF_RUNS})"  # noqa: S608  no value of anybody's

_RULES = "SELECT spec AS rule, label AS rule_label, sampling, marginal, reference FROM rules"

_FRAME = (
    *("experiment", "network", "activation", "depth", "net", "seed", "input", "noise", "sigma", "dataset"),
    *("objective", "rule", "rule_label", "sampling", "marginal", "reference", "metric_spec", "component"),
    *("value", "floor", "floor95", "stderr", "unit_of_measure", "seconds", "accuracy", "recipe", "samples"),
    *("unit", "fingerprint", "run", "precision", "metric"),
)

_Ages = NDArray[np.unsignedinteger[Any]]

_SUBJECT = ("net", "input", "noise", "sigma", "dataset", "objective", "seed", "recipe")
"""What says of a unit what is measured, and leaves out how."""

_TYPES = {
    **dict.fromkeys(("depth", "seed", "input", "sampling", "samples"), "Int64"),
    **dict.fromkeys(("marginal", "reference"), "bool"),
    **dict.fromkeys(("sigma", "value", "floor", "floor95", "stderr", "seconds", "accuracy"), "float64"),
    "run": "int64",
}
"""Types of columns; those of the others are categories of text, in the order of the texts."""

_CHUNK = 2_000  # rows at a time: as Python's objects a row takes ten times what its columns do

_FAILURES = """
SELECT DISTINCT COALESCE(n.network || ' seed ' || n.seed || ', input ' || u.input
               || COALESCE(NULLIF(', ' || u.noise, ', gaussian'), '') || ', sigma ' || u.sigma,
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

_CUT_OFF = """
SELECT id FROM runs WHERE finished IS NULL
AND id NOT IN (SELECT run FROM records) AND id NOT IN (SELECT run FROM failures)"""
_IDLE_RUNS = f"""
{_CUT_OFF} EXCEPT SELECT m.run
FROM (SELECT experiment, unit FROM members WHERE run IN ({_CUT_OFF})
      EXCEPT SELECT experiment, unit FROM members WHERE run NOT IN ({_CUT_OFF})) alone
     JOIN members m ON m.experiment = alone.experiment AND m.unit = alone.unit AND m.run IN ({_CUT_OFF})
     JOIN runs r ON r.id = m.run
WHERE m.unit IN (SELECT unit FROM failures)
   OR EXISTS (SELECT 1 FROM json_each(r.experiments, '$."' || m.experiment || '".metrics') asked
              JOIN records c ON c.metric = asked.value WHERE c.unit = m.unit)"""  # noqa: S608  no value of anybody's
_IDLE_UNITS = """
WITH idle AS (SELECT value FROM json_each(?))
SELECT unit FROM members WHERE run IN idle EXCEPT SELECT unit FROM members WHERE run NOT IN idle
EXCEPT SELECT unit FROM records EXCEPT SELECT unit FROM failures"""
_IDLE_NETS = """
WITH idle AS (SELECT value FROM json_each(?))
SELECT net FROM units WHERE key IN idle EXCEPT SELECT net FROM units WHERE key NOT IN idle"""

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
        self._summed = self._verified = False

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

    def frame(self, *runs: Run) -> pd.DataFrame:
        """Measurements of the experiments of some runs.

        Text is kept as categories, in the order of the texts, so that a row takes some 130 bytes. What a
        measurement is called by is made of a row by :func:`keys`.

        Parameters
        ----------
        *runs : Run
            The oldest first. What several of them asked for, perhaps with other settings, counts once in an
            experiment, as the newest of them has it.

        Returns
        -------
        DataFrame
            One row each, long format; see :class:`Record`. `component` is empty, and not missing, where a
            metric has one number: what is grouped by it is to keep these rows. `recipe` is how the net was
            trained or, without a net, the design of the unit. One experiment after the other, each in the
            order of depth, seed, sigma, input, rule, metric and component.
        """
        numbers = json.dumps([run.id for run in runs])
        units = self._typed(_UNITS, (numbers,))
        members = self._typed(_MEMBERS, (numbers,)).groupby(["run", "experiment"], observed=True)["unit"]
        names = ["metric_spec" if name == "metric" else name for name in schema.columns()["records"]]
        records = _typed(names, self._recorded(numbers, set(units["unit"])))
        records["component"] = filled(records["component"])
        at = pd.Index(units["unit"]).get_indexer(records["unit"].cat.categories)[records["unit"].cat.codes]
        newest: dict[str, _Ages] = {}  # of an experiment the last run that asks for each record, from 1 on
        kind = np.min_scalar_type(len(runs))
        for age, run in enumerate(runs, 1):
            for name, selection in run.experiments.items():
                own = newest.setdefault(name, np.zeros(len(records), kind))
                if (run.id, name) in members.groups:
                    member = np.zeros(len(units), dtype=bool)
                    member[members.get_group((run.id, name)).cat.codes] = True
                    own[_asked(records, selection, at, member)] = age
        order = _order(units, records, at)
        called = _called(units, records, at) if len(runs) > 1 else None
        chosen = {name: order[_of_newest(own, called)[order]] for name, own in newest.items()}
        lengths = [len(rows) for rows in chosen.values()]
        columns = {"experiment": texts(np.repeat(np.arange(len(chosen)), lengths), list(chosen))}
        rows = np.concatenate([*chosen.values(), np.empty(0, dtype=np.intp)])
        del order, called, chosen, newest
        rules, specs = records["rule"].array, records["metric_spec"].array
        metrics = pd.DataFrame({"metric": _metrics(specs.categories)})
        traits = self._typed(_RULES, ()).set_index("rule").loc[rules.categories]
        sources = (
            (units.drop(columns="unit"), at[rows]),
            (traits, rules.codes[rows]),
            (metrics, specs.codes[rows]),
            (records, rows),
        )
        for source, places in sources:
            for name in list(source):  # each column goes when it is taken
                columns[name] = source.pop(name).array.take(places)
        return pd.DataFrame({name: columns.pop(name) for name in _FRAME}, copy=False)

    def failures(self, run: Run) -> pd.DataFrame:
        """What could not be measured of a run's units and has not been since; no rule stands for all."""
        rules = {rule for selection in run.experiments.values() for rule in selection.rules}
        frame = pd.read_sql_query(_FAILURES, self._connection, params=(run.id,))
        return frame[frame.rule.isin(rules) | frame.rule.isna()].reset_index(drop=True)

    def stored_nets(self) -> dict[str, StoredNet]:
        """All nets, by digest, with their weights where these are kept."""
        rows = self._rows("SELECT * FROM nets", ())
        return {row["digest"]: StoredNet.from_row(row) for row in rows}

    def nets(self, run: Run) -> list[dict[str, Any]]:
        """Nets that a run measured on, without their weights."""
        return self._rows(_NETS, (run.id,))

    def measured(self, units: Iterable[str]) -> set[tuple[str, str, str, str]]:
        """What is known: (unit, rule, metric, versions)."""
        self._verify()
        asked = set(units)
        rows = self._connection.execute("SELECT unit, rule, metric, fingerprint FROM records")
        known: dict[str, str] = {}

        def once(text: str) -> str:  # held once, and not for every record
            return known.setdefault(text, text)

        return {(once(u), once(r), once(m), once(mark)) for u, r, m, mark in rows if u in asked}

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

    def idle(self) -> dict[str, set[str | int]]:
        """First columns of what no measurement came of, by table.

        Runs that were cut off before they measured anything, and the units and nets that only these name;
        not a run that alone says of an experiment that it asks for what others have measured.

        Returns
        -------
        dict of str to set
        """

        def first(query: str, *of: set[str | int]) -> set[str | int]:
            return {row[0] for row in self._connection.execute(query, [json.dumps([*keys]) for keys in of])}

        with self._reading():
            runs = first(_IDLE_RUNS)
            units = first(_IDLE_UNITS, runs) if runs else set()
            nets = first(_IDLE_NETS, units) if units else set()
        return {"runs": runs, "members": runs, "units": units, "nets": nets}

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
        """Have looked at all records once, and their index, before any question that goes by another way."""
        if self._verified:
            return
        with self._reading():
            checksums.check_structure(self._connection, "records")
            for _ in self._summing():
                pass
        self._verified = True

    def _summing(self) -> Parts:
        """All records, while they are compared with their checksums; none if they have been."""
        if not self._summed:
            yield from checksums.verified(self._connection, "records")
            self._summed = True

    def _recorded(self, runs: str, units: Collection[str]) -> Iterator[Sequence[Row]]:
        """Records of the units of runs (JSON); where all are still to be compared, in that pass over them."""
        # By the index that checksums go by, and nothing else of them: a record that it had lost would be
        # missing from a sum, so that SQLite's own look at the index, half as long again, says no more.
        with self._reading():
            if self._summed:
                yield from _fetched(self._connection.execute(schema.rows("records", _OF_UNITS), (runs,)))
                return
            batch: list[Row] = []
            for unit, rows in self._summing():
                if unit in units:
                    batch += rows
                if len(batch) >= _CHUNK:
                    yield batch
                    batch = []
            if batch:
                yield batch

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Tell in one line that the file is damaged, or cannot be read."""
        try:
            yield
        except (sqlite3.Error, DatabaseError) as error:
            raise unreadable(self.path, error) from error

    def _typed(self, query: str, values: tuple[Any, ...]) -> pd.DataFrame:
        """Rows that a query finds, as columns of few bytes."""
        cursor = self._connection.execute(query, values)
        return _typed([column[0] for column in cursor.description], _fetched(cursor))

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        cursor = self._connection.execute(query, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def _fetched(cursor: sqlite3.Cursor) -> Iterator[Sequence[Row]]:
    while rows := cursor.fetchmany(_CHUNK):
        yield rows


def _typed(names: Sequence[str], batches: Iterable[Sequence[Row]]) -> pd.DataFrame:
    """Rows as columns of few bytes: of text the categories, each held once."""
    words = [place for place, name in enumerate(names) if name not in _TYPES]
    # Rows come in the order of what stands first; the other texts recur together.
    together = [_Together(names, places) for places in (words[:1], words[1:]) if places]
    numbers = [(name, operator.itemgetter(place)) for place, name in enumerate(names) if place not in words]
    types = {name: pd.api.types.pandas_dtype(_TYPES[name]) for name, _ in numbers}
    parts = {name: [_array(own, (), types[name])] for name, own in numbers}
    for rows in batches:
        for each in together:
            each.add(rows)
        for name, own in numbers:
            parts[name].append(_array(own, rows, types[name]))
    columns: dict[str, Any] = {}
    for each in together:
        columns |= each.columns()
    for name in types:
        columns[name] = pd.concat(map(pd.Series, parts.pop(name)), ignore_index=True).array
    return pd.DataFrame({name: columns.pop(name) for name in names}, copy=False)


def _array(of: Callable[[Row], Any], rows: Sequence[Row], dtype: Any) -> Any:
    """A value of each row; numpy takes a fifth of pandas' time, but has no type that may miss integers."""
    if isinstance(dtype, np.dtype):
        return np.fromiter(map(of, rows), dtype, len(rows))
    return pd.array([*map(of, rows)], dtype)


class _Numbers(dict[Any, int]):
    """Numbers of what is looked up, in the order in which it is met."""

    def __missing__(self, met: Any) -> int:
        self[met] = number = len(self)
        return number


class _Together:
    """Columns of text, whose texts are looked up once for each combination of them.

    Parameters
    ----------
    names : sequence of str
        Of all columns.
    places : sequence of int
        Which these are.
    """

    def __init__(self, names: Sequence[str], places: Sequence[int]) -> None:
        self._names = [names[place] for place in places]
        self._of = operator.itemgetter(*places)
        self._known = _Numbers()
        self._numbers = [np.empty(0, np.int32)]

    def add(self, rows: Sequence[Row]) -> None:
        """Take the texts of some rows."""
        found = map(self._known.__getitem__, map(self._of, rows))
        self._numbers.append(np.fromiter(found, np.int32, len(rows)))

    def columns(self) -> dict[str, pd.Categorical]:
        """The columns, by name."""
        numbers = np.concatenate(self._numbers)
        known = list(self._known) if len(self._names) > 1 else [(text,) for text in self._known]
        columns = {}
        for place, name in enumerate(self._names):
            own = _Numbers()
            texts_ = (each[place] for each in known)
            codes = np.array([-1 if text is None else own[text] for text in texts_], np.int32)
            columns[name] = texts(codes[numbers], list(own))
        return columns


def _asked(
    records: pd.DataFrame, selection: Selection, at: NDArray[np.intp], member: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which records an experiment asks for: `at` says of which unit each is, `member` which are its units."""
    asked = member[at]
    for name, chosen in (("metric_spec", selection.metrics), ("rule", selection.rules)):
        column = records[name].array
        asked &= column.categories.isin(chosen)[column.codes]
    return asked


def _order(units: pd.DataFrame, records: pd.DataFrame, at: NDArray[np.intp]) -> NDArray[np.intp]:
    """Order of records by what their units are of, rule, metric and component; `at` says which unit's."""
    names = ("depth", "seed", "sigma", "input")
    subject = np.array(
        [units[name].to_numpy(float, na_value=-np.inf) for name in names]
    )  # missing ones first
    rank = np.unique(subject.T, axis=0, return_inverse=True)[1]
    inner = (records[name].cat.codes.to_numpy() for name in ("component", "metric_spec", "rule"))
    return np.lexsort((at, *inner, rank[at]))  # the last decides first; of one subject by the units' keys


def _called(units: pd.DataFrame, records: pd.DataFrame, at: NDArray[np.intp]) -> NDArray[np.intp]:
    """Number of what each record is a measurement of, whatever the settings that it was measured with."""
    subject = [pd.factorize(units[name], use_na_sentinel=False)[0] for name in _SUBJECT]
    kinds = [np.unique(np.transpose(subject), axis=0, return_inverse=True)[1].ravel()[at]]
    metrics, rules, components = (records[name].array for name in ("metric_spec", "rule", "component"))
    kinds += [_metrics(metrics.categories).codes[metrics.codes], rules.codes, components.codes]
    number = np.zeros(len(records), np.int64)
    for kind in kinds:
        number = number * (kind.max(initial=0) + 1) + kind
    return np.unique(number, return_inverse=True)[1]


def _of_newest(age: _Ages, called: NDArray[np.intp] | None) -> NDArray[np.bool_]:
    """Which records of an experiment are of the newest run that has such a one; of age 0 is none of it."""
    if called is None:
        return age > 0
    newest = np.zeros(called.max(initial=-1) + 1, age.dtype)
    np.maximum.at(newest, called, age)
    found: NDArray[np.bool_] = (age > 0) & (age == newest[called])
    return found


def _metrics(specs: Iterable[str]) -> pd.Categorical:
    """Names of metrics."""
    codes, names = pd.factorize(np.array([spec.partition(":")[0] for spec in specs], dtype=object))
    return texts(codes, list(names))


def texts(codes: NDArray[np.integer[Any]], known: Sequence[str]) -> pd.Categorical:
    """Text of few kinds as categories, in the order of the texts.

    Parameters
    ----------
    codes : array of int
        Places in `known`; -1 where there is no text.
    known : sequence of str
        Each once.

    Returns
    -------
    Categorical
    """
    ordered = sorted(known)
    place = {text: number for number, text in enumerate(ordered)}
    # The last is where -1 leads. Few bytes each, as the categories will have them.
    moved = np.array([*(place[text] for text in known), -1], np.min_scalar_type(-len(known) - 1))
    return pd.Categorical.from_codes(moved[codes], pd.Index(ordered, dtype="str"))


def filled(column: pd.Series) -> pd.Series:
    """Text as categories, in the order of the texts: and the empty one for what is missing.

    Parameters
    ----------
    column : Series

    Returns
    -------
    Series
    """
    codes, known = pd.factorize(column)
    named = dict.fromkeys([*map(str, known), ""])
    places = list(named)
    return pd.Series(texts(np.where(codes < 0, places.index(""), codes), places), index=column.index)


def keys(frame: pd.DataFrame) -> pd.Series:
    """What measurements are called by: ``unit/rule/metric``.

    Parameters
    ----------
    frame : DataFrame
        As :meth:`Queries.frame` gives it, or some rows of it.

    Returns
    -------
    Series
        Of text; empty where it is not known which units they are of.
    """
    if "unit" not in frame:
        return pd.Series("", index=frame.index, dtype=object)
    parts = (frame[name].astype(object) for name in ("unit", "rule", "metric_spec"))
    return pd.Series(["/".join(part) for part in zip(*parts, strict=True)], frame.index, dtype=object)
