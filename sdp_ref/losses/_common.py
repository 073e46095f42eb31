"""Validation of the arguments of losses, and functions whose values and gradients stay finite."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import Function

from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law
from sdp_ref.laws.base import check_shape, finite, require

Reduction = Literal["mean", "sum", "none"]
_DTYPES = (torch.float32, torch.float64)
_FIELDS: dict[type[Law], str] = {Gaussian: "covariance", DiagonalGaussian: "variance", Cauchy: "scale"}


def check_law(what: str, law: Law, *families: type[Law]) -> None:
    """Require one of the families with float32 or float64 dtype, consistent shapes and finite entries.

    Laws returned by rules were never validated, so their shapes are checked here, too.
    """
    if not isinstance(law, families):
        names = ", ".join(family.__name__ for family in families)
        raise ValueError(f"{what} takes a law of {names}, got {type(law).__name__}")
    if law.location.dtype not in _DTYPES:
        raise ValueError(f"{what} works in float32 or float64, got {law.location.dtype}; use law.to(...)")
    name = next(field for family, field in _FIELDS.items() if isinstance(law, family))
    spread = getattr(law, name)
    n = law.dimension
    expected = (law.batch, n, n) if name == "covariance" else tuple(law.location.shape)
    check_shape(name, spread, expected)
    require(finite("the law's location", law.location), finite(f"the law's {name}", spread))


def check_classes(what: str, location: Tensor) -> None:
    """Require shape (B, m) with m >= 2 classes."""
    if location.ndim != 2:
        raise ValueError(f"{what} needs scores of shape (B, classes), got {tuple(location.shape)}")
    if location.shape[1] < 2:
        raise ValueError(f"{what} needs at least 2 classes, got {location.shape[1]}")


def check_labels(labels: object, location: Tensor) -> Tensor:
    """Require class indices (B,) for scores (B, classes); return them as int64, on the device of these."""
    batch, classes = location.shape
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        raise ValueError(f"labels must be a tensor of class indices (integers), got {_kind(labels)}")
    if labels.dtype == torch.bool:
        raise ValueError("labels must be class indices (integers), got booleans")
    check_shape("labels", labels, (batch,))
    labels = labels.to(device=location.device, dtype=torch.int64)
    invalid = labels[(labels < 0) | (labels >= classes)]
    if invalid.numel():
        raise ValueError(f"labels must lie in 0..{classes - 1} for {classes} classes, got {int(invalid[0])}")
    return labels


def check_like(name: str, value: object, like: Tensor, what: str) -> Tensor:
    """Require a finite floating-point tensor of exactly the shape of `like`, without broadcasting."""
    value = check_float(name, value)
    if value.shape != like.shape:
        raise ValueError(f"{name} must have {what}'s shape {tuple(like.shape)}, got {tuple(value.shape)}")
    return value


def check_float(name: str, value: object) -> Tensor:
    """Require a finite float32 or float64 tensor of any shape, and return it."""
    if not isinstance(value, Tensor) or value.dtype not in _DTYPES:
        raise ValueError(f"{name} must be a float32 or float64 tensor, got {_kind(value)}")
    require(finite(name, value))
    return value


def check_reduction(reduction: str) -> None:
    """Require one of the reductions "mean", "sum" and "none" of losses (B,)."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__


# Far below the smallest positive float32 (1.4e-45), while its square and its inverse are still representable.
# Added to a variance or scale, it changes exact zeros only.
FLOOR = 2.0**-500


def limit(dtype: torch.dtype) -> float:
    """Largest magnitude of a value or gradient in `dtype`, which leaves room for sums of 2^32 of them."""
    return torch.finfo(dtype).max * 2.0**-32


class _Cast(Function):
    """Convert x with saturation, and the gradient back, so that a saturated loss can still decrease."""

    @staticmethod
    def forward(x: Tensor, dtype: torch.dtype) -> Tensor:
        bound = limit(dtype)
        return x.double().clamp(-bound, bound).to(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, torch.dtype], _output: Tensor) -> None:
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return narrow(gradient, ctx.dtype), None


class _LogNdtr(Function):
    """Logarithm of Phi(z).

    The gradient in torch, exp(log phi - log Phi), is inaccurate in the tail, where the two logarithms cancel:
    in float32 by a factor of 6.5 at z = -1e4, and it is infinite at -1e10 in float64.
    """

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        return torch.special.log_ndtr(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], _output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        return gradient * _Ratio.apply(z)


class _Ratio(Function):
    """h(z) = phi(z) / Phi(z), with h' = -h (z + h)."""

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        # phi / Phi = sqrt(2 / pi) exp(-z^2 / 2) / erfc(-z / sqrt 2). Both underflow in the tail, but their
        # ratio, computed from erfcx(x) = exp(x^2) erfc(x), does not.
        return math.sqrt(2 / math.pi) / torch.special.erfcx(-z / math.sqrt(2))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], _output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        ratio: Tensor = _Ratio.apply(z)
        return -gradient * ratio * (z + ratio)


def widen(x: Tensor) -> Tensor:
    """Convert `x` to float64, with a gradient that saturates at the limit of its own dtype."""
    return narrow(x, torch.float64)


def narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert `x` to `dtype`, saturated at :func:`limit`."""
    return _Cast.apply(x, dtype)


def log_ndtr(z: Tensor) -> Tensor:
    """Logarithm of the standard normal distribution function, with accurate gradients in both tails."""
    return _LogNdtr.apply(z)


def reduced(values: Tensor, reduction: str, dtype: torch.dtype) -> Tensor:
    """Reduce losses (B,), and convert the result to `dtype`, saturated at :func:`limit`."""
    if reduction == "mean":
        values = values.mean()
    elif reduction == "sum":
        values = values.sum()
    return narrow(values, dtype)
