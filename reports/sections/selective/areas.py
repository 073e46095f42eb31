"""Areas under risk over coverage, by reading and by scale of the input noise in training."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from sdp_bench.bench.studies.selective import OTHER_SCALES, SCALE
from sdp_bench.reports.sections.selective.words import READINGS, reading_label


@dataclass(frozen=True)
class SeedStatistics:
    """Mean and standard deviation over seeds (n - 1 in its denominator; NaN for one), in per cent."""

    name: str
    mean: float
    sd: float


@dataclass(frozen=True)
class ScaleRow:
    """The Dirichlet model trained at one scale, and its Dirichlet score.

    `scale` is the standard deviation of the input noise. `areas` are RCAUC by reading, in the order of
    `READINGS`, and `accuracy` is that on digits in per cent.
    """

    scale: float
    areas: tuple[SeedStatistics, ...]
    accuracy: float
    seeds: int


def at_scale(frame: pd.DataFrame, scale: float | None = None) -> pd.DataFrame:
    """Measurements of models trained at another scale; without one, at the objectives' own."""
    return frame[frame["sigma"].isna() if scale is None else frame["sigma"] == scale]


def by_reading(areas: pd.DataFrame, score: str) -> tuple[SeedStatistics, ...]:
    """Areas of a score in each of its readings, in the order of `READINGS`."""
    return tuple(
        _statistics(reading_label(score, reading), areas[areas["component"] == reading]["value"])
        for reading in READINGS[score]
    )


def by_scale(frame: pd.DataFrame) -> tuple[ScaleRow, ...]:
    """Dirichlet models by ascending scale, for seeds with all scales; empty if there is only the paper's.

    With other seeds the seeds of scales would be compared, too.
    """
    own = frame[(frame["objective"] == "dirichlet") & (frame["rule"] == "dirichlet")]
    parts = {SCALE: at_scale(own)} | {scale: at_scale(own, scale) for scale in OTHER_SCALES}
    parts = {scale: part for scale, part in sorted(parts.items()) if len(part)}
    if len(parts) < 2:
        return ()
    seeds = set.intersection(*(set(part["seed"]) for part in parts.values()))
    rows = (_scale_row(scale, part[part["seed"].isin(seeds)]) for scale, part in parts.items())
    return tuple(rows) if seeds else ()


def _scale_row(scale: float, part: pd.DataFrame) -> ScaleRow:
    areas = part[part["metric"] == "rcauc"]
    accuracy = 100 * float(part[part["metric"] == "accuracy"]["value"].mean())
    return ScaleRow(scale, by_reading(areas, "dirichlet"), accuracy, int(areas["seed"].nunique()))


def _statistics(name: str, values: pd.Series) -> SeedStatistics:
    mean = 100 * float(values.mean()) if len(values) else math.nan
    return SeedStatistics(name, mean, 100 * float(values.std()) if len(values) > 1 else math.nan)
