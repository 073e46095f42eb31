"""In which order a walk with a joint law takes the steps of a net, and which of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.activations import ELEMENTWISE, Activation, activation_of
from sdp_ref.graph import trace
from sdp_ref.rules.full.elementwise import ElementwiseStep
from sdp_ref.rules.full.steps import JointStep


@dataclass(frozen=True)
class Move:
    """One move of a walk: a step, or several that apply one function and are taken at once.

    Attributes
    ----------
    operation : JointStep
        What the rule does there.
    number : int
        Value that the first step makes; the others make the next ones.
    inputs : tuple of int
        Values that the steps read; of several steps, which have one input each, one a step.
    path : str
        Where the first one stands in the net.
    unneeded : frozenset of int
        Values that nobody reads afterwards.
    places : tuple of int
        Values that the steps make in the order of the net.
    """

    operation: JointStep
    number: int
    inputs: tuple[int, ...]
    path: str
    unneeded: frozenset[int]
    places: tuple[int, ...]


def scheduled(steps: Sequence[trace.Step], operations: Sequence[JointStep]) -> list[Move]:
    """Order the steps so that one function that stands in several branches is applied at once.

    The covariance between its results is then as good as that within each. Where no function can be
    taken together the order is that of the net.
    """
    groups = _groups(steps, [_function(*pair) for pair in zip(steps, operations, strict=True)])
    if all(len(group) == 1 for group in groups):
        groups = [[i] for i in range(len(steps))]
    order = [i for group in groups for i in group]
    number = {0: 0} | {i + 1: place for place, i in enumerate(order, start=1)}
    moved = [replace(steps[i], inputs=tuple(number[v] for v in steps[i].inputs)) for i in order]
    unneeded = trace.last_uses(moved)
    moves, at = [], 0
    for group in groups:
        taken = moved[at : at + len(group)]
        gone = frozenset[int]().union(*unneeded[at : at + len(group)])
        inputs = tuple(v for step in taken for v in step.inputs)
        places = tuple(i + 1 for i in group)
        moves.append(Move(operations[group[0]], at + 1, inputs, taken[0].path, gone, places))
        at += len(group)
    return moves


def _function(step: trace.Step, operation: JointStep) -> Activation | None:
    """Elementwise function of the registry that a step applies to all components alike, if it does."""
    if type_before_parametrizations(step.module) not in ELEMENTWISE:
        return None
    activation = activation_of(step.module)
    return activation if activation.uniform and isinstance(operation, ElementwiseStep) else None


def _groups(steps: Sequence[trace.Step], functions: Sequence[Activation | None]) -> list[list[int]]:
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
