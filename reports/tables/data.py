"""Measurements as CSV, as people take them on to other programs."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdp_bench.bench.results.queries import keys
from sdp_bench.bench.text import cell

MOST = 250_000
"""Measurements of which a report writes a table, of some 100 MB."""

_CHUNK = 20_000  # rows at a time: as text a row takes some 400 bytes, and as Python's objects more
_FEW = 10  # rows for each number from which on a number is written once for all of them


def lines(frame: pd.DataFrame) -> Iterator[bytes]:
    """All measurements as ``DataFrame.to_csv`` writes them without an index, and what each is called by.

    Texts are cells that a spreadsheet takes for texts: :func:`sdp_bench.bench.text.cell`.

    Parameters
    ----------
    frame : DataFrame
        As :func:`sdp_bench.reports.tables.frame.checked` gives it.

    Yields
    ------
    bytes
        Some rows each, the names of the columns first.
    """
    keyed = "unit" in frame and "key" not in frame
    yield _written([[name] for name in [*map(str, frame.columns), *(["key"] if keyed else [])]])
    for start in range(0, len(frame), _CHUNK):
        part = frame.iloc[start : start + _CHUNK]
        columns = [_fields(part[name]) for name in part]
        yield _written([*columns, [*map(cell, keys(part))]] if keyed else columns)


def _fields(column: pd.Series) -> list[Any]:
    """Values as the writer takes them: None where there is none; numbers that are many as texts."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return _taken(column.cat.codes.to_numpy(), [*map(cell, column.cat.categories)])
    if column.dtype == float:
        codes, bits = pd.factorize(column.to_numpy().view(np.int64))  # by value 0.0 and -0.0 are one
        if len(bits) * _FEW < len(column):
            known = bits.view(float).tolist()
            return _taken(codes, [None if math.isnan(value) else repr(value) for value in known])
    return [*map(cell, column.astype(object).where(column.notna(), None))]


def _taken(codes: NDArray[np.integer[Any]], values: list[Any]) -> list[Any]:
    found: list[Any] = np.array([*values, None], dtype=object)[codes].tolist()  # the last is where -1 leads
    return found


def _written(columns: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
    return text.getvalue().encode()
