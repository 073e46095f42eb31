"""Measurements as CSV, for use in other programs."""

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
"""Largest number of measurements for which a report writes a table, of about 100 MB."""

_CHUNK = 20_000  # rows at a time: a row takes some 400 bytes as text, and more as Python objects
_FEW = 10  # repetitions of a number, on average, from which each distinct number is formatted once


def lines(frame: pd.DataFrame) -> Iterator[bytes]:
    """Yield the measurements in chunks as ``DataFrame.to_csv`` writes them without an index, with their keys.

    Texts are escaped for spreadsheets by :func:`sdp_bench.bench.text.cell`. The first chunk is the header.
    """
    keyed = "unit" in frame and "key" not in frame
    yield _written([[name] for name in [*map(str, frame.columns), *(["key"] if keyed else [])]])
    for start in range(0, len(frame), _CHUNK):
        part = frame.iloc[start : start + _CHUNK]
        columns = [_fields(part[name]) for name in part]
        yield _written([*columns, [*map(cell, keys(part))]] if keyed else columns)


def _fields(column: pd.Series) -> list[Any]:
    """Values for the CSV writer, None if missing; numbers with many repetitions are formatted here."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return _taken(column.cat.codes.to_numpy(), [*map(cell, column.cat.categories)])
    if column.dtype == float:
        codes, bits = pd.factorize(column.to_numpy().view(np.int64))  # as values 0.0 and -0.0 would be one
        if len(bits) * _FEW < len(column):
            known = bits.view(float).tolist()
            return _taken(codes, [None if math.isnan(value) else repr(value) for value in known])
    return [*map(cell, column.astype(object).where(column.notna(), None))]


def _taken(codes: NDArray[np.integer[Any]], values: list[Any]) -> list[Any]:
    found: list[Any] = np.array([*values, None], dtype=object)[
        codes
    ].tolist()  # the code -1 refers to the last one
    return found


def _written(columns: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
    return text.getvalue().encode()
