"""Robustness of classifiers: how many images they still get right under noise and under attack."""

from __future__ import annotations

METHODS = ("clean", "noise", "pgd_own", "pgd_ce", "square")
"""What images go through: nothing, Gaussian noise, projected gradient descent on the loss that the model was
trained by and on cross-entropy, and the Square attack, which asks for scores alone."""

METRICS = ("accuracy", "accuracy_gnz", "accuracy_gnz_pixel")
"""Share of images that are still classified rightly; the same if an attack that met a gradient of zero counts
as successful; and if one that was zero at a single pixel does. The paper's requirement of non-zero gradients
speaks of both."""

NOISE = (0.25, 0.5, 0.75)
"""Standard deviations, on pixels in [0, 1]."""

RADII = {"mnist": (8, 16), "cifar10": (3, 4)}
"""Of the balls in the maximum norm, in 255ths, smallest first."""

QUERIES = 25
"""Of the Square attack, for each step of the attacks by gradients."""
