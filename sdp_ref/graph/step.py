"""A net as a list of steps: one op each, and the values it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Step:
    """One op of a traced net on values (N, *event); the module shares its parameters with the net.

    `inputs` are the values that it reads: 0 is the input of the net, k the result of step k. `path` is for
    messages.
    """

    module: nn.Module
    inputs: tuple[int, ...]
    path: str


def last_uses(steps: Sequence[Step]) -> list[frozenset[int]]:
    """For each step, the values that are not read afterwards (never the output)."""
    last: dict[int, int] = {}
    for place, step in enumerate(steps):
        last.update(dict.fromkeys(step.inputs, place))
    return [frozenset(i for i in step.inputs if last[i] == place) for place, step in enumerate(steps)]
