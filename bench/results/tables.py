"""Tables of results as data frames: conversion, validation, and comparison by key.

Text is a category in alphabetical order, so that a measurement takes about 130 bytes; integers are Int64, and
numbers float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from . import record, schema
from .record import Run, StoredNet
from .schema import Row

if TYPE_CHECKING:
    import pyarrow as pa

Tables = Mapping[str, pd.DataFrame]
"""A frame for each table of the schema."""

NUMBERS = ("value", "floor", "floor95", "stderr")
"""Numbers of a measurement."""
WORDS = ("unit_of_measure", "precision")
"""Texts of a measurement that two results must share."""

_BATCH = 5_000  # rows that are converted together: as Python objects they take ten times the memory
_READ = {"nets": StoredNet.from_row, "runs": Run.from_row}


def arrow_schema(table: str) -> pa.Schema:
    """Return the Arrow types of a table."""
    import pyarrow as pa

    types = {"TEXT": pa.string(), "INTEGER": pa.int64(), "REAL": pa.float64(), "BLOB": pa.binary()}
    return pa.schema([pa.field(name, types[column.kind]) for name, column in schema.columns()[table].items()])


def from_rows(table: str, rows: Iterable[Row]) -> pd.DataFrame:
    """Convert rows of a file; raises ValueError if a value has the wrong type."""
    import pyarrow as pa

    known = arrow_schema(table)
    batches, rows = [], iter(rows)
    while batch := list(itertools.islice(rows, _BATCH)):
        arrays = []
        for field, values in zip(known, zip(*batch, strict=True), strict=True):
            try:
                array = pa.array(values, field.type)
            except (pa.ArrowException, OverflowError) as error:
                raise ValueError(f"table {table} has a wrong {field.name}: {error}") from error
            arrays.append(array.dictionary_encode() if field.type == pa.string() else array)
        batches.append(pa.RecordBatch.from_arrays(arrays, known.names))
    return from_arrow(pa.Table.from_batches(batches) if batches else known.empty_table())


def from_arrow(table: pa.Table) -> pd.DataFrame:
    """Convert an Arrow table with the types of :func:`arrow_schema`, text perhaps as dictionaries."""
    import pyarrow as pa

    words = [
        field.name
        for field in table.schema
        if pa.types.is_string(field.type) or pa.types.is_dictionary(field.type)
    ]
    integers = {pa.int64(): pd.Int64Dtype()}
    frame = table.unify_dictionaries().to_pandas(categories=words, types_mapper=integers.get)
    for name in words:
        known = frame[name].cat.categories
        frame[name] = texts(frame[name].cat.codes.to_numpy(), list(known))
    return frame


def to_arrow(table: str, frame: pd.DataFrame) -> pa.Table:
    """Convert a frame to Arrow, with the types of :func:`arrow_schema` and missing values as null."""
    import pyarrow as pa

    plain = pa.Table.from_pandas(frame, arrow_schema(table), preserve_index=False)
    return plain.replace_schema_metadata()


def to_rows(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield the rows as Python objects, None where a value is missing."""
    for start in range(0, len(frame), _BATCH):
        part = frame.iloc[start : start + _BATCH].astype(object)
        yield from part.where(part.notna(), None).itertuples(index=False, name=None)


def texts(codes: NDArray[np.integer[Any]], known: Sequence[str]) -> pd.Categorical:
    """Make categories in alphabetical order from codes of distinct texts; -1 is a missing text."""
    unordered = pd.Categorical.from_codes(codes, pd.Index(list(known), dtype=object))
    return unordered.reorder_categories(pd.Index(sorted(known), dtype=object))


def filled(column: pd.Series) -> pd.Series:
    """Return a column of text as categories in alphabetical order, with an empty text for missing values.

    The empty text is always among the categories.
    """
    codes, known = pd.factorize(column)
    named = list(dict.fromkeys([*map(str, known), ""]))
    return pd.Series(texts(np.where(codes < 0, named.index(""), codes), named), index=column.index)


