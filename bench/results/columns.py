"""The one table: columns of plans and measurements, what a measurement can be, and the ranges of its numbers.

A plan has a row for each unit, rule and metric that an experiment requests. A measurement is such a row
without experiment and group, with the numbers; it has a row for each component of the metric.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sdp_ref.errors import on_one_line

from ..lazy import pd
from ..text import public

if TYPE_CHECKING:
    import pyarrow as pa

CELL = ["unit", "rule", "metric_spec"]
"""Columns that identify what is measured; a metric may have several components."""

SUBJECT: Mapping[str, str] = MappingProxyType(
    {
        "unit": "text",
        "network": "text",
        "activation": "text",
        "depth": "integer",
        "net": "text",
        "net_source": "text",
        "seed": "integer",
        "input": "integer",
        "noise": "text",
        "sigma": "number",
        "sampler": "text",
        "samples": "integer",
        "dataset": "text",
        "objective": "text",
        "recipe": "text",
        "accuracy": "number",
    }
)
"""Columns that describe a unit: what rules are measured on.

`unit` is a hash of everything that determines the numbers besides rule, metric and code; all seeds derive
from it. With an oracle, `net` is the digest of the net, `input` the row of its data set, `noise` the family
of the input's distribution, `sigma` its scale in units of the net's input, and `sampler` draws `samples`.
Without one, `dataset` and `objective` say what is trained, and `seed` is that of the replicate. `recipe`
describes the training, or the rest of the design.
"""

ASKED: Mapping[str, str] = MappingProxyType(
    {
        "rule": "text",
        "rule_label": "text",
        "colour": "text",
        "sampling": "integer",
        "marginal": "flag",
        "reference": "flag",
        "rank": "integer",
        "metric_spec": "text",
        "fingerprint": "text",
    }
)
"""Columns that describe a rule and a metric with their parameters, and the versions that numbers rest on."""

OUTCOME: Mapping[str, str] = MappingProxyType(
    {
        "component": "text",
        "value": "number",
        "floor": "number",
        "floor95": "number",
        "stderr": "number",
        "unit_of_measure": "text",
        "seconds": "number",
        "precision": "text",
        "status": "text",
        "reason": "text",
        "run": "text",
    }
)
"""Columns of the result.

`component` names an output or a pair of classes, say, if a metric has several numbers. `floor`, `floor95` and
`stderr` are those of :class:`sdp_bench.oracles.estimate.estimate.Estimate`, if known. `unit_of_measure` is
"1" for pure numbers and "output" for units of the net's output. `seconds` is the rule's own time for one
input, or the time until a failure, if known. `precision` of the oracle is ``float32`` or ``float64``; missing
without an oracle, and in results before version 0.7. `status` is one of :data:`STATUSES`, and `reason` one
line if it is not ``measured``.
"""

MEASUREMENT: Mapping[str, str] = MappingProxyType({**SUBJECT, **ASKED, **OUTCOME})
PLAN: Mapping[str, str] = MappingProxyType({"experiment": "text", "group": "text", **SUBJECT, **ASKED})
"""Columns of a plan; rows of a `group` are measured together, by one worker."""

MEASURED, FAILED, UNDEFINED, UNSUPPORTED = "measured", "failed", "undefined", "unsupported"
STATUSES = (MEASURED, FAILED, UNDEFINED, UNSUPPORTED)
"""The next run repeats what failed. A metric may be undefined for a law, and a rule may not support a net."""

NUMBERS = ("value", "floor", "floor95", "stderr")
"""Numbers of a measurement."""

_PANDAS = {"text": "object", "integer": "Int64", "number": "float64", "flag": "bool"}


def typed(rows: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return rows with exactly these columns and their types; absent columns are missing values."""
    missing = {name: None for name in columns if name not in rows}
    frame = rows.assign(**missing)[[*columns]]
    return frame.astype({name: _PANDAS[kind] for name, kind in columns.items()})


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow types of columns in files."""
    import pyarrow as pa

    types = {
        "text": pa.dictionary(pa.int32(), pa.string()),
        "integer": pa.int64(),
        "number": pa.float64(),
        "flag": pa.bool_(),
    }
    return pa.schema([pa.field(name, types[kind]) for name, kind in columns.items()])


def keys(frame: pd.DataFrame) -> pd.Series:
    """Return the keys of measurements, ``unit/rule/metric``; they are empty if the frame has no units."""
    if "unit" not in frame:
        return pd.Series("", index=frame.index, dtype=object)
    parts = (frame[name].astype(object) for name in CELL)
    return pd.Series(["/".join(part) for part in zip(*parts, strict=True)], frame.index, dtype=object)


def same_number(a: float, b: float, stderr: float | None = None) -> bool:
    """Whether two values differ by no more than rounding, or by a hundredth of their standard error.

    A rule gets the inputs of its group as one batch, and batches of other sizes round differently. This shows
    where a number is a small difference of large ones, or a sample lies at the edge of a cell.
    """
    noise = 0.0 if stderr is None or math.isnan(stderr) else stderr / 100
    return a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=max(1e-12, noise))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as plain values by column: None where a text or an integer is missing, NaN for a number."""
    columns: dict[str, list[Any]] = {}
    for name in frame:
        column = frame[name]
        if column.dtype != float:
            column = column.astype(object).where(column.notna(), None)
        columns[str(name)] = column.tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


