"""A standard law as a mixture of a few narrower laws of its family."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Narrower:
    """Pieces of a standard law along one direction: `weights` at symmetric `offsets`, each of width `width`.

    `worth` is the score above which the benefit of a split exceeds the error of the mixture.
    """

    weights: tuple[float, ...]
    offsets: tuple[float, ...]
    width: float
    worth: float

    @property
    def count(self) -> int:
        return len(self.weights)


_FEW = 20
"""Number of pieces up to which halves are better than thirds, because they allow more splits."""

# Weights of thirds minimise the total variation distance to the standard normal at their width (0.027;
# that of halves is 0.059), among mixtures with its variance, so that splits preserve moments in affine nets.
_WEIGHTS = {2: (0.5, 0.5), 3: (0.2297, 0.5406, 0.2297)}
_UNITS = {2: (-1.0, 1.0), 3: (-1.0, 0.0, 1.0)}
_WIDTHS = {2: 0.7, 3: 0.6}
_WORTH = {2: 0.1, 3: 0.02}


def narrower(k: int, alpha: float | None = None) -> Narrower:
    """How to split one piece, for `k` pieces in total."""
    count = 2 if k <= _FEW else 3
    weights, width = _WEIGHTS[count], _WIDTHS[count]
    far = _far(count, alpha)
    return Narrower(weights, tuple(far * each for each in _UNITS[count]), width, _WORTH[count])


@functools.lru_cache
def _far(count: int, alpha: float | None) -> float:
    """Offset of the outer pieces: it preserves the variance or, if there is none, approximately the law."""
    weights, width = np.array(_WEIGHTS[count]), _WIDTHS[count]
    if alpha is None or alpha == 2:
        variance = 1.0 if alpha is None else 2.0  # variance of the stable law of scale 1
        return math.sqrt(variance * (1 - width**2) / (2 * weights[0]))
    from scipy.optimize import minimize_scalar

    below, unit = _distribution(alpha), np.array(_UNITS[count])
    points = np.tan(np.pi * np.linspace(0.02, 0.48, 24))  # quantiles of the Cauchy law
    want = below(points)

    def gap(far: float) -> float:
        mixed = below((points[:, None] - far * unit) / width) @ weights
        return float(np.square(mixed - want).sum())

    return float(minimize_scalar(gap, bounds=(0.0, 4.0), method="bounded").x)


def _distribution(alpha: float) -> Callable[[Array], Array]:
    """Distribution function of the standard symmetric stable law."""
    if alpha == 1:
        return lambda x: 0.5 + np.arctan(x) / np.pi
    from scipy.stats import levy_stable

    return lambda x: np.asarray(levy_stable.cdf(x, alpha, 0.0), dtype=np.float64)
