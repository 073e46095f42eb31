"""Row labels of the measurements behind a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


class Labels(Sequence[int]):
    """Sorted row labels, hashable, so that numbers that rest on the same rows can be matched.

    They take four bytes each; as tuples those of a million measurements would take 100 MB.
    """

    __slots__ = ("_hash", "_labels")

    def __init__(self, labels: ArrayLike = ()) -> None:
        self._labels = np.sort(np.asarray(labels, dtype=np.int32))
        self._hash = hash(self._labels.tobytes())

    def __len__(self) -> int:
        return len(self._labels)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        found: int | list[int] = self._labels[place].tolist()
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self[:])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[np.int32]:
        return np.array(self._labels, dtype=dtype, copy=copy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Labels) and np.array_equal(self._labels, other._labels)

    def __hash__(self) -> int:
        return self._hash


def labels_of(rows: Sequence[int]) -> Labels:
    return rows if isinstance(rows, Labels) else Labels(rows)
