"""Classifiers of images that are trained by propagated laws."""

SCALES = tuple(float(f"1e{power}") for power in range(-9, 5))
"""The paper's, of the law in training: in units of pixels in [0, 1], or of what a layer is given."""
