"""Which module each functional form of an op is: one table, for :mod:`sdp_ref.graph.trace`."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.activations import ACTIVATIONS
from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.ops import Add, BatchNorm, Cat, Divide, Mean, Rearrange, Reshape, Scale, Shift, set_tensors


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Module:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    return set_tensors(layer, weight=weight, bias=bias)


def _conv(kind: type[nn.Conv1d | nn.Conv2d]) -> Callable[..., nn.Module]:
    def build(
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> nn.Module:
        layer: nn.Module = kind(
            weight.shape[1] * groups,
            weight.shape[0],
            tuple(weight.shape[2:]),  # type: ignore[arg-type]
            stride,
            padding,
            dilation,
            groups,
            bias is not None,
            device="meta",
        )
        return set_tensors(layer, weight=weight, bias=bias)

    return build


def _elementwise(kind: type[nn.Module]) -> Callable[..., nn.Module]:
    @functools.wraps(kind, updated=())
    def build(*args: Any, **options: Any) -> nn.Module:
        module = kind(*args, **options)
        if hasattr(module, "inplace"):  # whether an op writes over its input is read from its call
            module.inplace = False  # type: ignore[assignment]  # a plain attribute
        return module

    return build


def _dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:  # noqa: ARG001
    return nn.Dropout(p).train(training)


def _flatten(start_dim: int = 0, end_dim: int = -1) -> nn.Module:
    return nn.Flatten(start_dim, end_dim)


def _layer_norm(
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> nn.Module:
    layer = nn.LayerNorm(list(normalized_shape), eps=eps, elementwise_affine=False)
    return set_tensors(layer, weight=weight, bias=bias)


def _softmax(dim: int, dtype: torch.dtype | None = None, _stacklevel: int = 3) -> nn.Module:
    if dtype is not None:
        raise TypeError("softmax with a dtype")
    return nn.Softmax(dim)


def _mean(dim: int | Sequence[int], keepdim: bool = False) -> nn.Module:
    return Mean([dim] if isinstance(dim, int) else dim, keepdim)


BATCH = object()  # the batch size, in a list of sizes


@dataclass(frozen=True)
class Size:
    """A number made from the shape of value `of`, ``x.size(1)`` say."""

    of: int
    get: Callable[[torch.Size], Any]


def _reshape(of: int, *given: Any) -> nn.Module:
    sizes: list[Any] = list(given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given)
    foreign = [i for i, s in enumerate(sizes) if isinstance(s, Size) and s.of != of]
    if len(foreign) == 1 and foreign[0] > 0 and -1 not in sizes[1:]:
        sizes[foreign[0]] = -1  # torch can tell it from the others
    elif foreign:
        raise NoFormulaError("a reshape by the sizes of another value")
    if sizes and isinstance(sizes[0], int) and sizes[0] == -1 and -1 not in sizes[1:]:
        sizes[0] = BATCH
    if len(sizes) < 2 or sizes[0] is not BATCH or BATCH in sizes[1:]:
        raise NoFormulaError("a reshape that does not keep the batch dimension")

    def function(x: Tensor) -> Tensor:
        return x.reshape(len(x), *(s.get(x.shape) if isinstance(s, Size) else s for s in sizes[1:]))

    return Reshape("reshape", function)


def _kept(x: Tensor, *dims: int) -> None:
    if any(d % x.ndim == 0 for d in dims):
        raise NoFormulaError("an op that moves the batch dimension")


def _permute(*given: Any) -> nn.Module:
    dims = tuple(given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given)

    def function(x: Tensor) -> Tensor:
        _kept(x, *dims[1:])
        return x.permute(dims)

    return Rearrange("permute", function)


def _transpose(dim0: int, dim1: int) -> nn.Module:
    def function(x: Tensor) -> Tensor:
        _kept(x, dim0, dim1)
        return x.transpose(dim0, dim1)

    return Rearrange("transpose", function)


def _squeeze(dim: int | Sequence[int]) -> nn.Module:
    dims = (dim,) if isinstance(dim, int) else tuple(dim)

    def function(x: Tensor) -> Tensor:
        _kept(x, *dims)
        return x.squeeze(dims)

    return Reshape("squeeze", function)


def _unsqueeze(dim: int) -> nn.Module:
    def function(x: Tensor) -> Tensor:
        if dim % (x.ndim + 1) == 0:
            raise NoFormulaError("an op that moves the batch dimension")
        return x.unsqueeze(dim)

    return Reshape("unsqueeze", function)


def _getitem(index: Any) -> nn.Module:
    index = index if isinstance(index, tuple) else (index,)
    others = sum(1 for i in index if i is not None and i is not Ellipsis)
    lists = sum(1 for i in index if isinstance(i, list | Tensor))
    if any(isinstance(i, Size) for i in index) or lists > 1:
        raise TypeError("an index by sizes or by several lists")
    if index[0] is not Ellipsis and index[0] != slice(None):
        raise NoFormulaError("an index into the batch dimension")

    def function(x: Tensor) -> Tensor:
        if index[0] is Ellipsis and others >= x.ndim:
            raise NoFormulaError("an index into the batch dimension")
        return x[index]

    return Rearrange("getitem", function)


def _pad(pad: Sequence[int], mode: str = "constant", value: float | None = None) -> nn.Module:
    if mode != "constant" or value:
        raise NoFormulaError("padding with anything but zeros")

    def function(x: Tensor) -> Tensor:
        if len(pad) // 2 >= x.ndim:
            raise NoFormulaError("padding of the batch dimension")
        return F.pad(x, list(pad))

    return Rearrange("pad", function)


def _clone(**_options: Any) -> nn.Module:
    return nn.Identity()


@dataclass(frozen=True)
class Value:
    """Place of a value among the arguments of an op."""

    index: int


Emit = Callable[..., Value]
Builder = Callable[..., Value]


def _unary(make: Callable[..., nn.Module]) -> Builder:
    def build(emit: Emit, x: Any = None, *args: Any, **options: Any) -> Value:
        x = options.pop("input", options.pop("self", None)) if x is None else x
        if not isinstance(x, Value) or any(isinstance(v, Value) for v in (*args, *options.values())):
            raise TypeError("a value among the constants")
        return emit(make(*args, **options), x)

    build.inplace = _inplace_of(make)  # type: ignore[attr-defined]
    return build


def _inplace_of(make: Callable[..., nn.Module]) -> Callable[..., bool]:
    """Tell from the arguments of an op whether it is asked to write over its input."""

    def inplace(*args: Any, **options: Any) -> bool:
        try:
            return inspect.signature(make).bind(*args, **options).arguments.get("inplace", False) is True
        except (TypeError, ValueError):
            return False

    return inplace


def _reshaped(emit: Emit, x: Any, *sizes: Any, shape: Any = ()) -> Value:
    if not isinstance(x, Value):
        raise TypeError("not a value")
    return emit(_reshape(x.index, *(sizes or (shape,))), x)


def _added(emit: Emit, a: Any, b: Any, *, alpha: float = 1) -> Value:
    if isinstance(b, Value):
        b = b if alpha == 1 else emit(Scale(alpha), b)
    elif alpha != 1:
        b = b * alpha
    if isinstance(a, Value) and isinstance(b, Value):
        return emit(Add(), a, b)
    value, constant = (a, b) if isinstance(a, Value) else (b, a)
    return emit(Shift(_number(constant)), value)


def _subtracted(emit: Emit, a: Any, b: Any, *, alpha: float = 1) -> Value:
    return _added(emit, a, b, alpha=-alpha)


def _multiplied(emit: Emit, a: Any, b: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, Value):
        raise NoFormulaError("a product of two values")
    value, constant = (a, b) if isinstance(a, Value) else (b, a)
    return emit(Scale(_number(constant)), value)


def _divided(emit: Emit, a: Any, b: Any) -> Value:
    if isinstance(b, Value):
        raise NoFormulaError("a division by a value")
    return emit(Divide(_number(b)), a)


def _negated(emit: Emit, x: Any) -> Value:
    return emit(Scale(-1), x)


def _number(constant: Any) -> float | Tensor:
    if not isinstance(constant, int | float | Tensor):
        raise TypeError(f"a constant of type {type(constant).__name__}")
    return constant


def _concatenated(emit: Emit, tensors: Any, dim: int = 0) -> Value:
    if not all(isinstance(t, Value) for t in tensors):
        raise NoFormulaError("a concatenation with a constant")
    return emit(Cat(dim), *tensors)


def _stacked(emit: Emit, tensors: Any, dim: int = 0) -> Value:
    return _concatenated(emit, [emit(_unsqueeze(dim), t) for t in tensors], dim)


def _matrix_product(emit: Emit, a: Any, b: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, Value):
        raise NoFormulaError("a product of two values")
    if not isinstance(b, Tensor) or b.ndim != 2:
        raise TypeError("not a value by a matrix")
    return emit(_linear(b.mT), a)


_IDENTITY = _unary(_clone)

FUNCTIONS: dict[Any, Builder] = {
    F.linear: _unary(_linear),
    F.conv1d: _unary(_conv(nn.Conv1d)),
    F.conv2d: _unary(_conv(nn.Conv2d)),
    F.batch_norm: _unary(BatchNorm),
    F.layer_norm: _unary(_layer_norm),
    F.avg_pool1d: _unary(nn.AvgPool1d),
    F.avg_pool2d: _unary(nn.AvgPool2d),
    F.adaptive_avg_pool1d: _unary(nn.AdaptiveAvgPool1d),
    F.adaptive_avg_pool2d: _unary(nn.AdaptiveAvgPool2d),
    F.max_pool1d: _unary(nn.MaxPool1d),
    F.max_pool2d: _unary(nn.MaxPool2d),
    F.adaptive_max_pool1d: _unary(nn.AdaptiveMaxPool1d),
    F.adaptive_max_pool2d: _unary(nn.AdaptiveMaxPool2d),
    F.softplus: _unary(nn.Softplus),
    F.elu: _unary(_elementwise(nn.ELU)),
    **{call: _unary(_elementwise(kind.module)) for kind in ACTIVATIONS.values() for call in kind.calls},
    F.softmax: _unary(_softmax),
    torch.softmax: _unary(_softmax),
    "softmax": _unary(_softmax),
    F.dropout: _unary(_dropout),
    torch.mean: _unary(_mean),
    "mean": _unary(_mean),
    torch.flatten: _unary(_flatten),
    "flatten": _unary(_flatten),
    torch.reshape: _reshaped,
    "reshape": _reshaped,
    "view": _reshaped,
    torch.permute: _unary(_permute),
    "permute": _unary(_permute),
    torch.transpose: _unary(_transpose),
    "transpose": _unary(_transpose),
    torch.squeeze: _unary(_squeeze),
    "squeeze": _unary(_squeeze),
    torch.unsqueeze: _unary(_unsqueeze),
    "unsqueeze": _unary(_unsqueeze),
    operator.getitem: _unary(_getitem),
    F.pad: _unary(_pad),
    "contiguous": _IDENTITY,
    "clone": _IDENTITY,
    torch.clone: _IDENTITY,
    torch.cat: _concatenated,
    torch.concat: _concatenated,
    torch.stack: _stacked,
    **dict.fromkeys((operator.matmul, torch.matmul, "matmul", torch.mm, "mm"), _matrix_product),
    torch.neg: _negated,
    operator.neg: _negated,
    "neg": _negated,
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add", "add_"), _added),
    **dict.fromkeys((operator.sub, operator.isub, torch.sub, "sub", "sub_"), _subtracted),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul, "mul", "mul_"), _multiplied),
    **dict.fromkeys((operator.truediv, operator.itruediv, torch.div, "div", "div_"), _divided),
}
