"""Studies: methods that are trained and scored on data, without an oracle; a folder for each."""

from __future__ import annotations

SCALES = tuple(float(f"1e{power}") for power in range(-9, 5))
"""The paper's scales of the law in training of image classifiers, in units of pixels in [0, 1], or of a
layer's input.
"""
