"""Modules that name the ops which torch.nn has no module for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.errors import NoFormulaError


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
        What it is.
    function : callable, optional
        The op, of values (N, *event).
    """

    def __init__(self, text: str, function: Callable[..., Tensor] | None = None) -> None:
        super().__init__()
        self.text, self.function = text, function

    def forward(self, *values: Tensor) -> Tensor:
        """Compute it."""
        if self.function is None:
            raise NoFormulaError(self.text)
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


class Add(nn.Module):
    """Sum of two values of one shape (a residual connection)."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Add."""
        return a + b


class Cat(nn.Module):
    """Values side by side along dimension `dim` of an event (never the batch's)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, *values: Tensor) -> Tensor:
        """Concatenate."""
        if self.dim % values[0].ndim == 0:
            raise NoFormulaError("a concatenation along the batch dimension")
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
            raise NoFormulaError("a constant with a batch dimension")
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
            raise NoFormulaError("a mean over the batch")
        return x.mean(self.dims, self.keepdim)


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


class LinearFunction(Rearrange):
    """A linear function without a matrix of its own."""


class Multiply(nn.Module):
    """Product of two values, elementwise."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply."""
        return a * b


class Quotient(nn.Module):
    """Quotient of two values, elementwise."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Divide."""
        return a / b


class MatrixProduct(nn.Module):
    """Product of two matrices, both values."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply."""
        return a @ b


class Sum(nn.Module):
    """Sum over dimensions `dims` of an event."""

    def __init__(self, dims: Sequence[int], keepdim: bool) -> None:
        super().__init__()
        self.dims, self.keepdim = tuple(dims), keepdim

    def forward(self, x: Tensor) -> Tensor:
        """Add up."""
        return x.sum(self.dims, self.keepdim)


class Attention(nn.Module):
    """Scaled dot-product attention."""

    def __init__(
        self, is_causal: bool = False, scale: float | None = None, mask: Tensor | None = None
    ) -> None:
        super().__init__()
        self.is_causal, self.scale, self.mask = is_causal, scale, mask

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend."""
        mask = self.mask
        if mask is not None and mask.is_floating_point():
            mask = mask.to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, mask, 0.0, self.is_causal, scale=self.scale)
