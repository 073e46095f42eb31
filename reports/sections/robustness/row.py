"""A model in the tables of robustness."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ScaleRow:
    """A model, and its accuracies in per cent (NaN if not measured).

    `scale` is that of the noise in training, 0 without. `noise` has accuracies by standard deviation.
    `required`, `own`, `cross_entropy` and `square` are in the larger ball: under PGD on its own loss with
    non-zero gradients, without that condition, under PGD on cross-entropy, and under the Square attack.
    `pixel` is like `required`, with a non-zero gradient at every pixel.
    """

    objective: str
    scale: float
    clean: float
    noise: tuple[float, ...]
    required: float
    pixel: float
    own: float
    cross_entropy: float
    square: float
    runs: int

    @property
    def weakest(self) -> float:
        """Smallest accuracy under an attack: an upper bound on robust accuracy."""
        known = [each for each in (self.own, self.cross_entropy, self.square) if not math.isnan(each)]
        return min(known, default=math.nan)
