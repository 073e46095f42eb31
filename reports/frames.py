"""Measurements as a data frame."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from ..bench.errors import UserError
from ..bench.metrics import recorded_metric
from ..bench.results.columns import texts
from ..bench.results.folder import cells, read
from ..bench.results.joined import joined_measurements
from ..bench.text import shown
from . import results
from .tables.frame import by_kind

COMMITTED = "committed"
"""Name for the results that come with the package."""

COLUMNS = pd.read_csv(Path(__file__).with_name("columns.csv"), keep_default_na=False).set_index("name")
"""The columns that :func:`load` returns, in order; `unit_of_measure` holds the units of values."""


_TEXTS = COLUMNS.index[COLUMNS["dtype"] == "category"]


def columns() -> pd.DataFrame:
    """Describe the columns that :func:`load` returns, with `dtype`, `unit` and `meaning`."""
    return COLUMNS.copy()


def load(
    path: str | PathLike[str],
    *,
    suite: str | Collection[str] | None = None,
    runs: Collection[str] | None = None,
) -> pd.DataFrame:
    """Load measurements from a folder of results, one per row.

    `path` is such a folder (``"results"``), or ``"committed"`` for the results that come with the package.
    Write ``"./committed"`` for a folder of that name.

    `suite` selects experiments by name, ``"iris-tv"``, and `runs` selects runs by their ids or parts of
    them; by default all are loaded. If several runs measured the same thing in an experiment, perhaps with
    different settings, only the newest measurement is returned. A measurement that belongs to several
    experiments is one row, and its column `suites` names them all.

    :func:`columns` describes the columns. Rows are ordered by experiment, depth, seed, sigma, input, rule,
    metric and component.

    A damaged file is left out, with a warning that names it. Raises :class:`sdp_bench.UserError` if the
    folder does not exist, has another format, or lacks an experiment or run.

    Examples
    --------
    >>> import sdp_bench
    >>> frame = sdp_bench.load("committed", suite="iris-tv")
    >>> frame.groupby(["rule", "sigma"])["value"].mean()  # doctest: +SKIP
    """
    suites = [suite] if isinstance(suite, str) else suite
    if suites is not None and not _are_texts(suites):
        raise UserError(f"suite is the name of an experiment, or several of them, got {shown(suite)}")
    if runs is not None and not _are_texts(runs):
        raise UserError(f"runs are ids of runs, as text, got {shown(runs)}")
    stored = read(_folder(path))
    for note in stored.notes:
        warnings.warn(note, stacklevel=2)
    run_ids = {stored.run(run_id).id for run_id in runs or stored.runs} or {stored.run().id}
    frame = described(joined_measurements(stored, [stored.runs[run_id] for run_id in sorted(run_ids)]))
    return frame if suites is None else _of_suites(frame, suites, path)


def _folder(path: object) -> Path:
    if not isinstance(path, str | PathLike):
        raise UserError(f"load takes a path or 'committed', got {type(path).__name__}")
    if path == COMMITTED:
        return results.COMMITTED
    folder = Path(path)
    if not str(path).strip() or not os.path.exists(folder):  # noqa: PTH110  which takes any text
        raise UserError(
            f"there is no file or folder {shown(str(path))}; 'committed' loads the committed results"
        )
    if not (folder.is_file() or folder.is_dir()):  # reading a pipe might never end
        raise UserError(f"{folder} is not a folder")
    return folder


def _are_texts(values: object) -> bool:
    """Whether `values` is a collection of at least one text."""
    if not isinstance(values, Collection) or isinstance(values, str | bytes):
        return False
    return len(values) > 0 and all(type(value) is str for value in values)


def described(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert measurements of experiments (none: no columns are needed) to the columns of :func:`load`."""
    types = COLUMNS["dtype"].to_dict()
    merged = frame.reindex(columns=[*types]) if frame.empty else _merged(frame)
    merged = merged[[*types]].astype(types)
    return merged.assign(**{name: _as_from_parquet(merged[name]) for name in _TEXTS})


def _as_from_parquet(column: pd.Series) -> pd.Series:
    """Return categories with the dtype that pandas reads from a Parquet file of them."""
    # without any category, pandas reads objects
    names = pd.Index([*column.cat.categories] or [""], dtype="str")
    return pd.Series(pd.Categorical.from_codes(column.cat.codes, names), column.index)


def _merged(frame: pd.DataFrame) -> pd.DataFrame:
    """Merge rows of the same measurement, collecting the names of their experiments in `suites`."""
    experiment = frame["experiment"].array
    component = frame["component"].cat
    measurement = cells(frame) * len(component.categories) + component.codes.to_numpy()
    rows, _ = pd.factorize(measurement)  # row of the result, by first appearance
    is_of = np.zeros((rows.max(initial=-1) + 1, len(experiment.categories)), dtype=bool)
    is_of[rows, experiment.codes] = True  # whether each measurement is of each experiment
    # Number the distinct combinations of experiments, eight columns at a time: np.unique of whole rows takes
    # 20 times as long.
    combination = np.zeros(len(is_of), dtype=np.int64)
    for byte in np.packbits(is_of, axis=1).T:
        combination, _ = pd.factorize(combination * 256 + byte)
    _, first_of_combination = np.unique(combination, return_index=True)
    names = [", ".join(experiment.categories[members]) for members in is_of[first_of_combination]]
    _, first_of_row = np.unique(rows, return_index=True)
    first = np.sort(first_of_row)
    merged = frame.iloc[first].drop(columns="experiment").reset_index(drop=True)
    is_unknown = by_kind(merged["metric_spec"], lambda spec: recorded_metric(spec).cells_vary).to_numpy(bool)
    return merged.assign(
        suites=texts(combination[rows[first]], names), stderr=merged["stderr"].mask(is_unknown)
    )


def _of_suites(frame: pd.DataFrame, suites: Collection[str], path: object) -> pd.DataFrame:
    experiments_of = {text: set(text.split(", ")) for text in frame["suites"].cat.categories}
    present = set[str]().union(*experiments_of.values())
    missing = [name for name in suites if name not in present]
    if missing:
        listed = ", ".join(sorted(present)) or "none"
        raise UserError(f"no suite {shown(missing[0])} in {path}; there are {listed}")
    selected = [text for text, names in experiments_of.items() if not names.isdisjoint(suites)]
    chosen = frame[frame["suites"].isin(selected)].reset_index(drop=True)
    used = {name: chosen[name].cat.remove_unused_categories() for name in _TEXTS}
    return chosen.assign(**{name: _as_from_parquet(column) for name, column in used.items()})
