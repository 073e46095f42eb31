"""Which module each ATen op is: one table, for :mod:`sdp_ref.graph.trace`.

What only moves components about needs no entry of its own: it is run once on the places of the components, and
what comes out says where they went.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.activations import ACTIVATIONS
from sdp_ref.activations.base import Activation
from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.layout import Layout
from sdp_ref.graph.ops import (
    Add,
    Attention,
    BatchNorm,
    Cat,
    Divide,
    LinearFunction,
    MatrixProduct,
    Mean,
    Multiply,
    Quotient,
    Rearrange,
    Reshape,
    Scale,
    Shift,
    Sum,
    set_tensors,
)
from sdp_ref.graph.recording import Entry, Ref, overwritten
from sdp_ref.graph.replay import Multiple, PerExample, Replay, Value

_Builder = Callable[..., Value]


@dataclass(frozen=True)
class Call:
    """An entry of a tape, and what is needed to make steps of it.

    Attributes
    ----------
    entry : Entry
    replay : Replay
        Its output as a function.
    taken : dict of int to Value
        The values that it reads.
    shape : tuple of int
        Of its output, as the net holds it.
    emit : callable
        Adds a step: ``emit(module, *values)`` gives the value that it makes.
    """

    entry: Entry
    replay: Replay
    taken: dict[int, Value]
    shape: tuple[int, ...]
    emit: Callable[..., Value]

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """What the op was called with, values in the place of references."""

        def put(leaf: Any) -> Any:
            match leaf:
                case Ref():
                    return self.taken[leaf.index]
                case list() | tuple():
                    return type(leaf)(put(v) for v in leaf)
            return leaf

        return [put(a) for a in self.entry.args], {k: put(v) for k, v in self.entry.kwargs.items()}

    def made(self, value: Value, layout: Layout | None = None) -> Value:
        """Give a value of a step the shape of the output and its layout."""
        return Value(value.index, layout or self.replay.layout, self.shape)

    def constant(self, c: Any, ndim: int, layout: Layout) -> float | Tensor:
        """Constant that broadcasts against values (N, *event) as `c` does against the net's tensors.

        Parameters
        ----------
        c : number, Tensor or PerExample
        ndim : int
            Of the net's tensor.
        layout : Layout
            How it holds the batch.

        Raises
        ------
        TypeError
            If it does not.
        """
        if isinstance(c, Multiple):
            raise NoFormulaError("arithmetic with the size of the batch")
        if isinstance(c, PerExample):
            moved = Layout(c.layout.dim + ndim - c.row.ndim + _width(c.layout) - 1, c.layout.outer, c.layout.inner)
            if moved != layout:
                raise TypeError("a constant with a batch dimension")
            missing = ndim - (c.row.ndim - _width(c.layout) + 1)
            return c.row.reshape(1, *[1] * missing, *c.row.shape[1:])
        if isinstance(c, Tensor):
            if layout.plain and (c.ndim < ndim or (c.ndim == ndim and c.shape[0] == 1)):
                return c
            shape = [*[1] * (ndim - c.ndim), *c.shape]
            if len(shape) > ndim or shape[layout.dim] != 1:
                raise TypeError("a constant with a batch dimension")
            return Layout(layout.dim).batch_first(c.reshape(shape)).reshape(
                1, *shape[: layout.dim], *[1] * (_width(layout) - 1), *shape[layout.dim + 1 :]
            )
        if isinstance(c, bool) or not isinstance(c, int | float):
            raise TypeError(f"a constant of type {type(c).__name__}")
        return c

    def lifted(self, value: Value, ndim: int) -> Value:
        """Value with leading dimensions of one, as broadcasting gives them."""
        missing = ndim - len(value.shape)
        layout = _held(value)
        if not missing:
            return value
        event = value.event

        def function(x: Tensor) -> Tensor:
            return x.reshape(len(x), *[1] * missing, *event)

        moved = Layout(layout.dim + missing, layout.outer, layout.inner)
        made = self.emit(Reshape("reshape", function), value)
        return Value(made.index, moved, (*[1] * missing, *value.shape))


def _width(layout: Layout) -> int:
    return 1 + (layout.outer > 1) + (layout.inner > 1)


def _held(value: Value) -> Layout:
    if value.layout is None:
        raise TypeError("a value without a batch dimension")
    return value.layout


def _plain(value: Value, what: str) -> None:
    if not _held(value).plain:
        raise NoFormulaError(f"{what} of a value that does not hold its batch first")


def _place(value: Value, dim: int, what: str) -> int:
    """Dimension of (N, *event), counted from the end, that a dimension of the net's tensor is."""
    place = _held(value).place(dim, len(value.shape))
    if place is None:
        raise NoFormulaError(f"{what} over the batch dimension")
    ndim = len(value.shape) + _width(_held(value)) - 1
    return place - ndim


