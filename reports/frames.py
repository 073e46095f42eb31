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
from ..bench.results.joined import joined
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

    `suite` selects experiments by name, ``"iris-tv"``, and `runs` selects runs by their numbers or parts of
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
    if suites is not None and not _several(suites, str):
        raise UserError(f"suite is the name of an experiment, or several of them, got {shown(suite)}")
    if runs is not None and not _several(runs, str):
        raise UserError(f"runs are numbers of runs, as text, got {shown(runs)}")
    stored = read(_place(path))
    for note in stored.notes:
        warnings.warn(note, stacklevel=2)
    chosen = {stored.run(number).id for number in runs or stored.runs} or {stored.run().id}
    frame = described(joined(stored, [stored.runs[number] for number in sorted(chosen)]))
    return frame if suites is None else _of_suites(frame, suites, path)


def _place(path: object) -> Path:
    if not isinstance(path, str | PathLike):
        raise UserError(f"load takes a path or 'committed', got {type(path).__name__}")
    if path == COMMITTED:
        return results.COMMITTED
    place = Path(path)
    if not str(path).strip() or not os.path.exists(place):  # noqa: PTH110  which takes any text
        raise UserError(
            f"there is no file or folder {shown(str(path))}; 'committed' loads the committed results"
        )
    if not (place.is_file() or place.is_dir()):  # reading a pipe might never end
        raise UserError(f"{place} is not a folder")
    return place


def _several(values: object, kind: type) -> bool:
    is_some = isinstance(values, Collection) and not isinstance(values, str | bytes) and len(values) > 0
    return is_some and all(type(value) is kind for value in values)  # type: ignore[attr-defined]


def described(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert measurements of experiments (none: no columns are needed) to the columns of :func:`load`."""
    types = COLUMNS["dtype"].to_dict()
    once = frame.reindex(columns=[*types]) if frame.empty else _once(frame)
    once = once[[*types]].astype(types)
    return once.assign(**{name: _as_from_parquet(once[name]) for name in _TEXTS})


def _as_from_parquet(column: pd.Series) -> pd.Series:
    """Return categories with the dtype that pandas reads from a Parquet file of them."""
    # without any category, pandas reads objects
    names = pd.Index([*column.cat.categories] or [""], dtype="str")
    return pd.Series(pd.Categorical.from_codes(column.cat.codes, names), column.index)


def _once(frame: pd.DataFrame) -> pd.DataFrame:
    """Merge rows of the same measurement, collecting the names of their experiments."""
    asking = frame["experiment"].array
    component = frame["component"].cat
    number = cells(frame) * len(component.categories) + component.codes.to_numpy()
    place, _ = pd.factorize(number)  # by first appearance
    asked = np.zeros((place.max(initial=-1) + 1, len(asking.categories)), dtype=bool)
    asked[place, asking.codes] = True
    kind = np.zeros(len(asked), dtype=np.int64)
    for eight in np.packbits(asked, axis=1).T:  # np.unique of whole rows takes 20 times as long
        kind, _ = pd.factorize(kind * 256 + eight)
    kinds = asked[np.unique(kind, return_index=True)[1]]
    names = [", ".join(asking.categories[own]) for own in kinds]
    first = np.sort(np.unique(place, return_index=True)[1])
    once = frame.iloc[first].drop(columns="experiment").reset_index(drop=True)
    vary = by_kind(once["metric_spec"], lambda spec: recorded_metric(spec).cells_vary).to_numpy(bool)
    return once.assign(suites=texts(kind[place[first]], names), stderr=once["stderr"].mask(vary))


def _of_suites(frame: pd.DataFrame, suites: Collection[str], path: object) -> pd.DataFrame:
    named = {text: set(text.split(", ")) for text in frame["suites"].cat.categories}
    known = set[str]().union(*named.values())
    if unknown := [name for name in suites if name not in known]:
        there = ", ".join(sorted(known)) or "none"
        raise UserError(f"no suite {shown(unknown[0])} in {path}; there are {there}")
    wanted = [text for text, names in named.items() if not names.isdisjoint(suites)]
    chosen = frame[frame["suites"].isin(wanted)].reset_index(drop=True)
    used = {name: chosen[name].cat.remove_unused_categories() for name in _TEXTS}
    return chosen.assign(**{name: _as_from_parquet(column) for name, column in used.items()})
