"""A model in the tables of robustness."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ScaleRow:
    """A model: what it was trained by, and what it gets right (per cent; NaN where it was not asked).

    Attributes
    ----------
    objective : str
        For people.
    scale : float
        Of the noise in training; 0 without.
    clean : float
    noise : tuple of float
        By standard deviation.
    required, own, cross_entropy, square : float
        In the larger ball: under PGD on its own loss with gradients that are not zero, without that, under
        PGD on cross-entropy, and under the Square attack.
    pixel : float
        As `required`, with a non-zero gradient at every pixel.
    runs : int
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
        """Smallest of what the attacks leave: robust accuracy is no more."""
        known = [each for each in (self.own, self.cross_entropy, self.square) if not math.isnan(each)]
        return min(known, default=math.nan)
