"""Modules that name the ops which torch.nn has no module for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.activations import ELEMENTWISE
from sdp_ref.errors import NoLinearPartError


def set_tensors(module: nn.Module, **tensors: Tensor | None) -> nn.Module:
    """Give a module plain tensor attributes, so that tensors with a history keep it."""
    for name, tensor in tensors.items():
        if hasattr(module, name):
            delattr(module, name)
        setattr(module, name, tensor)
    return module


class Unknown(nn.Module):
    """An op that no table here knows.

    Parameters
    ----------
    text : str
        What it is, for messages.
    function : callable, optional
        What it computes, from values (N, *event) to one, each row by itself and in the dtype that comes in.
    pointwise : bool
        Whether each component is made from the like components of values of one shape.
    """

    def __init__(
        self, text: str, function: Callable[..., Tensor] | None = None, pointwise: bool = False
    ) -> None:
        super().__init__()
        self.text, self.function, self.pointwise = text, function, pointwise

    def forward(self, *values: Tensor) -> Tensor:
        """Compute it."""
        if self.function is None:
            raise NoLinearPartError(self.text)
        return self.function(*values)


class Folded(nn.Module):
    """Another op on each of k parts of an event (k, *rest) by itself.

    Parameters
    ----------
    module : nn.Module
        Of values (N, *rest).
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Fold the parts into the batch and back."""
        y: Tensor = self.module(x.flatten(0, 1))
        return y.reshape(*x.shape[:2], *y.shape[1:])


def pointwise(module: nn.Module) -> bool:
    """Whether each component that a module gives is known to be made from the like one that it takes."""
    known = type_before_parametrizations(module) in ELEMENTWISE
    return known or (isinstance(module, Unknown) and module.pointwise)


class Add(nn.Module):
    """Sum of two values of one shape (a residual connection)."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Add."""
        return a + b


def _aligned(op: str, a: Tensor, b: Tensor) -> None:
    """Refuse two values whose batch dimensions torch would not broadcast with each other."""
    if a.ndim != b.ndim:
        raise NoLinearPartError(f"{op} of values of shapes {tuple(a.shape[1:])} and {tuple(b.shape[1:])}")


class Multiply(nn.Module):
    """Elementwise product of two values of as many dimensions, which are broadcast to one shape."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply."""
        _aligned("a product", a, b)
        return a * b


class Quotient(nn.Module):
    """a / b, elementwise, of two values of as many dimensions, which are broadcast to one shape."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Divide."""
        _aligned("a quotient", a, b)
        return a / b


class MatrixProduct(nn.Module):
    """Matrices (N, *more, i, j) of one value times those (N, *more, j, k) of another."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply."""
        _aligned("a product of matrices", a, b)
        if a.ndim < 3:
            raise NoLinearPartError("a product of matrices over the batch dimension")
        return a @ b


class Maximum(nn.Module):
    """The larger of two values, elementwise, of as many dimensions, which are broadcast to one shape."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Choose."""
        _aligned("a maximum", a, b)
        return torch.maximum(a, b)


class MaximumOfPairs(Maximum):
    """A part of a maximum of more than two: of pairs first, then of pairs of these, and so on."""


class VectorNorm(nn.Module):
    """Euclidean length over dimensions `dims` of an event."""

    def __init__(self, dims: Sequence[int], keepdim: bool = False) -> None:
        super().__init__()
        self.dims, self.keepdim = tuple(dims), keepdim

    def forward(self, x: Tensor) -> Tensor:
        """Measure."""
        if any(d % x.ndim == 0 for d in self.dims):
            raise NoLinearPartError("a norm over the batch")
        length: Tensor = torch.linalg.vector_norm(x, 2, self.dims, self.keepdim)
        return length

    def summed(self, x: Tensor) -> Tensor:
        """Sum over the dimensions of the norm, of `x` (..., *event) with any dimensions before."""
        return x.sum(self.dims, self.keepdim)


