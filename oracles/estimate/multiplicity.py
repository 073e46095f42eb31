"""Correction for multiple tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """p-values adjusted for their number along the last axis (Holm 1979)."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, axis=-1, kind="stable")
    stepped = np.take_along_axis(p, order, -1) * np.arange(p.shape[-1], 0, -1)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.minimum(1.0, np.maximum.accumulate(stepped, -1)), -1)
    return adjusted
