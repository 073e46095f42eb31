"""Seeds of a rule's samples: one for all laws of a batch, or one for each."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any


def integer(value: object) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def checked(rule: str, seed: object) -> int | tuple[int, ...]:
    given = seed if isinstance(seed, Sequence) and not isinstance(seed, str) else [seed]
    seeds = tuple(each for each in map(integer, given) if each is not None and each >= 0)
    if len(seeds) < len(given):
        raise ValueError(f"{rule} needs a seed (or one a law) of at least 0, got {seed!r}")
    return seeds if given is seed else seeds[0]


def of_rows(rule: str, seed: int | Sequence[int], batch: int) -> Sequence[Any]:
    seeds: Sequence[Any] = [(seed, row) for row in range(batch)] if isinstance(seed, int) else seed
    if len(seeds) != batch:
        raise ValueError(f"{rule} has {len(seeds)} seeds for a batch of {batch}")
    return seeds
