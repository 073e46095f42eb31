"""Comparison of two results files."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sdp_bench.bench.results.queries import Queries
from sdp_bench.bench.results.tables import called, differing, matched

SHOWN = 20
"""Number of differences that are listed."""


@dataclass(frozen=True)
class Comparison:
    """Two results files compared.

    `equal` and `different` count the measurements in both. Numbers may differ by rounding
    (:func:`sdp_bench.bench.results.record.same_number`), the unit and the precision of the oracle not at all.
    `fields` counts the differences by field. `largest` lists the largest ones: key, component, field, a, b,
    and the difference in units of the larger standard error (infinite if both are 0, or for text).
    `other_code` and `other_time` count measurements whose versions or whose rule's own time differ, which is
    not a difference of the measurement. `only_a` and `only_b` are in one file only.
    """

    equal: int
    different: int
    fields: Counter[str]
    largest: pd.DataFrame
    other_code: int
    other_time: int
    only_a: int
    only_b: int


def compare(a: Queries, b: Queries) -> Comparison:
    """Compare two results files measurement by measurement."""
    left, right = a.table("records"), b.table("records")
    here, there = matched("records", left, right)
    old, new = left.iloc[here].reset_index(drop=True), right.iloc[there].reset_index(drop=True)
    fields = differing(old, new)
    wrong = fields.any(axis=1).to_numpy()
    code = old["fingerprint"].astype(object) != new["fingerprint"].astype(object)
    time = (old["seconds"] != new["seconds"]) & (old["seconds"].notna() | new["seconds"].notna())
    counts = Counter({str(name): int(count) for name, count in fields.sum().items() if count})
    return Comparison(
        len(old) - int(wrong.sum()),
        int(wrong.sum()),
        counts,
        _largest(old, new, fields),
        int(code.sum()),
        int(time.sum()),
        len(left) - len(old),
        len(right) - len(new),
    )


def _largest(old: pd.DataFrame, new: pd.DataFrame, fields: pd.DataFrame) -> pd.DataFrame:
    """Return the largest differences, sorted by size and then by key."""
    error = np.fmax(old["stderr"], new["stderr"])
    found = []
    for name in fields:
        gap = pd.Series(math.inf, index=old.index)
        if old[name].dtype == float:
            gap = (abs(old[name] - new[name]) / error).fillna(math.inf)
        gap = gap[fields[name]].sort_values(ascending=False, kind="stable")[:SHOWN]
        a, b = (frame.loc[gap.index].astype(object) for frame in (old, new))
        row = {
            "key": called("records", a.assign(component=None)),
            "component": a["component"].fillna(""),
            "field": name,
            "a": a[name].where(a[name].notna(), None),
            "b": b[name].where(b[name].notna(), None),
            "standard errors": gap,
        }
        found.append(pd.DataFrame(row))
    table = pd.concat(found).infer_objects()
    return table.sort_values("standard errors", ascending=False, kind="stable", ignore_index=True)[:SHOWN]
