"""Samples as they are given, and as matrices of numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Samples = Tensor | NDArray[np.floating]


def matrix_of(samples: Samples) -> NDArray[np.floating]:
    """Samples as an array of shape (samples, m), in their own precision.

    Returns
    -------
    ndarray, shape (samples, m)
        Shares its memory where it can.

    Raises
    ------
    ValueError
        If they are no such array of floating-point numbers, or none.
    """
    matrix = samples.detach().cpu().numpy() if isinstance(samples, Tensor) else np.asarray(samples)
    if matrix.ndim != 2 or matrix.size == 0 or matrix.dtype.kind != "f":
        raise ValueError(
            f"samples must be a floating-point matrix (samples, m), got shape {matrix.shape}, {matrix.dtype}"
        )
    return matrix


def finite_matrix(name: str, samples: Tensor | ArrayLike) -> NDArray[np.float64]:
    """Samples as an array of shape (samples, m), in float64.

    Parameters
    ----------
    name : str
        What they are, for messages.
    samples : Tensor or array_like

    Returns
    -------
    ndarray, shape (samples, m), float64

    Raises
    ------
    ValueError
        If they are no matrix, none, or not finite.
    """
    numbers = samples.detach().cpu().double().numpy() if isinstance(samples, Tensor) else samples
    matrix = np.asarray(numbers, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"{name} must have shape (samples, m), got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} has non-finite entries (NaN or infinity)")
    return matrix
