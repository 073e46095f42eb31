"""Finite arithmetic for losses: float64 internally, saturation at the limits, and accurate gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

# Far below the smallest positive float32 (1.4e-45), while its square and its inverse are still representable.
# Added to a variance or scale, it changes exact zeros only.
FLOOR = 2.0**-500


def limit(dtype: torch.dtype) -> float:
    """Largest magnitude of a value or gradient in `dtype`, which leaves room for sums of 2^32 of them."""
    return torch.finfo(dtype).max * 2.0**-32


class _Widen(Function):
    """Convert x to float64; the gradient is converted back with saturation."""

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
    """Convert x with saturation; the gradient passes through, so that a saturated loss can still decrease."""

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

    The gradient in torch, exp(log phi - log Phi), is inaccurate in the tail, where the two logarithms cancel:
    in float32 by a factor of 6.5 at z = -1e4, and it is infinite at -1e10 in float64.
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
        # phi / Phi = sqrt(2 / pi) exp(-z^2 / 2) / erfc(-z / sqrt 2). Both underflow in the tail, but their
        # ratio, computed from erfcx(x) = exp(x^2) erfc(x), does not.
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
    """Convert `x` to float64, with a gradient that saturates at the limit of its own dtype."""
    wide: Tensor = _Widen.apply(x)
    return wide


def narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert `x` to `dtype`, saturated at :func:`limit`."""
    value: Tensor = _Narrow.apply(x, dtype)
    return value


def log_ndtr(z: Tensor) -> Tensor:
    """Logarithm of the standard normal distribution function, with accurate gradients in both tails."""
    value: Tensor = _LogNdtr.apply(z)
    return value


def root(x: Tensor) -> Tensor:
    """Square root with gradient 0 instead of infinity at 0."""
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1.0).sqrt(), 0.0)


def reduced(values: Tensor, reduction: str, dtype: torch.dtype) -> Tensor:
    if reduction == "mean":
        values = values.mean()
    elif reduction == "sum":
        values = values.sum()
    return narrow(values, dtype)
