"""The exact law of a piecewise affine net: its linear regions with their Gaussian masses and moments."""