def _last(value: Value, count: int, what: str) -> None:
    """Refuse a value whose batch is among its last dimensions."""
    if _held(value).dim >= len(value.shape) - count:
        raise NoFormulaError(f"{what} over the batch dimension")


def _value(x: Any) -> Value:
    if not isinstance(x, Value):
        raise TypeError("a constant where a value is expected")
    return x


def _fixed(*constants: Any) -> None:
    """Refuse values, and constants of the batch, among the parameters of an op."""
    if any(isinstance(c, Value | PerExample | Multiple) for c in constants):
        raise TypeError("a value among the parameters")


def _linear(call: Call, input: Any, weight: Any, bias: Any = None) -> Value:
    _fixed(weight, bias)
    _last(_value(input), 1, "a linear map")
    if weight.ndim != 2:
        raise TypeError("a weight of one dimension")
    return call.made(call.emit(_linear_layer(weight, bias), input))


def _linear_layer(weight: Tensor, bias: Tensor | None = None) -> nn.Module:
    layer = nn.Linear(1, 1, bias=bias is not None, device="meta")
    layer.in_features, layer.out_features = weight.shape[1], weight.shape[0]
    return set_tensors(layer, weight=weight, bias=bias)


def _convolution(kind: type[nn.Module]) -> _Builder:
    def build(
        call: Call,
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Value:
        _fixed(weight, bias)
        _plain(_value(input), "a convolution")
        dims = weight.ndim - 2
        stride, padding, dilation = (_each(v, dims) for v in (stride, padding, dilation))
        sizes = (weight.shape[1] * groups, weight.shape[0], tuple(weight.shape[2:]))
        made: Any = kind
        layer = made(*sizes, stride, padding, dilation, groups, bias is not None, device="meta")
        return call.made(call.emit(set_tensors(layer, weight=weight, bias=bias), input))

    return build


def _transposed(kind: type[nn.Module]) -> _Builder:
    def build(
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
        _fixed(weight, bias)
        _plain(_value(input), "a convolution")
        dims = weight.ndim - 2
        stride, padding, output_padding, dilation = (
            _each(v, dims) for v in (stride, padding, output_padding, dilation)
        )
        sizes = (weight.shape[0], weight.shape[1] * groups, tuple(weight.shape[2:]))
        made: Any = kind
        options = (stride, padding, output_padding, groups, bias is not None, dilation)
        layer = made(*sizes, *options, device="meta")
        return call.made(call.emit(set_tensors(layer, weight=weight, bias=bias), input))

    return build


def _each(value: Any, dims: int) -> Any:
    """One number a dimension: lists of one stand for all."""
    if isinstance(value, str):
        return value
    given = list(value) if isinstance(value, list | tuple) else [value]
    return tuple(given * dims if len(given) == 1 else given)


def _batch_norm(
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
    _fixed(weight, bias, running_mean, running_var)
    _plain(_value(input), "BatchNorm")
    layer = BatchNorm(running_mean, running_var, weight, bias, training, momentum, eps)
    return call.made(call.emit(layer, input))


def _layer_norm(
    call: Call,
    input: Any,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float | None = 1e-5,
    cudnn_enable: bool = True,  # noqa: ARG001
) -> Value:
    _fixed(weight, bias)
    _last(_value(input), len(normalized_shape), "a LayerNorm")
    layer = nn.LayerNorm(list(normalized_shape), eps=1e-5 if eps is None else eps, elementwise_affine=False)
    return call.made(call.emit(set_tensors(layer, weight=weight, bias=bias), input))


def _rms_norm(
    call: Call, input: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Value:
    _fixed(weight)
    _last(_value(input), len(normalized_shape), "an RMSNorm")
    layer = nn.RMSNorm(list(normalized_shape), eps=eps, elementwise_affine=False)
    return call.made(call.emit(set_tensors(layer, weight=weight), input))


def _group_norm(
    call: Call,
    input: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,  # noqa: ARG001
) -> Value:
    _fixed(weight, bias)
    _plain(_value(input), "GroupNorm")
    layer = nn.GroupNorm(num_groups, input.shape[1], eps=eps, affine=False)
    return call.made(call.emit(set_tensors(layer, weight=weight, bias=bias), input))


def _instance_norm(
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
    _fixed(weight, bias, running_mean, running_var)
    if not use_input_stats:
        return _batch_norm(
            call, input, weight, bias, running_mean, running_var, False, momentum, eps, cudnn_enabled
        )
    if running_mean is not None:
        raise NoFormulaError("InstanceNorm that updates its running statistics (call net.eval())")
    _plain(_value(input), "InstanceNorm")
    kinds = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}
    layer: nn.Module = kinds[len(input.shape)](input.shape[1], eps=eps)
    return call.made(call.emit(set_tensors(layer, weight=weight, bias=bias), input))


def _softmax(kind: type[nn.Module]) -> _Builder:
    def build(call: Call, input: Any, dim: int, dtype: Any = None) -> Value:
        if isinstance(dtype, torch.dtype) and not dtype.is_floating_point:
            raise TypeError("a dtype without fractions")
        made: Any = kind
        return call.made(call.emit(made(_place(_value(input), dim, kind.__name__)), input))

    return build


def _reduced(kind: type[nn.Module], what: str) -> _Builder:
    def build(call: Call, input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:  # noqa: ARG001
        dims = [dim] if isinstance(dim, int) else dim
        dims = list(range(len(_value(input).shape))) if not dims else dims
        made: Any = kind
        return call.made(call.emit(made([_place(input, d, what) for d in dims], keepdim), input))

    return build


def _pool(kind: type[nn.Module], names: tuple[str, ...]) -> _Builder:
    """Pooling by its arguments after the input, under the names that its module gives them."""

    def build(call: Call, input: Any, *args: Any, **options: Any) -> Value:
        _plain(_value(input), kind.__name__)
        if call.replay.which:
            raise NoFormulaError(f"{kind.__name__} with return_indices")
        given = dict(zip(names, args, strict=False)) | options
        given = {k: _window(v) for k, v in given.items() if v is not None and not (k == "stride" and not v)}
        return call.made(call.emit(kind(**given), input))

    return build


def _window(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return value[0] if len(value) == 1 else tuple(value)
    return value


def _add(call: Call, a: Any, b: Any, *, alpha: float = 1) -> Value:
    if isinstance(b, Value):
        b = b if alpha == 1 else Value(call.emit(Scale(alpha), b).index, b.layout, b.shape)
    elif alpha != 1:
        b = PerExample(b.layout, b.row * alpha) if isinstance(b, PerExample) else b * alpha
    if isinstance(a, Value) and isinstance(b, Value):
        return call.made(call.emit(Add(), *_together(call, a, b)))
    value, constant = (a, b) if isinstance(a, Value) else (b, a)
    return _with_constant(call, Shift, value, constant)


def _sub(call: Call, a: Any, b: Any, *, alpha: float = 1) -> Value:
    return _add(call, a, b, alpha=-alpha)


def _rsub(call: Call, a: Any, b: Any, alpha: float = 1) -> Value:
    return _add(call, b, a, alpha=-alpha)


def _mul(call: Call, a: Any, b: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, Value):
        return call.made(call.emit(Multiply(), *_together(call, a, b)))
    value, constant = (a, b) if isinstance(a, Value) else (b, a)
    return _with_constant(call, Scale, value, constant)


def _div(call: Call, a: Any, b: Any, *, rounding_mode: str | None = None) -> Value:
    if rounding_mode is not None:
        raise NoFormulaError(f"a division with rounding_mode={rounding_mode!r}")
    if isinstance(a, Value) and isinstance(b, Value):
        return call.made(call.emit(Quotient(), *_together(call, a, b)))
    if isinstance(b, Value):
        raise NoFormulaError("a division by a value")
    return _with_constant(call, Divide, a, b)


def _neg(call: Call, x: Any) -> Value:
    return call.made(call.emit(Scale(-1), _value(x)))


def _together(call: Call, a: Value, b: Value) -> tuple[Value, Value]:
    """Two values for an elementwise op: of one number of dimensions, their batches in one place."""
    ndim = max(len(a.shape), len(b.shape))
    a, b = call.lifted(a, ndim), call.lifted(b, ndim)
    if a.layout != b.layout:
        raise TypeError("values that hold their batches in different places")
    return a, b


def _with_constant(call: Call, kind: Any, value: Value, constant: Any) -> Value:
    ndim = len(call.shape)
    value = call.lifted(value, ndim)
    return call.made(call.emit(kind(call.constant(constant, ndim, _held(value))), value), value.layout)


def _matmul(call: Call, a: Any, b: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, Value):
        ndim = max(len(a.shape), len(b.shape))
        a, b = call.lifted(a, ndim), call.lifted(b, ndim)
        if a.layout != b.layout or _held(a).dim >= ndim - 2:
            raise NoFormulaError("a product that mixes the examples of a batch")
        return call.made(call.emit(MatrixProduct(), a, b))
    if isinstance(a, Value) and isinstance(b, Tensor) and b.ndim == 2:
        _last(a, 1, "a matrix product")
        return call.made(call.emit(_linear_layer(b.mT), a))
    return _linear_function(call)


def _addmm(call: Call, bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Value:
    _fixed(bias, b)
    _last(_value(a), 1, "a matrix product")
    return call.made(call.emit(_linear_layer(alpha * b.mT, (beta * bias).expand(b.shape[1])), a))


def _attention(
    call: Call,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,  # noqa: ARG001  one that draws is refused before
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    if enable_gqa or isinstance(attn_mask, Value):
        raise NoFormulaError("attention with shared heads or a mask that is a value")
    q, k, v = (_value(x) for x in (query, key, value))
    if not q.layout == k.layout == v.layout or _held(q).dim >= len(q.shape) - 2:
        raise NoFormulaError("attention between the examples of a batch")
    mask: Any = None if attn_mask is None else call.constant(attn_mask, len(q.shape), _held(q))
    return call.made(call.emit(Attention(is_causal, scale, mask), q, k, v))


def _cat(call: Call, tensors: Sequence[Any], dim: int = 0) -> Value:
    if not all(isinstance(t, Value) for t in tensors):
        return _rearranged(call)
    if any(t.layout != tensors[0].layout for t in tensors):
        raise TypeError("values that hold their batches in different places")
    return call.made(call.emit(Cat(_place(tensors[0], dim, "a concatenation")), *tensors))


def _dropout(call: Call, input: Any, p: float, train: bool) -> Value:
    if not train:
        return call.made(_value(input))
    return call.made(call.emit(nn.Dropout(p).train(train), _value(input)))


def _rearranged(call: Call) -> Value:
    """An op whose every output is a component of a value, a constant, or 0."""
    found = call.replay.sources()
    if found is None:
        raise NoFormulaError(f"{call.replay.name} that does not keep the batch dimension")
    layout, sources = found
    replay = call.replay.at(layout)
    constant = replay.constant()
    parts = []
    for value, source in zip(call.taken.values(), sources, strict=True):
        whole = source.in_order and source.index.numel() == torch.Size(value.event).numel()
        if whole and tuple(source.index.shape) == value.event:
            parts.append(Value(value.index, layout, call.shape))
        elif whole:
            parts.append(call.emit(_reshape(tuple(source.index.shape)), value))
        elif constant is None and len(sources) == 1:
            parts.append(call.emit(Rearrange(replay.name, replay), value))
        elif bool((source.index >= 0).any()):
            parts.append(call.emit(Rearrange(replay.name, source.of), value))
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


def _linear_function(call: Call) -> Value:
    """An op that is linear in its one value, and has no module of its own."""
    (value,) = call.taken.values()
    if not call.replay.works:
        raise NoFormulaError(f"{call.replay.name} that does not keep the batch dimension")
    return call.made(call.emit(LinearFunction(call.replay.name, call.replay), value))


def _same(call: Call, x: Any, *_args: Any, **_options: Any) -> Value:
    return call.made(_value(x))


def _elementwise(kind: type[Activation], name: str) -> _Builder:
    def build(call: Call, x: Any, *args: Any, **options: Any) -> Value:
        _fixed(*args, *options.values())
        return call.made(call.emit(kind.from_op(name, *args, **options), _value(x)))

    return build


_TABLE: dict[str, _Builder] = {
    **{name: _elementwise(kind, name) for kind in ACTIVATIONS.values() for name in kind.ops},
    "linear": _linear,
    "conv1d": _convolution(nn.Conv1d),
    "conv2d": _convolution(nn.Conv2d),
    "conv3d": _convolution(nn.Conv3d),
    "conv_transpose1d": _transposed(nn.ConvTranspose1d),
    "conv_transpose2d": _transposed(nn.ConvTranspose2d),
    "conv_transpose3d": _transposed(nn.ConvTranspose3d),
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "softmax": _softmax(nn.Softmax),
    "log_softmax": _softmax(nn.LogSoftmax),
    **{
        f"avg_pool{n}d": _pool(
            getattr(nn, f"AvgPool{n}d"),
            ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
        )
        for n in (1, 2, 3)
    },
    **{
        f"max_pool{n}d{indices}": _pool(
            getattr(nn, f"MaxPool{n}d"), ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
        )
        for n in (1, 2, 3)
        for indices in ("", "_with_indices")
    },
    **{
        f"adaptive_{kind}_pool{n}d": _pool(
            getattr(nn, f"Adaptive{kind.capitalize()}Pool{n}d"), ("output_size",)
        )
        for n in (1, 2, 3)
        for kind in ("avg", "max")
    },
    "mean": _reduced(Mean, "a mean"),
    "sum": _reduced(Sum, "a sum"),
    "add": _add,
    "sub": _sub,
    "subtract": _sub,
    "rsub": _rsub,
    "mul": _mul,
    "multiply": _mul,
    "div": _div,
    "divide": _div,
    "true_divide": _div,
    "neg": _neg,
    "matmul": _matmul,
    "mm": _matmul,
    "bmm": _matmul,
    "addmm": _addmm,
    "scaled_dot_product_attention": _attention,
    "cat": _cat,
    "dropout": _dropout,
    "feature_dropout": _dropout,
    "alpha_dropout": _dropout,
    "feature_alpha_dropout": _dropout,
    **dict.fromkeys(("detach", "to", "_to_copy", "type_as", "float", "double", "lift_fresh", "positive"), _same),
    **dict.fromkeys(
        (
            "overwritten view reshape _unsafe_view view_as reshape_as flatten unflatten squeeze unsqueeze permute "
            "transpose t adjoint movedim swapaxes numpy_T expand expand_as repeat repeat_interleave tile select slice "
            "narrow index index_select take gather split split_with_sizes chunk tensor_split unbind stack hstack vstack "
            "roll flip rot90 diagonal tril triu constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d "
            "replication_pad1d replication_pad2d replication_pad3d pad pixel_shuffle pixel_unshuffle channel_shuffle "
            "native_channel_shuffle unfold im2col upsample_nearest1d upsample_nearest2d upsample_nearest3d contiguous "
            "clone alias where masked_fill slice_scatter select_scatter fill zero"
        ).split(),
        _rearranged,
    ),
    **dict.fromkeys(
        (
            "cumsum upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
            "_upsample_bilinear2d_aa _upsample_bicubic2d_aa col2im"
        ).split(),
        _linear_function,
    ),
}
KNOWN = frozenset(_TABLE)
"""Names of the ATen ops that are read whole; composite ones that are not here are taken apart."""


def emitted(call: Call) -> Value:
    """Add the steps that an entry stands for.

    Parameters
    ----------
    call : Call

    Returns
    -------
    Value
        Its output.

    Raises
    ------
    NoFormulaError
        If the op has no entry in the table, or moves the batch dimension.
    TypeError
        If it has one, but not for these arguments.
    """
    function = call.entry.function
    name = "overwritten" if function is overwritten else getattr(function, "_opname", "")
    if name not in _TABLE:
        raise NoFormulaError(call.replay.name)
    args, kwargs = call.arguments()
    builder = _TABLE[name]
    if builder is _rearranged or builder is _linear_function:
        return builder(call)
    return builder(call, *args, **kwargs)
