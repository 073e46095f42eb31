"""What estimates of repeated draws must show."""

import numpy as np


def assert_standard_errors_are_the_spread(estimates, errors=3):
    """Of n values the standard deviation is known to 1 / sqrt(2 (n - 1)) of it."""
    spread = np.std([e.value for e in estimates], ddof=1)
    stated = np.sqrt(np.mean([e.stderr**2 for e in estimates]))
    assert abs(stated / spread - 1) < errors / np.sqrt(2 * (len(estimates) - 1))