class Cat(nn.Module):
    """Values side by side along dimension `dim` of an event (never the batch's)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, *values: Tensor) -> Tensor:
        """Concatenate."""
        if self.dim % values[0].ndim == 0:
            raise NoLinearPartError("a concatenation along the batch dimension")
        return torch.cat(values, self.dim)


class _Constant(nn.Module):
    """Base of ops with one constant, a number or a tensor without a batch dimension."""

    def __init__(self, constant: float | Tensor) -> None:
        super().__init__()
        self.constant = constant

    def of(self, x: Tensor) -> Tensor:
        """Return the constant in the dtype and on the device of `x`."""
        constant = torch.as_tensor(self.constant, dtype=x.dtype, device=x.device)
        if constant.ndim > x.ndim or (constant.ndim == x.ndim and constant.shape[0] != 1):
            raise NoLinearPartError("a constant with a batch dimension")
        return constant


class Shift(_Constant):
    """x + constant."""

    def forward(self, x: Tensor) -> Tensor:
        """Add the constant."""
        return x + self.of(x)


class Scale(_Constant):
    """x * constant, elementwise."""

    def forward(self, x: Tensor) -> Tensor:
        """Multiply by the constant."""
        return x * self.of(x)


class Divide(_Constant):
    """x / constant, elementwise."""

    def forward(self, x: Tensor) -> Tensor:
        """Divide by the constant."""
        return x / self.of(x)


class Mean(nn.Module):
    """Mean over dimensions `dims` of an event."""

    def __init__(self, dims: Sequence[int], keepdim: bool) -> None:
        super().__init__()
        self.dims, self.keepdim = tuple(dims), keepdim

    def forward(self, x: Tensor) -> Tensor:
        """Average."""
        if any(d % x.ndim == 0 for d in self.dims):
            raise NoLinearPartError("a mean over the batch")
        return x.mean(self.dims, self.keepdim)


class Sum(nn.Module):
    """Sum over dimensions `dims` of an event."""

    def __init__(self, dims: Sequence[int], keepdim: bool = False) -> None:
        super().__init__()
        self.dims, self.keepdim = tuple(dims), keepdim

    def forward(self, x: Tensor) -> Tensor:
        """Add up."""
        if any(d % x.ndim == 0 for d in self.dims):
            raise NoLinearPartError("a sum over the batch")
        return x.sum(self.dims, self.keepdim)


class Pad(nn.Module):
    """``F.pad`` by its arguments.

    Parameters
    ----------
    pad : sequence of int
        Widths, those of the last dimension first.
    mode : str
        "constant", "reflect", "replicate" or "circular".
    value : float, optional
        Of the constant mode; 0 if not given.
    """

    def __init__(self, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> None:
        super().__init__()
        self.pad, self.mode, self.value = tuple(pad), mode, value

    def forward(self, x: Tensor) -> Tensor:
        """Pad."""
        if len(self.pad) // 2 >= x.ndim:
            raise NoLinearPartError("padding of the batch dimension")
        return F.pad(x, self.pad, self.mode, self.value if self.mode == "constant" else None)


class LinearFunction(nn.Module):
    """Any affine function of one value, each row by itself.

    Parameters
    ----------
    text : str
        What it is, for messages.
    function : callable
        Of one tensor (N, *event), in its dtype.
    """

    def __init__(self, text: str, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.text, self.function = text, function

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return self.function(x)


class Interpolate(LinearFunction):
    """Images (N, channels, *space) in another size: linear, each dimension of space by itself.

    Parameters
    ----------
    function : callable
        Of one tensor, as ``F.interpolate`` with its options.
    """

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__("interpolation", function)


class BatchNorm(nn.Module):
    """``F.batch_norm`` by its arguments."""

    running_mean: Tensor | None
    running_var: Tensor | None
    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,  # noqa: ARG002
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        set_tensors(self, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
        self.eps = eps
        self.train(training)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by the running statistics."""
        mean, variance = self.running_mean, self.running_var
        return F.batch_norm(x, mean, variance, self.weight, self.bias, False, 0.0, self.eps)


class Rearrange(nn.Module):
    """Moves, drops, repeats or zero-pads components; every output is one input or 0.

    Parameters
    ----------
    text : str
        What it is, for messages.
    function : callable
        Of one tensor (N, *event).
    """

    def __init__(self, text: str, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.text, self.function = text, function

    def forward(self, x: Tensor) -> Tensor:
        """Rearrange."""
        return self.function(x)


class Reshape(Rearrange):
    """A rearrangement that leaves the order of the components as it is."""