def check(name: str, frame: pd.DataFrame) -> None:
    """Raise ValueError for values that no run stores: missing, infinite, out of range, or damaged JSON."""
    for column, described in schema.columns()[name].items():
        if described.required and frame[column].isna().any():
            raise ValueError(f"table {name} has a row without {column}")
        has_ranges = name == "records" and column in NUMBERS
        if described.kind == "REAL" and not has_ranges and np.isinf(frame[column].to_numpy()).any():
            raise ValueError(f"table {name} has an infinite {column}")
    if name == "records":
        _check_ranges(frame)
    for row in to_rows(frame) if name in _READ else ():
        try:
            _READ[name](dict(zip(schema.columns()[name], row, strict=True)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"table {name} has a row {row[0]} that cannot be read: {error}") from error


def _check_ranges(frame: pd.DataFrame) -> None:
    metric = frame["metric"].array
    limits = np.array([record.limits(text) for text in metric.categories]).reshape(-1, len(NUMBERS), 2)
    for place, column in enumerate(NUMBERS):
        values = frame[column].to_numpy()
        low, high = limits[metric.codes, place].T
        wrong = np.flatnonzero((values < low) | (values > high))
        if wrong.size:
            number = f"{values[wrong[0]]} of {metric[wrong[0]]}"
            raise ValueError(f"table records has a {column} {number}, which is out of range")


def check_all(tables: Tables) -> None:
    """Validate all tables and the references between them; raises ValueError."""
    for name in schema.TABLES:
        check(name, tables[name])
        key = list(schema.KEYS[name])
        if tables[name].duplicated(key).any():
            raise ValueError(f"table {name} has the same {', '.join(key)} twice")
    for name, column, other in schema.REFERENCES:
        used = pd.Series(tables[name][column].dropna().unique())
        unknown = used[~used.isin(tables[other][schema.KEYS[other][0]])]
        if len(unknown):
            raise ValueError(
                f"table {name} refers to {column} {unknown.iloc[0]!r}, which is not in table {other}"
            )


def matched(table: str, a: pd.DataFrame, b: pd.DataFrame) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the positions of the rows of two frames that have the same key."""
    names = list(schema.KEYS[table])
    left, right = (frame[names].astype(object).assign(row=range(len(frame))) for frame in (a, b))
    both = left.merge(right, on=names)  # missing texts are equal
    return both["row_x"].to_numpy(), both["row_y"].to_numpy()


def differing(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Compare aligned measurements: True where a field differs, by more than rounding if it is a number.

    Rounding is that of :func:`sdp_bench.bench.results.record.same_number`.
    """
    close = np.maximum(1e-12, np.nan_to_num(a["stderr"].to_numpy()) / 100)
    found = {}
    for name in NUMBERS:
        here, there = a[name].to_numpy(), b[name].to_numpy()
        with np.errstate(invalid="ignore"):
            near = abs(here - there) <= np.maximum(close, 1e-9 * np.maximum(abs(here), abs(there)))
            near &= np.isfinite(here) & np.isfinite(there)
        found[name] = ~(near | (here == there) | (np.isnan(here) & np.isnan(there)))
    for name in WORDS:
        here, there = (frame[name].astype(object).fillna("").to_numpy() for frame in (a, b))
        found[name] = here != there
    return pd.DataFrame(found)


def contradicting(table: str, here: pd.DataFrame, there: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which aligned rows of one key cannot both be right."""
    if table != "records":
        wrong = np.zeros(len(here), bool)
        for name in _FACTS.get(table, ()):
            a, b = (frame[name].astype(object).where(frame[name].notna(), None) for frame in (here, there))
            wrong |= a.to_numpy() != b.to_numpy()
        return wrong
    found = differing(here, there)
    # One sample in another cell changes a simulated floor by less than the standard error.
    for name in ("floor", "floor95"):
        found[name] &= ~(abs(here[name] - there[name]) <= here["stderr"]).to_numpy()
    # The precision of old results is unknown.
    found["precision"] &= (here["precision"].notna() & there["precision"].notna()).to_numpy()
    versions = here["fingerprint"].astype(object).to_numpy() != there["fingerprint"].astype(object).to_numpy()
    contradictory: NDArray[np.bool_] = found.any(axis=1).to_numpy() | versions
    return contradictory


_FACTS = {
    "nets": ("network", "activation", "depth", "seed"),
    "units": ("net", "input", "noise", "sigma", "sampler", "samples", "dataset", "objective", "seed"),
}
"""Columns that must agree; the others depend on the version or machine that wrote them."""


def called(table: str, frame: pd.DataFrame) -> list[str]:
    """Return the keys of rows as text, for messages."""
    keys = frame[list(schema.KEYS[table])].astype(object)
    return ["/".join(str(part) for part in row if pd.notna(part)) for row in keys.itertuples(index=False)]


Cells = set[tuple[str, str, str]]
_CELL = ["unit", "rule", "metric"]


def new_rows(
    here: Tables, others: Tables, *, keep: bool
) -> tuple[dict[str, pd.DataFrame], Cells, pd.DataFrame]:
    """Return the rows of other tables that are not here, the cells here that they replace, and ended runs.

    Ended runs are unfinished here and finished in the other tables; their rows have the numbers used here.

    A cell is a unit, rule and metric. If a cell has different versions in the two, the newer one counts; with
    `keep`, cells of the same versions are left out. Runs that are not here are numbered after those here.
    Raises ValueError if a row contradicts one with the same key here; the message names the first ones.
    """
    last = int(here["runs"]["id"].max()) if len(here["runs"]) else 0
    known_runs = {run: number for number, run in _runs(here)}
    moved = {number: known_runs[run] for number, run in _runs(others) if run in known_runs}
    unknown = sorted(set(others["runs"]["id"]) - moved.keys())
    moved |= {number: last + place for place, number in enumerate(unknown, 1)}
    new: dict[str, pd.DataFrame] = {}
    replaced = Cells()
    for name in schema.TABLES:
        number = {"runs": "id", "members": "run", "records": "run", "failures": "run"}.get(name)
        known, rows = here[name], others[name]
        if number:
            rows = rows.assign(**{number: rows[number].map(moved).astype("Int64")})
            if name in ("runs", "members"):  # older versions stored a run again with each import
                rows = rows.drop_duplicates(list(schema.KEYS[name]))
        if name == "records":
            replaced, older = _outdated(known, rows)
            if keep:
                older = Cells(known[_CELL].itertuples(index=False, name=None)) - replaced
            known, rows = known[~_in_cells(known, replaced)], rows[~_in_cells(rows, older)]
        mine, theirs = matched(name, known, rows)
        wrong = contradicting(
            name, known.iloc[mine].reset_index(drop=True), rows.iloc[theirs].reset_index(drop=True)
        )
        if wrong.any():
            named = called(name, rows.iloc[theirs[wrong][:5]])
            what = "measurements" if name == "records" else name
            more = "; ..." if wrong.sum() > len(named) else ""
            hint = " (`sdp-bench import --keep` keeps those here)" if name == "records" and not keep else ""
            raise ValueError(f"{wrong.sum()} {what} differ from those here{hint}: {'; '.join(named)}{more}")
        new[name] = rows.drop(index=rows.index[theirs]).reset_index(drop=True)
    unfinished = here["runs"]["id"][here["runs"]["finished"].isna()]
    runs = others["runs"].assign(id=others["runs"]["id"].map(moved))
    return new, replaced, runs[runs["id"].isin(unfinished) & runs["finished"].notna()]


def _runs(tables: Tables) -> Iterator[tuple[int, tuple[object, ...]]]:
    """Yield the number of each run, and what identifies it, finished or not: its description and units."""
    units = tables["members"].groupby("run")["unit"].agg(frozenset)
    runs = tables["runs"].drop(columns=["finished", "seconds"]).astype(object)
    for number, *described in runs.where(runs.notna(), None).itertuples(index=False, name=None):
        yield number, (*described, units.get(number))


def _outdated(here: pd.DataFrame, there: pd.DataFrame) -> tuple[Cells, Cells]:
    """Return the cells with older versions here, and those with older versions there."""
    columns = [*_CELL, "fingerprint"]
    a, b = (records[columns].astype(object).drop_duplicates() for records in (here, there))
    both = a.merge(b, on=_CELL)
    both = both[both["fingerprint_x"] != both["fingerprint_y"]]
    rows = list(both.itertuples(index=False, name=None))
    older = {row[:3] for row in rows if _is_older(row[3], row[4])}
    return older, {row[:3] for row in rows if _is_older(row[4], row[3])}


def _is_older(a: str, b: str) -> bool:
    """Return whether versions such as ``rule 1, metric 1`` or ``old`` are older; hashes have no order."""
    if "old" in (a, b):
        return a == "old" != b
    parts = [[part.rpartition(" ")[::2] for part in text.split(", ")] for text in (a, b)]
    if [name for name, _ in parts[0]] != [name for name, _ in parts[1]]:
        return False
    numbers = [[number.split("+") for _, number in side] for side in parts]
    pairs = [pair for sides in zip(*numbers, strict=True) for pair in zip(*sides, strict=False)]
    different = [(x, y) for x, y in pairs if x != y]
    return bool(different) and all(x.isdecimal() and y.isdecimal() and int(x) < int(y) for x, y in different)


def _in_cells(records: pd.DataFrame, cells: Cells) -> NDArray[np.bool_]:
    if not cells:
        return np.zeros(len(records), bool)
    return pd.MultiIndex.from_frame(records[_CELL]).isin(list(cells))
