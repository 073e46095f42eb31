import math

import numpy as np
import pytest
import torch

from sdp_bench.oracles.moments.draws import moment_errors
from sdp_bench.oracles.moments.moments import Moments, gaussian_kl
from sdp_ref.laws import Gaussian


def normals(rng, rows=4096, width=1):
    return rng.standard_normal((rows, width))


def law(mean, covariance):
    return Gaussian(
        torch.tensor([mean], dtype=torch.float64), torch.tensor([covariance], dtype=torch.float64)
    )


def test_errors_of_draws_are_logarithms_of_their_distances():
    moments = Moments.from_samples(normals(np.random.default_rng(6), width=2), 16)
    laws = [law([0.1 * k, 0.0], [[1.0, 0.0], [0.0, 1.0 + k]]) for k in range(1, 4)]
    values, noise = moment_errors(moments, laws, "kl")
    assert values == pytest.approx([math.log(gaussian_kl(moments, each).value) for each in laws])
    assert 0 < noise < 1
