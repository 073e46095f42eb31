"""Ops that move components, and other linear ops without a module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.aten.call import Call, as_value, last, place, plain
from sdp_ref.graph.ops import Add, Cat, Interpolate, LinearFunction, Rearrange, Reshape, Shift
from sdp_ref.graph.tape.replay import Value


def cat(call: Call, tensors: Sequence[Any], dim: int = 0) -> Value:
    if not all(isinstance(t, Value) for t in tensors):
        return rearranged(call)
    if any(t.layout != tensors[0].layout for t in tensors):
        raise TypeError("values that hold their batches in different places")
    return call.made(call.emit(Cat(place(tensors[0], dim, "a concatenation")), *tensors))


def dropout(call: Call, input: Any, p: float, train: bool) -> Value:
    if not train:
        return call.made(as_value(input))
    return call.made(call.emit(nn.Dropout(p).train(train), as_value(input)))


def rearranged(call: Call, *_args: Any, **_options: Any) -> Value:
    """An op whose outputs are components of a value, constants, or 0."""
    found = call.replay.sources()
    if found is None:
        raise NoFormulaError(f"{call.replay.name} that does not keep the batch dimension")
    layout, sources = found
    replay = call.replay.at(layout)
    constant = replay.constant()
    parts = []
    for taken, source in zip(call.taken.values(), sources, strict=True):
        whole = source.in_order and source.index.numel() == torch.Size(taken.event).numel()
        if whole and tuple(source.index.shape) == taken.event:
            parts.append(Value(taken.index, layout, call.shape))
        elif whole:
            parts.append(call.emit(_reshape(tuple(source.index.shape)), taken))
        elif constant is None and len(sources) == 1:
            parts.append(call.emit(Rearrange(replay.name, replay), taken))
        elif bool((source.index >= 0).any()):
            parts.append(call.emit(Rearrange(replay.name, source.of), taken))
    if not parts:
        raise NoFormulaError(f"{call.replay.name} that leaves nothing of its input")
    made = parts[0]
    for part in parts[1:]:
        made = call.emit(Add(), made, part)
    if constant is not None:
        made = call.emit(Shift(constant), made)
    return call.made(made, layout)


def _reshape(event: tuple[int, ...]) -> nn.Module:
    return Reshape("reshape", lambda x: x.reshape(len(x), *event))


def cumulated(call: Call, input: Any, dim: Any, **_options: Any) -> Value:
    """Cumulative sums along a dimension other than the batch."""
    place(as_value(input), dim, call.replay.name)
    return linear_function(call)


def folded(call: Call, input: Any, *_args: Any, **_options: Any) -> Value:
    """``F.fold``: patches summed to images."""
    last(as_value(input), 2, call.replay.name)
    return linear_function(call)


def linear_function(call: Call) -> Value:
    """An op that is linear in its only value and has no module."""
    (taken,) = call.taken.values()
    if not call.replay.works:
        raise NoFormulaError(f"{call.replay.name} that does not keep the batch dimension")
    return call.made(call.emit(LinearFunction(call.replay.name, call.replay), taken))


def interpolated(call: Call, input: Any, *_args: Any, **_options: Any) -> Value:
    """``F.interpolate`` with linear or cubic weights, one spatial dimension at a time."""
    plain(as_value(input), "an interpolation")
    return call.made(call.emit(Interpolate(call.replay), input))


def same(call: Call, x: Any, *_args: Any, **_options: Any) -> Value:
    """An op that does not change values."""
    return call.made(as_value(x))