# Text as categories -------------------------------------------------------------------------------


def texts(codes: np.ndarray, known: Iterable[str]) -> pd.Categorical:
    """Make categories in alphabetical order from codes of distinct texts; -1 is a missing text."""
    known = list(known)
    unordered = pd.Categorical.from_codes(codes, pd.Index(known, dtype=object))
    return unordered.reorder_categories(pd.Index(sorted(known), dtype=object))


def without_unused(column: pd.Categorical) -> pd.Categorical:
    """Return a column without categories that no row has; pandas sorts all rows to find them."""
    used = np.bincount(column.codes + 1, minlength=len(column.categories) + 1)[1:] > 0
    if used.all():
        return column
    codes = np.append(np.cumsum(used) - 1, -1)[column.codes]  # -1, a missing text, is the last
    return pd.Categorical.from_codes(codes, column.categories[used])


def filled(column: pd.Series) -> pd.Series:
    """Return a column of text as categories in alphabetical order, with an empty text for missing values.

    The empty text is always among the categories.
    """
    codes, known = pd.factorize(column)
    named = list(dict.fromkeys([*map(str, known), ""]))
    return pd.Series(texts(np.where(codes < 0, named.index(""), codes), named), index=column.index)


def metric_names(specs: Iterable[str]) -> pd.Categorical:
    """Return the names of metrics from their specs."""
    codes, names = pd.factorize(np.array([spec.partition(":")[0] for spec in specs], dtype=object))
    return texts(codes, list(names))


# Possible numbers ---------------------------------------------------------------------------------

_ROUNDING = 1e-9
_LARGEST = sys.float_info.max


class Range(NamedTuple):
    """Smallest and largest possible number; by default any finite one."""

    low: float = -_LARGEST
    high: float = _LARGEST


_SHARE = Range(-_ROUNDING, 1 + _ROUNDING)
_SIZE = Range(-_ROUNDING)
_RATIO = Range(-_ROUNDING, math.inf)

