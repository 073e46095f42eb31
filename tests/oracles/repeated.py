"""What estimates of repeated draws must show."""

import numpy as np


def assert_at_the_floor(estimates, errors=3):
    """The mean value is the mean floor, and 95 % are below the 95 % point, each within standard errors."""
    values, floors = (np.array([getattr(e, name) for e in estimates]) for name in ("value", "floor"))
    noise = np.hypot(values.std(ddof=1), floors.std(ddof=1)) / np.sqrt(len(values))
    assert abs(values.mean() - floors.mean()) < errors * noise
    below = np.mean([e.indistinguishable for e in estimates])
    assert abs(below - 0.95) < errors * np.sqrt(0.95 * 0.05 / len(values))


def assert_standard_errors_are_the_spread(estimates, errors=3):
    """Of n values the standard deviation is known to 1 / sqrt(2 (n - 1)) of it."""
    spread = np.std([e.value for e in estimates], ddof=1)
    stated = np.sqrt(np.mean([e.stderr**2 for e in estimates]))
    assert abs(stated / spread - 1) < errors / np.sqrt(2 * (len(estimates) - 1))
