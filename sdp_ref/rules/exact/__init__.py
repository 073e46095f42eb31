"""The exact law of a piecewise affine net: its linear regions, and the Gaussian mass and moments of each."""
