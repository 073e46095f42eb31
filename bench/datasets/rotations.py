"""Rotations: points that rotate by a constant angle per step, observed with noise; the class is the angle.

A synthetic task small enough for every rule: ten equally spaced angles. A single step contains no information
about the class.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sdp_bench.bench.datasets.base import SequenceClassification

LENGTH, CLASSES = 8, 10
ANGLES = np.linspace(0.2, 2.9, CLASSES)
"""Angles (radians per step)."""
NOISE = 0.1
"""Standard deviation of the noise on each coordinate."""


def _draw(split: str, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng([0x207A7E, *split.encode()])
    classes = np.arange(count) % CLASSES
    radius, start = rng.uniform(0.5, 1.5, (count, 1)), rng.uniform(0, 2 * np.pi, (count, 1))
    angle = start + ANGLES[classes, None] * np.arange(LENGTH)
    points = radius[..., None] * np.stack([np.cos(angle), np.sin(angle)], 2)
    noisy = points + NOISE * rng.standard_normal(points.shape)
    return noisy.astype(np.float32), classes.astype(np.int64)


ROTATIONS = SequenceClassification(
    "rotations", "Rotations", "the project's own", {"train": 20_000, "test": 2_000}, _draw
)
