"""Image classifiers trained with propagated laws."""

SCALES = tuple(float(f"1e{power}") for power in range(-9, 5))
"""The paper's scales of the law in training, in units of pixels in [0, 1], or of a layer's input."""
