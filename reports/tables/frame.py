"""Measurements as a frame: validated, reduced to one number per measurement, and as CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from ...bench.experiments import experiments
from ...bench.experiments.laws import LawExperiment
from ...bench.metrics import recorded_metric
from ...bench.results.columns import filled, keys
from ...bench.text import table

TEXT = ("experiment", "network", "activation", "net", "rule", "metric", "component", "unit_of_measure")
_NUMBERS = ("depth", "seed", "input", "sigma", "value", "floor", "floor95", "stderr", "seconds", "accuracy")
COLUMNS = TEXT + _NUMBERS

VARIANTS = ("metric_spec", "recipe", "noise")
"""Columns that distinguish variants under one name."""
_OTHERS = ("dataset", "objective", "unit", "run", "samples", "precision")

BOUNDS = ("lower", "upper")
"""Components that are proven bounds of the number itself."""


def checked(frame: pd.DataFrame) -> pd.DataFrame:
    """Return measurements with the types of the report; rows without a number are dropped.

    Text columns become categories in sorted order, and numbers float64: a million rows of objects would take
    gigabytes. The columns are those of :func:`sdp_bench.bench.results.joined.joined_measurements`;
    an empty frame may lack them.
    """
    if frame.empty:
        frame = frame.reindex(columns=[*COLUMNS, *VARIANTS, *_OTHERS])
    known = frame["value"].notna()
    frame = frame.reset_index(drop=True) if known.all() else frame[known].reset_index(drop=True)
    text = {name: filled(frame[name]) for name in (*VARIANTS, *TEXT)}
    other = [name for name in _NUMBERS if frame[name].dtype != float]
    return frame.assign(**text, **{name: pd.to_numeric(frame[name]).astype(float) for name in other})


def by_kind(column: pd.Series, value: Callable[[str], Any]) -> pd.Series:
    """Map the texts of a column without missing values, calling the function once for each distinct text.

    If the values are texts, the result has sorted categories.
    """
    distinct = pd.Series({text: value(text) for text in column.unique()})
    if column.dtype == "category" and len(distinct):
        known = distinct.reindex(column.cat.categories, fill_value=distinct.iloc[0])
        values = pd.Series(known.to_numpy()[column.cat.codes], column.index)
    else:
        values = column.astype(object).map(distinct.to_dict())
    return filled(values) if values.dtype in (object, "str") else values


def positions_by(frame: pd.DataFrame, names: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    """Yield the distinct values of several columns, sorted, each with the ascending positions of its rows."""
    yield from sorted(frame.groupby(list(names), observed=True).indices.items())


def with_largest(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep only the component with the largest value of each measurement whose metric shows no other."""
    largest_only = by_kind(frame["metric"], lambda name: recorded_metric(name).largest_only).astype(bool)
    if not largest_only.any():
        return frame
    several = frame[largest_only]
    measurement = ["experiment", "network", "activation", "depth", "net", "input", "noise", "sigma"]
    measurement += ["rule", "metric_spec"]
    largest = several.loc[several.groupby(measurement)["value"].idxmax()]
    largest = largest.assign(component=pd.Series("", largest.index).astype(frame["component"].dtype))
    return pd.concat([frame[~largest_only], largest], ignore_index=True)


def with_brackets(frame: pd.DataFrame) -> pd.DataFrame:
    """Move proven bounds of distances to a column `bracket`, their relative distance; NaN without bounds."""
    bounds = frame[frame["component"].isin(BOUNDS)]
    if bounds.empty:
        return frame.assign(bracket=math.nan)
    rest = frame[~frame["component"].isin(BOUNDS)]
    measurement = ["experiment", "net", "input", "noise", "sigma", "rule", "metric_spec"]
    sides = bounds.pivot_table(index=measurement, columns="component", values="value")
    width = ((sides["upper"] - sides["lower"]) / sides["upper"]).fillna(0.0).rename("bracket")
    return rest.merge(width.reset_index(), on=measurement, how="left")


def noises_of(experiment: str) -> tuple[str, ...]:
    """Stored noise families of an experiment; empty if it has no noise."""
    known = experiments().get(experiment)
    return tuple(noise.family for noise in known.noises) if isinstance(known, LawExperiment) else ()


MOST_MEASUREMENTS = 250_000
"""Largest number of measurements that a report writes as CSV, which then has about 100 MB."""


def as_csv(frame: pd.DataFrame) -> str:
    """Return the measurements as CSV, with their keys; texts are escaped for spreadsheets."""
    return table(frame.assign(key=keys(frame))).to_csv(index=False, lineterminator="\n")
