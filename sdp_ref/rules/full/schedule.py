"""The order in which a joint law takes the steps of a net, and which of them it takes together."""

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
    """A step, or several steps that apply the same function and are taken together.

    The results are numbered from `number` on; `places` are their numbers in the net. `inputs` has one value
    per step if there are several steps. `unneeded` are the values that are not read afterwards.
    """

    operation: JointStep
    number: int
    inputs: tuple[int, ...]
    path: str
    unneeded: frozenset[int]
    places: tuple[int, ...]


def scheduled(steps: Sequence[trace.Step], operations: Sequence[JointStep]) -> list[Move]:
    """Order the steps so that a function that occurs in several branches is applied to all of them at once.

    The covariance between its results is then as accurate as that within each. If no function can be shared,
    the order is that of the net.
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
    """Return the elementwise function of a step if it is registered and the same for all components."""
    if type_before_parametrizations(step.module) not in ELEMENTWISE:
        return None
    activation = activation_of(step.module)
    return activation if activation.uniform and isinstance(operation, ElementwiseStep) else None


def _groups(steps: Sequence[trace.Step], functions: Sequence[Activation | None]) -> list[list[int]]:
    """Schedule all other steps as early as possible, then one function for all values that wait for it."""
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
