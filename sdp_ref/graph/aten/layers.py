"""Ops with a torch.nn module: linear maps, normalisations, pools, softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.aten.call import Builder, Call, as_value, fixed, last, place, plain, rowwise
from sdp_ref.graph.ops import BatchNorm, set_tensors
from sdp_ref.graph.tape.replay import Value


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
