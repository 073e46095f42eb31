"""Numbers that stay finite: float64 inside, saturation at the edges, a log Phi with its true gradient."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

# Far below the smallest positive float32 (1.4e-45), and its square and inverse are floats too: added
# to a variance or a scale it changes nothing but an exact zero.
FLOOR = 2.0**-500


def limit(dtype: torch.dtype) -> float:
    """Largest size of a value or gradient in `dtype`: room is left for sums of 2^32 of them."""
    return torch.finfo(dtype).max * 2.0**-32


class _Widen(Function):
    """x in float64; the gradient comes back in x's dtype, saturated."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.double().clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], _output: Tensor) -> None:
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return narrow(gradient, ctx.dtype)


class _Narrow(Function):
    """x in a dtype, saturated; the gradient passes, so that a saturated loss still says where to go."""

    @staticmethod
    def forward(x: Tensor, dtype: torch.dtype) -> Tensor:
        bound = limit(dtype)
        return x.clamp(-bound, bound).to(dtype)

    @staticmethod
    def setup_context(_ctx: Any, _inputs: tuple[Tensor, torch.dtype], _output: Tensor) -> None:
        pass

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return widen(gradient), None


class _LogNdtr(Function):
    """Logarithm of Phi(z).

    torch's own gradient, exp(log phi - log Phi), goes wrong far out, where the two logarithms cancel:
    in float32 by 6.5 times at z = -1e4, and to infinity at -1e10 in float64.
    """

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        value: Tensor = torch.special.log_ndtr(z)
        return value

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], _output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        product: Tensor = gradient * _Ratio.apply(z)
        return product


class _Ratio(Function):
    """h(z) = phi(z) / Phi(z), with h' = -h (z + h)."""

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        # phi / Phi = sqrt(2 / pi) exp(-z^2 / 2) / erfc(-z / sqrt 2): far out both underflow, and their ratio,
        # which erfcx(x) = exp(x^2) erfc(x) gives, does not.
        ratio: Tensor = math.sqrt(2 / math.pi) / torch.special.erfcx(-z / math.sqrt(2))
        return ratio

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], _output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        ratio: Tensor = _Ratio.apply(z)
        product: Tensor = -gradient * ratio * (z + ratio)
        return product


def widen(x: Tensor) -> Tensor:
    """`x` in float64, its gradient saturated to what its own dtype holds."""
    wide: Tensor = _Widen.apply(x)
    return wide


def narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` in `dtype`, saturated at :func:`limit`."""
    value: Tensor = _Narrow.apply(x, dtype)
    return value


def log_ndtr(z: Tensor) -> Tensor:
    """Logarithm of the standard normal distribution function, float64, gradients true in both tails."""
    value: Tensor = _LogNdtr.apply(z)
    return value


def root(x: Tensor) -> Tensor:
    """Square root; at 0 its gradient is 0 and not infinite."""
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1.0).sqrt(), 0.0)


def reduced(values: Tensor, reduction: str, dtype: torch.dtype) -> Tensor:
    """Mean or sum of all values, or the values, in `dtype`."""
    if reduction == "mean":
        values = values.mean()
    elif reduction == "sum":
        values = values.sum()
    return narrow(values, dtype)
