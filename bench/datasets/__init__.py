"""Data sets: sources and loading.

Each data set is an object in a module of this folder, or an entry point of an installed package. Iris comes
with scikit-learn. All others are read from their publishers' files, which are downloaded once, or taken from
the folder named by ``SDP_BENCH_DATA``. If only a part of a set is available, that part is used and reported.
"""

from __future__ import annotations

import functools
from typing import TypeVar

from sdp_ref.errors import not_found
from sdp_ref.registry import installed, instances, loaded

from ..errors import UserError
from .base import Dataset

ENTRY_POINTS = "sdp_bench.datasets"
"""Entry-point group in which an installed package registers its data sets."""

D = TypeVar("D", bound=Dataset)


@functools.cache
def _known() -> dict[str, Dataset]:
    return instances(__name__, Dataset)


def names(kind: type[D]) -> tuple[str, ...]:
    """Return the names of the data sets of one type (`TabularClassification`, say), also installed ones."""
    brought = {name: loaded(point, Dataset) for name, point in installed(ENTRY_POINTS, _known()).items()}
    return tuple(name for name, known in (_known() | brought).items() if isinstance(known, kind))


def dataset(name: str, kind: type[D]) -> D:
    """Return a data set by name and type; a UserError if it does not exist lists the available ones."""
    known = _known().get(name)
    if known is None and (point := installed(ENTRY_POINTS).get(name)):
        known = loaded(point, Dataset)
    if not isinstance(known, kind):
        raise UserError(not_found("data set", name, names(kind)))
    return known
