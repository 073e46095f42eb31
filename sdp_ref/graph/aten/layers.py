"""Ops with a torch.nn module (linear maps, normalisations, pools, softmax), and ops that move components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.aten.call import Builder, Call, as_value, fixed, last, place, plain, rowwise
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


def linear(call: Call, input: Any, weight: Any, bias: Any = None) -> Value:
    fixed(weight, bias)
    last(as_value(input), 1, "a linear map")
    if weight.ndim != 2:
        raise TypeError("a weight of one dimension")
    return call.made(call.emit(linear_layer(weight, bias), input))


def linear_layer(weight: Tensor, bias: Tensor | None = None) -> nn.Module:
    """Module of a linear map that shares the given tensors."""
    layer = nn.Linear(1, 1, bias=bias is not None, device="meta")
    layer.in_features, layer.out_features = weight.shape[1], weight.shape[0]
    return set_tensors(layer, weight=weight, bias=bias)


def _each(value: Any, dims: int) -> Any:
    """One number per dimension; lists of length one are repeated."""
    if isinstance(value, str):
        return value
    given = list(value) if isinstance(value, list | tuple) else [value]
    return tuple(given * dims if len(given) == 1 else given)


def any_convolution(
    call: Call,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *_flags: Any,
) -> Value:
    """``aten.convolution``, the general case."""
    fixed(weight, bias)
    n = weight.ndim - 2
    outer, inner = weight.shape[0], weight.shape[1] * groups
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    if transposed:
        options["output_padding"] = output_padding
    made: Any = getattr(nn, f"Conv{'Transpose' if transposed else ''}{n}d")
    layer = made(
        *((outer, inner) if transposed else (inner, outer)),
        tuple(weight.shape[2:]),
        groups=groups,
        bias=bias is not None,
        device="meta",
        **{name: _each(value, n) for name, value in options.items()},
    )
    layer = set_tensors(layer, weight=weight, bias=bias)
    return call.made(call.emit(rowwise(as_value(input), layer, "a convolution"), input))


def convolution(
    call: Call,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    """``F.conv1d``, ``F.conv2d`` and ``F.conv3d``."""
    return any_convolution(call, input, weight, bias, stride, padding, dilation, False, 0, groups)


def transposed(
    call: Call,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Value:
    """``F.conv_transpose1d``, ``F.conv_transpose2d`` and ``F.conv_transpose3d``."""
    return any_convolution(call, input, weight, bias, stride, padding, dilation, True, output_padding, groups)


def batch_norm(
    call: Call,
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,  # noqa: ARG001
) -> Value:
    fixed(weight, bias, running_mean, running_var)
    layer = BatchNorm(running_mean, running_var, weight, bias, training, momentum, eps)
    return call.made(call.emit(rowwise(as_value(input), layer, "BatchNorm"), input))


def layer_norm(
    call: Call,
    input: Any,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float | None = 1e-5,
    cudnn_enable: bool = True,  # noqa: ARG001
) -> Value:
    fixed(weight, bias)
    last(as_value(input), len(normalized_shape), "a LayerNorm")
    layer = nn.LayerNorm(list(normalized_shape), eps=1e-5 if eps is None else eps, elementwise_affine=False)
    return call.made(call.emit(set_tensors(layer, weight=weight, bias=bias), input))


def native_layer_norm(
    call: Call, input: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> Value:
    """``aten.native_layer_norm``, whose first output is the norm."""
    if call.replay.which:
        raise NoFormulaError("the statistics of a LayerNorm")
    return layer_norm(call, input, shape, weight, bias, eps)


def rms_norm(
    call: Call, input: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Value:
    fixed(weight)
    last(as_value(input), len(normalized_shape), "an RMSNorm")
    layer = nn.RMSNorm(list(normalized_shape), eps=eps, elementwise_affine=False)
    return call.made(call.emit(set_tensors(layer, weight=weight), input))


def group_norm(
    call: Call,
    input: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,  # noqa: ARG001
) -> Value:
    fixed(weight, bias)
    plain(as_value(input), "GroupNorm")
    layer = nn.GroupNorm(num_groups, input.shape[1], eps=eps, affine=False)
    return call.made(call.emit(set_tensors(layer, weight=weight, bias=bias), input))


def instance_norm(
    call: Call,
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Value:
    fixed(weight, bias, running_mean, running_var)
    if not use_input_stats:
        return batch_norm(
            call, input, weight, bias, running_mean, running_var, False, momentum, eps, cudnn_enabled
        )
    if running_mean is not None:
        raise NoFormulaError("InstanceNorm that updates its running statistics (call net.eval())")
    plain(as_value(input), "InstanceNorm")
    kinds = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}
    layer: nn.Module = kinds[len(input.shape)](input.shape[1], eps=eps)
    return call.made(call.emit(set_tensors(layer, weight=weight, bias=bias), input))


def softmax(kind: type[nn.Module]) -> Builder:
    def build(call: Call, input: Any, dim: int, dtype: Any = None) -> Value:
        if isinstance(dtype, torch.dtype) and not dtype.is_floating_point:
            raise TypeError("a dtype without fractions")
        made: Any = kind
        return call.made(call.emit(made(place(as_value(input), dim, kind.__name__)), input))

    return build


def rrelu(
    call: Call, input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> Value:
    """``F.rrelu``, which samples its slopes in training mode."""
    return call.made(call.emit(nn.RReLU(lower, upper).train(training), as_value(input)))


def reduced(kind: type[nn.Module], what: str) -> Builder:
    def build(call: Call, input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:  # noqa: ARG001
        dims = [dim] if isinstance(dim, int) else dim
        dims = dims or list(range(len(as_value(input).shape)))
        made: Any = kind
        return call.made(call.emit(made([place(input, d, what) for d in dims], keepdim), input))

    return build


def pool(kind: type[nn.Module], names: tuple[str, ...]) -> Builder:
    """Pooling, whose arguments after the input have these `names` in the module."""

    def build(call: Call, input: Any, *args: Any, **options: Any) -> Value:
        if call.replay.which:
            raise NoFormulaError(f"{kind.__name__} with return_indices")
        given = dict(zip(names, args, strict=False)) | options
        given = {k: _window(v) for k, v in given.items() if v is not None and not (k == "stride" and not v)}
        return call.made(call.emit(rowwise(as_value(input), kind(**given), kind.__name__), input))

    return build


def _window(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return value[0] if len(value) == 1 else tuple(value)
    return value


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
