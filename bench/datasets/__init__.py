"""Data sets: where they come from, and how they are read.

Each is an object in a module of this folder, or the entry point of an installed package. Iris comes with
scikit-learn. All others are read from their publishers' files, which are downloaded once, or taken from the
folder that ``SDP_BENCH_DATA`` names. Where only a part of a set is there, that part is used, and the set says
which.
"""

from __future__ import annotations

import functools
from typing import TypeVar

from sdp_bench.bench.datasets.base import Dataset
from sdp_bench.bench.errors import UserError
from sdp_ref.registry import installed, instances, loaded

ENTRY_POINTS = "sdp_bench.datasets"
"""Group in which an installed package names its data sets."""

D = TypeVar("D", bound=Dataset)


@functools.cache
def _known() -> dict[str, Dataset]:
    return instances(__name__, Dataset)


def names(kind: type[D]) -> tuple[str, ...]:
    """Names of the data sets of a kind, those of installed packages too.

    Parameters
    ----------
    kind : type
        :class:`~sdp_bench.bench.datasets.base.TabularClassification`, say.
    """
    brought = [
        name
        for name, point in installed(ENTRY_POINTS, _known()).items()
        if isinstance(loaded(point, Dataset), kind)
    ]
    return (*(name for name, known in _known().items() if isinstance(known, kind)), *brought)


def dataset(name: str, kind: type[D]) -> D:
    """Data set by name.

    Parameters
    ----------
    name : str
    kind : type
        What it is to be.

    Raises
    ------
    UserError
        If there is none of that name and kind; the message lists those that there are.
    """
    found = _known().get(name)
    if found is None and (point := installed(ENTRY_POINTS).get(name)):
        found = loaded(point, Dataset)
    if not isinstance(found, kind):
        raise UserError(f"unknown data set '{name}'; choose from {', '.join(names(kind))}")
    return found
