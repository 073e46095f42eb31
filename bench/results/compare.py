"""Two results compared, measurement by measurement."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .columns import CELL, MEASURED, NUMBERS, keys
from .folder import Stored

SHOWN = 20
"""Number of differences that are listed."""
_WORDS = ("unit_of_measure", "precision")


@dataclass(frozen=True)
class Comparison:
    """Two results compared.

    `equal` and `different` count the measurements in both, by :func:`differing`, and `fields` the differences
    by field. `largest` lists the largest ones: key, component, field, a, b, and the difference in units of
    the larger standard error (infinite if both are 0, or for text). `other_code` and `other_time` count
    measurements with other versions or another time of the rule, which is not a difference of the
    measurement. `only_a` and `only_b` are in one of them only.
    """

    equal: int
    different: int
    fields: Counter[str]
    largest: pd.DataFrame
    other_code: int
    other_time: int
    only_a: int
    only_b: int


def compare(a: Stored, b: Stored) -> Comparison:
    """Compare two results measurement by measurement."""
    left, right = _plain(a), _plain(b)
    index = [*CELL, "component"]
    both = left.merge(right, on=index, suffixes=("", "_b"))
    old = both[list(left)]
    new = both[[name if name in index else f"{name}_b" for name in left]].set_axis(list(left), axis=1)
    fields = differing(old, new)
    different = int(fields.any(axis=1).sum())
    code = old["fingerprint"] != new["fingerprint"]
    time = (old["seconds"] != new["seconds"]) & (old["seconds"].notna() | new["seconds"].notna())
    return Comparison(
        equal=len(old) - different,
        different=different,
        fields=Counter({str(name): int(count) for name, count in fields.sum().items() if count}),
        largest=_largest(old, new, fields),
        other_code=int(code.sum()),
        other_time=int(time.sum()),
        only_a=len(left) - len(old),
        only_b=len(right) - len(new),
    )


def _plain(stored: Stored) -> pd.DataFrame:
    texts = [*CELL, "component", "fingerprint", *_WORDS]
    rows = stored.measurements
    rows = rows.loc[rows["status"] == MEASURED, [*texts, *NUMBERS, "seconds"]].astype(
        dict.fromkeys(texts, object)
    )
    return rows.fillna(dict.fromkeys(texts, ""))


def differing(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Compare aligned measurements: True where a field differs, by more than rounding if it is a number.

    Rounding is that of :func:`sdp_bench.bench.results.columns.same_number`.
    """
    close = np.maximum(1e-12, np.nan_to_num(a["stderr"].to_numpy()) / 100)
    differences = {}
    for name in NUMBERS:
        left, right = a[name].to_numpy(), b[name].to_numpy()
        with np.errstate(invalid="ignore"):
            is_near = abs(left - right) <= np.maximum(close, 1e-9 * np.maximum(abs(left), abs(right)))
            is_near &= np.isfinite(left) & np.isfinite(right)
        differences[name] = ~(is_near | (left == right) | (np.isnan(left) & np.isnan(right)))
    for name in _WORDS:
        differences[name] = (a[name] != b[name]).to_numpy()
    return pd.DataFrame(differences)


def _largest(old: pd.DataFrame, new: pd.DataFrame, fields: pd.DataFrame) -> pd.DataFrame:
    """Return the largest differences, sorted by size and then by key."""
    error = np.fmax(old["stderr"], new["stderr"])
    tables = []
    for name in fields:
        gap = pd.Series(math.inf, index=old.index)
        if name in NUMBERS:
            gap = (abs(old[name] - new[name]) / error).fillna(math.inf)
        gap = gap[fields[name].to_numpy()].sort_values(ascending=False, kind="stable")[:SHOWN]
        a, b = old.loc[gap.index].astype(object), new.loc[gap.index].astype(object)
        row = {
            "key": keys(a),
            "component": a["component"],
            "field": name,
            "a": a[name].where(a[name].notna(), None),
            "b": b[name].where(b[name].notna(), None),
            "standard errors": gap,
        }
        tables.append(pd.DataFrame(row))
    table = pd.concat(tables).infer_objects()
    return table.sort_values("standard errors", ascending=False, kind="stable", ignore_index=True)[:SHOWN]
