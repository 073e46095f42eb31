"""Measurements as a frame: checked, and brought to one number a measurement."""

from __future__ import annotations

import math

import pandas as pd

from sdp_bench.bench.experiments import experiments
from sdp_bench.bench.experiments.laws import LawExperiment
from sdp_bench.bench.metrics import recorded_metric
from sdp_bench.bench.noise import GAUSSIAN
from sdp_bench.reports.style import labels

_TEXT = ("experiment", "network", "activation", "net", "rule", "metric", "component", "unit_of_measure")
_NUMBERS = ("depth", "seed", "input", "sigma", "value", "floor", "floor95", "stderr", "seconds", "accuracy")
COLUMNS = _TEXT + _NUMBERS

VARIANTS = ("metric_spec", "recipe")
"""Columns that tell apart what has one name; a frame need not come with them."""

BOUNDS = ("lower", "upper")
"""Components that are proven bounds of the number itself."""


def checked(frame: pd.DataFrame) -> pd.DataFrame:
    """Measurements with the columns and types the report relies on; those without a number are left out.

    Parameters
    ----------
    frame : DataFrame
        Long format, one row each. Columns that the report does not need are kept as they are. Without
        `metric_spec` metrics have their default options, and without `recipe` nets have one in common.

    Returns
    -------
    DataFrame

    Raises
    ------
    ValueError
        If a non-empty frame lacks columns.
    """
    if frame.empty:
        frame = frame.reindex(columns=list(COLUMNS))
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise ValueError(f"the results lack the columns {', '.join(missing)}")
    frame = frame[frame["value"].notna()].reset_index(drop=True)
    text = {name: frame[name].astype(object).where(frame[name].notna(), "").map(str) for name in _TEXT}
    for name, default in (("metric_spec", text["metric"]), ("recipe", "")):
        known = frame.get(name, pd.Series(index=frame.index, dtype=object))
        text[name] = known.astype(object).where(known.notna(), default)
    numbers = {name: pd.to_numeric(frame[name]).astype(float) for name in _NUMBERS}
    return frame.assign(**text, **numbers)


def with_largest(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the component with the largest value of each measurement of which no other is shown."""
    largest_only = frame["metric"].map(lambda name: recorded_metric(name).largest_only).astype(bool)
    several = frame[largest_only]
    measurement = ["experiment", "network", "activation", "depth", "net", "input", "sigma", "rule"]
    measurement += ["metric_spec"]
    largest = several.loc[several.groupby(measurement)["value"].idxmax()].assign(component="")
    return pd.concat([frame[~largest_only], largest], ignore_index=True)


def with_brackets(frame: pd.DataFrame) -> pd.DataFrame:
    """Proven bounds of each distance as a column `bracket`: their relative distance; NaN without any."""
    bounds = frame[frame["component"].isin(BOUNDS)]
    rest = frame[~frame["component"].isin(BOUNDS)].assign(bracket=math.nan)
    if bounds.empty:
        return rest
    measurement = ["experiment", "net", "input", "sigma", "rule", "metric_spec"]
    sides = bounds.pivot_table(index=measurement, columns="component", values="value")
    width = ((sides["upper"] - sides["lower"]) / sides["upper"]).fillna(0.0).rename("bracket")
    return rest.drop(columns="bracket").merge(width.reset_index(), on=measurement, how="left")


def noise_symbol(experiment: str) -> str:
    """Symbol of the scale of an experiment's noise: σ of a standard deviation, γ of a stable law's scale."""
    known = experiments().get(experiment)
    noise = known.noise if isinstance(known, LawExperiment) else GAUSSIAN
    return labels.scale_label(noise.parameter)
