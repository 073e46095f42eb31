"""Groups of the components of an input: columns of a table, or blocks of a signal or an image."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..text import printable

OTHERS = "others"
"""Name of the group of all columns that are not listed."""
_SINGLE = 16
"""Most components that are groups by default; more are divided into as many blocks."""
_MOST = 64
_SIZES = re.compile(r"([0-9]{1,4})(?:x([0-9]{1,4}))?")


@dataclass(frozen=True, eq=False)
class Group:
    """Some components of an input; `mask` has the shape of the flattened input."""

    name: str
    mask: NDArray[np.bool_]
    is_block: bool = False  # of a signal or an image, so that its name cannot be listed

    @property
    def component(self) -> int | None:
        """Index of its component, or None if there are several."""
        return int(self.mask.argmax()) if self.mask.sum() == 1 else None


def groups_of(text: str, event: tuple[int, ...], columns: Sequence[str] = ()) -> list[Group]:
    """Return the groups that a text describes, which divide the components of an input among them.

    `event` is the shape of an input, and `columns` are the names of its components, if it is the row of a
    table. The text is ``8`` (blocks along the last axis), ``4x4`` (a grid over the last two axes), or lists
    columns by name or index: ``speed+slope,temperature``. Columns that it leaves out are the group `others`.
    An empty text stands for single components if these are few, and otherwise for 16 blocks. A UserError is
    raised for anything else.
    """
    count = math.prod(event)
    if not text:
        if count <= _SINGLE:
            return [_group(_name(index, event, columns), [index], count) for index in range(count)]
        is_image = len(event) > 1 and event[-2] > 1
        text = f"{min(4, event[-2])}x{min(4, event[-1])}" if is_image else str(min(_SINGLE, event[-1]))
    sizes = _SIZES.fullmatch(text)
    if sizes:
        groups = _blocks(event, int((sizes[2] and sizes[1]) or 1), int(sizes[2] or sizes[1]), bool(sizes[2]))
    else:
        groups = _listed(text, event, columns)
    if len(groups) > _MOST:
        raise UserError(f"{len(groups)} groups take too many samples; at most {_MOST} are possible")
    return groups


def _group(name: str, components: Sequence[int] | NDArray[np.intp], count: int) -> Group:
    mask = np.zeros(count, dtype=bool)
    mask[components] = True
    return Group(name, mask)


def _name(index: int, event: tuple[int, ...], columns: Sequence[str]) -> str:
    if columns:
        return columns[index]
    return f"x{','.join(str(place) for place in np.unravel_index(index, event))}"


def _blocks(event: tuple[int, ...], rows: int, columns: int, is_grid: bool) -> list[Group]:
    height = event[-2] if is_grid and len(event) > 1 else 1
    if not (1 <= rows <= height and 1 <= columns <= event[-1]):
        size = f"{rows}x{columns}" if is_grid else str(columns)
        raise UserError(f"groups '{size}' are more blocks than inputs of shape {event} have")
    indices = np.arange(math.prod(event)).reshape(-1, height, event[-1])
    groups = []
    for band in np.array_split(indices, rows, axis=1):
        for block in np.array_split(band, columns, axis=2):
            top, left = divmod(int(block[0, 0, 0]), event[-1])
            bottom, right = divmod(int(block[0, -1, -1]), event[-1])
            name = f"rows {top}-{bottom} columns {left}-{right}" if is_grid else f"{left}-{right}"
            groups.append(replace(_group(name, block.reshape(-1), indices.size), is_block=True))
    return groups


def _listed(text: str, event: tuple[int, ...], columns: Sequence[str]) -> list[Group]:
    if len(event) > 1:
        raise UserError(f"inputs of shape {event} have no columns; divide them into blocks: 8 or 4x4")
    names = list(columns) or [_name(index, event, ()) for index in range(event[0])]
    left, groups = list(range(event[0])), []
    for part in text.split(","):
        components = []
        for name in map(str.strip, part.split("+")):
            if name in names:
                index = names.index(name)
            elif name.isdecimal() and int(name) < event[0]:
                index = int(name)
            else:
                raise UserError(f"there is no column '{printable(name)}': there are {', '.join(names[:20])}")
            if index not in left:
                raise UserError(f"column '{printable(name)}' is in two groups")
            left.remove(index)
            components.append(index)
        groups.append(_group(part.strip(), components, event[0]))
    return [*groups, _group(OTHERS, left, event[0])] if left else groups
