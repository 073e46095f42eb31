"""Validation of the arguments of losses; every error message is one line."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law
from sdp_ref.laws.base import finite, require

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
    if tuple(spread.shape) != expected:
        raise ValueError(f"{name} must have shape {expected}, got {tuple(spread.shape)}")
    require(finite("the law's location", law.location), finite(f"the law's {name}", spread))


def check_classes(what: str, location: Tensor) -> None:
    """Require shape (B, m) with m >= 2 classes."""
    if location.ndim != 2:
        raise ValueError(f"{what} needs scores of shape (B, classes), got {tuple(location.shape)}")
    if location.shape[1] < 2:
        raise ValueError(f"{what} needs at least 2 classes, got {location.shape[1]}")


def check_labels(labels: object, location: Tensor) -> Tensor:
    batch, classes = location.shape
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        raise ValueError(f"labels must be a tensor of class indices (integers), got {_kind(labels)}")
    if labels.dtype == torch.bool:
        raise ValueError("labels must be class indices (integers), got booleans")
    if tuple(labels.shape) != (batch,):
        raise ValueError(f"labels must have shape {(batch,)}, got {tuple(labels.shape)}")
    labels = labels.to(device=location.device, dtype=torch.int64)
    outside = labels[(labels < 0) | (labels >= classes)]
    if outside.numel():
        raise ValueError(f"labels must lie in 0..{classes - 1} for {classes} classes, got {int(outside[0])}")
    return labels


def check_like(name: str, value: object, like: Tensor, what: str) -> Tensor:
    """Require a finite floating-point tensor of exactly the shape of `like`, without broadcasting."""
    value = check_float(name, value)
    if value.shape != like.shape:
        raise ValueError(f"{name} must have {what}'s shape {tuple(like.shape)}, got {tuple(value.shape)}")
    return value


def check_float(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor) or value.dtype not in _DTYPES:
        raise ValueError(f"{name} must be a float32 or float64 tensor, got {_kind(value)}")
    check_finite(name, value)
    return value


def check_finite(name: str, value: Tensor) -> None:
    require(finite(name, value))


def check_reduction(reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
