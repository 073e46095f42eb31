"""In which order a walk with a joint law takes the steps of a net, and which of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sdp_ref import graph
from sdp_ref.activations import Activation


@dataclass(frozen=True)
class Move:
    """One move of a walk: a step, or several that apply one function and are taken at once.

    Attributes
    ----------
    steps : tuple of Step
        Several only where each has one input; those with an input of their own come first.
    operation : callable
        What the rule does there.
    number : int
        Value that the first step makes; the others make the next ones.
    unneeded : frozenset of int
        Values that nobody reads afterwards.
    """

    steps: tuple[graph.Step, ...]
    operation: Callable[..., Any]
    number: int
    unneeded: frozenset[int]


def scheduled(
    steps: Sequence[graph.Step],
    operations: Sequence[Callable[..., Any]],
    functions: Sequence[Activation | None],
) -> list[Move]:
    """Order the steps so that one function that stands in several branches is applied at once.

    The covariance between its results is then as good as that within each. Where no function can be
    taken together the order is that of the net.

    Parameters
    ----------
    steps, operations : sequences of one length
    functions : sequence
        For each step the elementwise function that it applies, None for other steps.

    Returns
    -------
    list of Move
        The steps in them are numbered anew, in the order of the moves.
    """
    groups = _groups(steps, functions)
    if all(len(group) == 1 for group in groups):
        groups = [[i] for i in range(len(steps))]
    order = [i for group in groups for i in group]
    number = {0: 0} | {i + 1: place for place, i in enumerate(order, start=1)}
    moved = [replace(steps[i], inputs=tuple(number[v] for v in steps[i].inputs)) for i in order]
    unneeded = graph.last_uses(moved)
    moves, at = [], 0
    for group in groups:
        end = at + len(group)
        gone = frozenset[int]().union(*unneeded[at:end])
        moves.append(Move(tuple(moved[at:end]), operations[group[0]], at + 1, gone))
        at = end
    return moves


def _groups(steps: Sequence[graph.Step], functions: Sequence[Activation | None]) -> list[list[int]]:
    """All other steps as early as they can be, then one function on every value that waits for it."""
    done, waiting, groups = {0}, list(range(len(steps))), []
    while waiting:
        ready = [i for i in waiting if done.issuperset(steps[i].inputs)]
        first = next((i for i in ready if functions[i] is None), ready[0])
        function = functions[first]
        group = [first] if function is None else [i for i in ready if functions[i] == function]
        seen: dict[tuple[int, ...], int] = {}
        for i in group:
            seen.setdefault(steps[i].inputs, i)
        groups.append(sorted(group, key=lambda i: (seen[steps[i].inputs] != i, i)))
        done.update(i + 1 for i in group)
        waiting = [i for i in waiting if i not in group]
    return groups
