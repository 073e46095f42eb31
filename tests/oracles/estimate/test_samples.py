import numpy as np
import pytest
import torch

from sdp_bench import oracles

REAL = np.random.default_rng(0).standard_normal((60, 2))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (1j * REAL, "complex"),
        (torch.from_numpy(REAL + 0j), "complex"),
        (np.ma.masked_greater(REAL, 1), "masked"),
    ],
)
def test_complex_and_masked_samples_are_refused(bad, message, place):
    pair = [REAL, REAL]
    pair[place] = bad
    with pytest.raises(ValueError, match=message):
        oracles.wasserstein(*pair, 60)
    with pytest.raises(ValueError, match=message):
        oracles.EqualMassTree.from_samples(REAL, 4).counts(bad)