_RANGES = {
    **dict.fromkeys(("tv_headline", "tv_principal", "tv_paper", "tv_joint", "tv_output"), _SHARE),
    **dict.fromkeys(("tv_class", "tv_difference", "tv_margin", "tv_pairs", "tv_sliced"), _SHARE),
    **dict.fromkeys(("accuracy", "risk", "rcauc", "picp", "validation_picp"), _SHARE),
    **dict.fromkeys(("w1", "w1_certified", "w1_sliced", "bures", "bures_logits"), _SIZE),
    **dict.fromkeys(("mpiw", "validation_mpiw", "qualified"), _SIZE),
    **dict.fromkeys(("input_variance", "learning_rate", "weight_decay"), _SIZE),
    **dict.fromkeys(("std_ratio", "iqr_ratio", "gaussian_kl", "quantile_mean", "quantile_max"), _RATIO),
    **dict.fromkeys(("interval_width", "tails"), _RATIO),
    "crps": _SIZE,
    "coverage": Range(-_ROUNDING, 2.0),  # the level, and what an exact rule with few samples may miss it by
    "log_score": Range(high=math.inf),
    "min_eigenvalue": Range(high=1 + _ROUNDING),
}
_ANY = Range()


def limits(metric: str) -> dict[str, Range]:
    """Return the ranges of value, floor, 95 % point and standard error of a metric, given by its spec.

    A metric that is not the package's own may have any finite value.
    """
    value = _RANGES.get(metric.partition(":")[0], _ANY)
    floor = Range(value.low, min(value.high, _LARGEST))
    return {"value": value, "floor": floor, "floor95": floor, "stderr": Range(0.0)}


def impossible(measured: pd.DataFrame) -> pd.Series:
    """Describe what is wrong with the numbers of measurements; empty text where nothing is."""
    reasons = [""] * len(measured)
    metrics = pd.Categorical(measured["metric_spec"])
    ranges = [limits(str(metric)) for metric in metrics.categories]
    for name in reversed(NUMBERS) if ranges else ():
        numbers = measured[name].to_numpy(float)
        low, high = np.array([limits[name] for limits in ranges])[metrics.codes].T
        with np.errstate(invalid="ignore"):
            wrong = (numbers < low) | (numbers > high)
        if name == "value":
            wrong |= np.isnan(numbers)
        for index in np.flatnonzero(wrong):
            metric = measured["metric_spec"].iloc[index]
            reasons[index] = f"{name} {numbers[index]} of {metric}, which cannot be"
    return pd.Series(reasons, index=measured.index, dtype=object)


def outcome(
    unit: str, rule: str, metric: str, status: str = MEASURED, reason: str = "", **numbers: Any
) -> dict[str, Any]:
    """Return a row of key, status and numbers, which `measurements` completes with a plan.

    The reason is stored on one line, without folders of this machine.
    """
    reason = public(on_one_line(reason))
    return {"unit": unit, "rule": rule, "metric_spec": metric, "status": status, "reason": reason, **numbers}


def measurements(plan: pd.DataFrame, outcomes: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the measurements of rows of a plan; an impossible number is a failure of its metric.

    Outcomes without a row of the plan are left out. A row without an outcome is undefined: some methods
    have no number for some metrics.
    """
    described = plan[[*SUBJECT, *ASKED]].drop_duplicates(CELL)
    names = [name for name in OUTCOME if name != "run"]
    rows = described.merge(pd.DataFrame(list(outcomes), columns=CELL + names), on=CELL, how="left")
    has_no_outcome = rows["status"].isna()
    rows["status"] = rows["status"].astype(object).where(~has_no_outcome, UNDEFINED)
    rows["reason"] = rows["reason"].astype(object)
    measured = rows[rows["status"] == MEASURED]
    faults = measured[CELL].assign(fault=impossible(measured))
    faults = faults[faults["fault"] != ""].drop_duplicates(CELL)
    rows = rows.merge(faults, on=CELL, how="left")
    is_wrong = rows["fault"].notna()
    rows.loc[is_wrong, "status"] = FAILED
    rows.loc[is_wrong, "reason"] = rows["fault"]
    rows.loc[is_wrong, "component"] = None
    rows.loc[rows["status"] != MEASURED, list(NUMBERS)] = math.nan
    rows = rows[~(is_wrong & rows.duplicated(CELL))]
    return typed(rows, MEASUREMENT)
