"""Tapes: the ops of a net with their inputs and outputs, and calls of whole modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


class UntraceableError(ValueError):
    """The net cannot be turned into a list of ops."""


@dataclass(frozen=True)
class Ref:
    """Reference to a value on a tape; 0 is the input of the net."""

    index: int


@dataclass(frozen=True)
class Entry:
    """One op on a tape, with a :class:`Ref` in place of each value among its arguments.

    `function` is an ATen op or :func:`overwritten`. `outputs` contains None for outputs that are not tensors,
    and `real` states which outputs are floating-point. `path` is the innermost active module of the net, and
    `draws` marks random results.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[int | None, ...]
    shapes: tuple[tuple[int, ...], ...]
    real: tuple[bool, ...]
    path: str
    draws: bool = False


@dataclass(frozen=True)
class Span:
    """A call of a module that a rule handles as a whole: entries ``start`` to ``stop - 1`` of the tape."""

    module: nn.Module
    inputs: tuple[int, ...]
    output: int
    start: int
    stop: int
    path: str


@dataclass
class Tape:
    """The recording of a net, with its actual input `given` and output `result`."""

    entries: list[Entry] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    output: int = 0
    given: Tensor = field(default_factory=lambda: torch.empty(0))
    result: Tensor = field(default_factory=lambda: torch.empty(0))


def overwritten(
    old: Tensor,
    new: Tensor,
    place: tuple[Any, Any, int],
    written: tuple[Any, Any, int],
    length: int,
) -> Tensor:
    """Return a view of memory after a write to another view of it."""
    memory = torch.zeros(length, dtype=new.dtype, device=new.device)
    memory.as_strided(*place).copy_(old)
    memory.as_strided(*written).copy_(new)
    return memory.as_strided(*place).clone()


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, tuple | list):
        return [tree]
    found: list[Any] = []
    for part in tree:
        if isinstance(part, tuple | list | dict):
            found.extend(leaves(part))
        else:
            found.append(part)
    return found


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to the leaves of nested lists, tuples and dicts."""
    if isinstance(tree, dict):
        return {key: mapped(function, part) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)([mapped(function, part) for part in tree])
    return function(tree)
