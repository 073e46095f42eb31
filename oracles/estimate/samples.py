"""Conversion of samples to matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Samples = Tensor | NDArray[np.floating]


def resident_matrix(samples: Samples) -> Samples:
    """Samples as a matrix, shape (samples, m), in their own dtype and on their device."""
    if isinstance(samples, Tensor) and samples.device.type != "cpu":
        there = samples.detach()
        _check_matrix(tuple(there.shape), there.dtype, floating=there.is_floating_point())
        return there
    _check_entries("samples", samples)
    matrix = samples.detach().numpy() if isinstance(samples, Tensor) else np.asarray(samples)
    _check_matrix(matrix.shape, matrix.dtype, floating=matrix.dtype.kind == "f")
    return matrix


def matrix_of(samples: Samples) -> NDArray[np.floating]:
    """Samples as an array of shape (samples, m), in their own dtype, on the CPU."""
    return on_cpu(resident_matrix(samples))


def on_cpu(array: Samples) -> NDArray[Any]:
    return array.cpu().numpy() if isinstance(array, Tensor) else array


def _check_matrix(shape: tuple[int, ...], dtype: object, *, floating: bool) -> None:
    if len(shape) != 2 or 0 in shape or not floating:
        kind = str(dtype).removeprefix("torch.")
        raise ValueError(f"samples must be a floating-point matrix (samples, m), got shape {shape}, {kind}")


def _check_entries(name: str, samples: Any) -> None:
    """Reject complex and masked entries, which a conversion to real numbers would drop or reveal."""
    if np.ma.is_masked(samples):
        raise ValueError(f"{name} has masked entries; drop these rows")
    if samples.is_complex() if isinstance(samples, Tensor) else np.iscomplexobj(samples):
        raise ValueError(f"{name} must be real numbers, not complex ones")


def finite_matrix(name: str, samples: Tensor | ArrayLike) -> NDArray[np.float64]:
    """Samples as an array of shape (samples, m), in float64; raise if it is not finite."""
    _check_entries(name, samples)
    numbers = samples.detach().cpu().double().numpy() if isinstance(samples, Tensor) else samples
    matrix = np.asarray(numbers, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"{name} must have shape (samples, m), got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} has non-finite entries (NaN or infinity)")
    return matrix
