"""Modules for ops that torch.nn has no module for; no op that a trace makes of them touches the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.activations import ELEMENTWISE
from sdp_ref.errors import NoLinearPartError


def set_tensors(module: nn.Module, **tensors: Tensor | None) -> nn.Module:
    """Set plain tensor attributes of a module, which keep their autograd history."""
    for name, tensor in tensors.items():
        if hasattr(module, name):
            delattr(module, name)
        setattr(module, name, tensor)
    return module


class Unknown(nn.Module):
    """An op that is not in any table, described by `text`.

    `function` maps values (N, *event) to one, row by row and in the dtype of the input. If `pointwise`, each
    component depends on the corresponding components of values of one shape.
    """

    def __init__(
        self, text: str, function: Callable[..., Tensor] | None = None, pointwise: bool = False
    ) -> None:
        super().__init__()
        self.text, self.function, self.pointwise = text, function, pointwise

    def forward(self, *values: Tensor) -> Tensor:
        if self.function is None:
            raise NoLinearPartError(self.text)
        return self.function(*values)


class Folded(nn.Module):
    """A module of values (N, *rest), applied to each of k parts of an event (k, *rest)."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.module(x.flatten(0, 1))
        return y.reshape(*x.shape[:2], *y.shape[1:])


def pointwise(module: nn.Module) -> bool:
    """Whether each output component of a module is known to depend on the corresponding input only."""
    known = type_before_parametrizations(module) in ELEMENTWISE
    return known or (isinstance(module, Unknown) and module.pointwise)


class Add(nn.Module):
    """Sum of two values of one shape (a residual connection)."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b


class Multiply(nn.Module):
    """Elementwise product of two values with the same number of dimensions, which are broadcast."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a * b


class Quotient(nn.Module):
    """Elementwise a / b of two values with the same number of dimensions, which are broadcast."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a / b


class MatrixProduct(nn.Module):
    """Product of matrices (N, *more, i, j) and (N, *more, j, k)."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b


class Maximum(nn.Module):
    """Elementwise maximum of two values with the same number of dimensions, which are broadcast."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.maximum(a, b)


class MaximumOfPairs(Maximum):
    """A step of a maximum over several components: of pairs first, then of pairs of these, and so on."""


class Sum(nn.Module):
    """Sum over dimensions `dims` of an event."""

    def __init__(self, dims: Sequence[int], keepdim: bool = False) -> None:
        super().__init__()
        self.dims, self.keepdim = tuple(dims), keepdim

    def forward(self, x: Tensor) -> Tensor:
        return self.summed(x)

    def summed(self, x: Tensor) -> Tensor:
        """Sum over the dimensions, for `x` (..., *event) with any leading dimensions."""
        return x.sum(self.dims, self.keepdim)


class Mean(Sum):
    """Mean over dimensions `dims` of an event: (N, *event) to (N, *rest)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(self.dims, self.keepdim)


class VectorNorm(Sum):
    """Euclidean length over dimensions `dims` of an event."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x, 2, self.dims, self.keepdim)


class Cat(nn.Module):
    """Concatenation along dimension `dim` of an event (never that of the batch)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, *values: Tensor) -> Tensor:
        return torch.cat(values, self.dim)


class _Constant(nn.Module):
    """Base of ops with one constant, a number or a tensor without a batch dimension."""

    def __init__(self, constant: float | Tensor) -> None:
        super().__init__()
        self.constant = constant

    def of(self, x: Tensor) -> Tensor:
        """Return the constant in the dtype and on the device of `x`."""
        return torch.as_tensor(self.constant, dtype=x.dtype, device=x.device)


class Shift(_Constant):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.of(x)


class Scale(_Constant):
    def forward(self, x: Tensor) -> Tensor:
        return x * self.of(x)


class Divide(_Constant):
    def forward(self, x: Tensor) -> Tensor:
        return x / self.of(x)


class LinearFunction(nn.Module):
    """Any affine function of one value (N, *event), row by row and in its dtype."""

    def __init__(self, text: str, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.text, self.function = text, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Interpolate(LinearFunction):
    """``F.interpolate`` of images (N, channels, *space), linear in one spatial dimension at a time."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__("interpolation", function)


class BatchNorm(nn.Module):
    """Batch normalisation by running statistics.

    `training` sets the mode only: formulas refuse the statistics of a batch, and the forward pass never uses
    them.
    """

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
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        set_tensors(self, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
        self.eps = eps
        self.train(training)

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = self.running_mean, self.running_var
        return F.batch_norm(x, mean, variance, self.weight, self.bias, False, 0.0, self.eps)


class Rearrange(LinearFunction):
    """Moves, drops, repeats or zero-pads components (N, *event); every output is one input or 0."""


class Reshape(Rearrange):
    """A rearrangement that preserves the order of the components, to values (N, *event)."""

    def __init__(self, event: Sequence[int]) -> None:
        super().__init__("reshape", lambda x: x.reshape(len(x), *event))
