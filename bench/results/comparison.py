"""Two results files side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sdp_bench.bench.results.record import same_number
from sdp_bench.bench.results.store import Store


@dataclass(frozen=True)
class Comparison:
    """Two results files side by side.

    Attributes
    ----------
    equal : int
        Measurements in both with the same value, but for rounding.
    different : DataFrame
        Those in both with another value: key, component, a, b, and the difference in units of the
        larger of their standard errors (infinite where both are 0).
    only_a, only_b : int
    """

    equal: int
    different: pd.DataFrame
    only_a: int
    only_b: int


def compare(a: Store, b: Store) -> Comparison:
    """Compare two results files measurement by measurement."""
    names = ["unit", "rule", "metric", "component"]
    kept = [*names, "value", "stderr"]
    left, right = (store.tables()["records"][kept].fillna({"component": ""}) for store in (a, b))
    both = left.merge(right, on=names, suffixes=("_a", "_b"))
    equal = [
        same_number(a, b, error)
        for a, b, error in zip(both.value_a, both.value_b, both.stderr_a, strict=True)
    ]
    apart = both[~np.array(equal, dtype=bool)]
    larger = np.fmax(apart.stderr_a.fillna(0), apart.stderr_b.fillna(0))
    gaps = [
        abs(x - y) / error if error > 0 else math.inf
        for x, y, error in zip(apart.value_a, apart.value_b, larger, strict=True)
    ]
    different = pd.DataFrame(
        {
            "key": apart.unit + "/" + apart.rule + "/" + apart.metric,
            "component": apart.component,
            "a": apart.value_a,
            "b": apart.value_b,
            "standard errors": gaps,
        }
    )
    return Comparison(
        len(both) - len(apart),
        different.sort_values("standard errors", ascending=False, ignore_index=True),
        len(left) - len(both),
        len(right) - len(both),
    )
