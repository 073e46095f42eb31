"""Ops with a torch.nn module (linear maps, normalisations, pools, softmax), and ops that move components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.aten.call import Builder, Call, by_name, fixed, last, place, plain, rowwise
from sdp_ref.graph.ops import (
    Add,
    BatchNorm,
    Cat,
    Interpolate,
    LinearFunction,
    Rearrange,
    Reshape,
    Shift,
    set_tensors,
)
from sdp_ref.graph.replay import Value


@by_name
def linear(call: Call, x: Value, *, weight: Any, bias: Any) -> Value:
    """``aten.linear`` for values (..., n) and a weight (m, n)."""
    fixed(weight, bias)
    last(x, 1, "a linear map")
    if weight.ndim != 2:
        raise TypeError("a weight of one dimension")
    return call.made(call.emit(linear_layer(weight, bias), x))


def linear_layer(weight: Tensor, bias: Tensor | None = None) -> nn.Module:
    """Module of a linear map that shares the given tensors."""
    layer = nn.Linear(1, 1, bias=bias is not None, device="meta")
    layer.in_features, layer.out_features = weight.shape[1], weight.shape[0]
    return set_tensors(layer, weight=weight, bias=bias)


@by_name
def convolution(
    call: Call,
    x: Value,
    *,
    weight: Any,
    bias: Any,
    groups: int,
    transposed: bool | None = None,
    output_padding: Any = None,
    **options: Any,
) -> Value:
    """Convolutions, and transposed ones, which have an output padding."""
    fixed(weight, bias)
    n = weight.ndim - 2
    outer, inner = weight.shape[0], weight.shape[1] * groups
    sizes = {name: options[name] for name in ("stride", "padding", "dilation")}
    transposed = output_padding is not None if transposed is None else transposed
    if transposed:
        sizes["output_padding"] = output_padding
    for name, size in sizes.items():  # one number per dimension
        if not isinstance(size, str):
            given = list(size) if isinstance(size, list | tuple) else [size]
            sizes[name] = tuple(given * n if len(given) == 1 else given)
    made: Any = getattr(nn, f"Conv{'Transpose' if transposed else ''}{n}d")
    channels = (outer, inner) if transposed else (inner, outer)
    layer = made(
        *channels, tuple(weight.shape[2:]), groups=groups, bias=bias is not None, device="meta", **sizes
    )
    layer = set_tensors(layer, weight=weight, bias=bias)
    return call.made(call.emit(rowwise(x, layer, "a convolution"), x))


@by_name
def batch_norm(
    call: Call, x: Value, *, weight: Any, bias: Any, running_mean: Any, running_var: Any, **options: Any
) -> Value:
    fixed(weight, bias, running_mean, running_var)
    layer = BatchNorm(running_mean, running_var, weight, bias, options["training"], options["eps"])
    return call.made(call.emit(rowwise(x, layer, "BatchNorm"), x))


@by_name
def layer_norm(
    call: Call, x: Value, *, normalized_shape: Sequence[int], weight: Any, bias: Any, eps: Any, **_: Any
) -> Value:
    """``aten.layer_norm`` and ``aten.native_layer_norm``; the first output is the norm."""
    if call.replay.which:
        raise NoFormulaError("the statistics of a LayerNorm")
    fixed(weight, bias)
    last(x, len(normalized_shape), "a LayerNorm")
    layer = nn.LayerNorm(list(normalized_shape), eps=1e-5 if eps is None else eps, elementwise_affine=False)
    return call.made(call.emit(set_tensors(layer, weight=weight, bias=bias), x))


@by_name
def rms_norm(call: Call, x: Value, *, normalized_shape: Sequence[int], weight: Any, eps: Any) -> Value:
    fixed(weight)
    last(x, len(normalized_shape), "an RMSNorm")
    layer = nn.RMSNorm(list(normalized_shape), eps=eps, elementwise_affine=False)
    return call.made(call.emit(set_tensors(layer, weight=weight), x))


@by_name
def group_norm(
    call: Call, x: Value, *, num_groups: int, weight: Any, bias: Any, eps: float, **_: Any
) -> Value:
    fixed(weight, bias)
    plain(x, "GroupNorm")
    layer = nn.GroupNorm(num_groups, x.shape[1], eps=eps, affine=False)
    return call.made(call.emit(set_tensors(layer, weight=weight, bias=bias), x))


@by_name
def instance_norm(call: Call, x: Value, *, weight: Any, bias: Any, eps: float, **options: Any) -> Value:
    fixed(weight, bias)
    statistics = {name: options[name] for name in ("running_mean", "running_var")}
    if not options["use_input_stats"]:
        return batch_norm(call, x, weight=weight, bias=bias, eps=eps, training=False, **statistics)
    if options["running_mean"] is not None:
        raise NoFormulaError("InstanceNorm that updates its running statistics (call net.eval())")
    plain(x, "InstanceNorm")
    kinds = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}
    layer: nn.Module = kinds[len(x.shape)](x.shape[1], eps=eps)
    return call.made(call.emit(set_tensors(layer, weight=weight, bias=bias), x))


def softmax(kind: Any) -> Builder:
    @by_name
    def build(call: Call, x: Value, *, dim: int, **_: Any) -> Value:
        return call.made(call.emit(kind(place(x, dim, kind.__name__)), x))

    return build


@by_name
def rrelu(call: Call, x: Value, *, lower: float, upper: float, training: bool, **_: Any) -> Value:
    """``F.rrelu``, which samples its slopes in training mode."""
    return call.made(call.emit(nn.RReLU(lower, upper).train(training), x))


def reduced(kind: Any, what: str) -> Builder:
    @by_name
    def build(call: Call, x: Value, *, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
        dims = ([dim] if isinstance(dim, int) else dim) or range(len(x.shape))
        return call.made(call.emit(kind([place(x, d, what) for d in dims], keepdim), x))

    return build


def pool(kind: type[nn.Module]) -> Builder:
    """Pooling; the options have the same names in the module."""

    @by_name
    def build(call: Call, x: Value, **options: Any) -> Value:
        if call.replay.which:
            raise NoFormulaError(f"{kind.__name__} with return_indices")
        given = {}
        for name, value in options.items():
            if isinstance(value, list | tuple):
                value = value[0] if len(value) == 1 else tuple(value)
            if value is not None and not (name == "stride" and not value):
                given[name] = value
        return call.made(call.emit(rowwise(x, kind(**given), kind.__name__), x))

    return build


def cat(call: Call, tensors: Sequence[Any], dim: int = 0) -> Value:
    if not all(isinstance(t, Value) for t in tensors):
        return rearranged(call)
    if any(t.layout != tensors[0].layout for t in tensors):
        raise TypeError("values that hold their batches in different places")
    return call.made(call.emit(Cat(place(tensors[0], dim, "a concatenation")), *tensors))


@by_name
def dropout(call: Call, x: Value, *, p: float, train: bool) -> Value:
    return call.made(call.emit(nn.Dropout(p).train(), x) if train else x)


def rearranged(call: Call, *_args: Any, **_options: Any) -> Value:
    """An op whose outputs are components of a value, constants, or 0."""
    rearrangement = call.replay.sources()
    if rearrangement is None:
        raise NoFormulaError(f"{call.replay.name} that does not keep the batch dimension")
    layout, sources = rearrangement
    replay = replace(call.replay, layout=layout)
    constant = replay.constant()
    parts = []
    for taken, source in zip(call.taken.values(), sources, strict=True):
        whole = source.in_order and source.index.numel() == torch.Size(taken.event).numel()
        if whole and tuple(source.index.shape) == taken.event:
            parts.append(Value(taken.index, layout, call.shape))
        elif whole:
            parts.append(call.emit(Reshape(source.index.shape), taken))
        elif constant is None and len(sources) == 1:
            parts.append(call.emit(Rearrange(replay.name, replay), taken))
        elif bool((source.index >= 0).any()):
            parts.append(call.emit(Rearrange(replay.name, source.of), taken))
    if not parts:
        raise NoFormulaError(f"{call.replay.name} that leaves nothing of its input")
    total = parts[0]
    for part in parts[1:]:
        total = call.emit(Add(), total, part)
    if constant is not None:
        total = call.emit(Shift(constant), total)
    return call.made(total, layout)


@by_name
def cumulated(call: Call, x: Value, *, dim: int, **_: Any) -> Value:
    """Cumulative sums along a dimension other than the batch."""
    place(x, dim, call.replay.name)
    return linear_function(call)


@by_name
def folded(call: Call, x: Value, **_: Any) -> Value:
    """``F.fold``: patches summed to images."""
    last(x, 2, call.replay.name)
    return linear_function(call)


def linear_function(call: Call) -> Value:
    """An op that is linear in its only value and has no module."""
    (taken,) = call.taken.values()
    if not call.replay.works:
        raise NoFormulaError(f"{call.replay.name} that does not keep the batch dimension")
    return call.made(call.emit(LinearFunction(call.replay.name, call.replay), taken))


@by_name
def interpolated(call: Call, x: Value, **_: Any) -> Value:
    """``F.interpolate`` with linear or cubic weights, one spatial dimension at a time."""
    plain(x, "an interpolation")
    return call.made(call.emit(Interpolate(call.replay), x))


@by_name
def same(call: Call, x: Value, **_: Any) -> Value:
    """An op that does not change values."""
    return call.made(x)
