"""Draws of a sampling rule against an oracle: errors and spreads, against closed forms."""

import math

import numpy as np
import pytest
import torch

from sdp_bench.oracles.moments.draws import moment_errors, relative_spread
from sdp_bench.oracles.moments.moments import Moments, gaussian_kl
from sdp_ref.laws import DiagonalGaussian, Gaussian


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


def test_relative_spread_of_known_laws():
    covariance = np.array([[1.0, 0.3], [0.3, 2.0]])
    samples = normals(np.random.default_rng(7), width=2) @ np.linalg.cholesky(covariance).T
    moments = Moments.from_samples(samples, 16)
    exact = law([0.0, 0.0], moments.covariance.tolist())
    assert relative_spread(moments, exact) == pytest.approx(0.0, abs=1e-12)
    assert relative_spread(moments, law([0.0, 0.0], (1.1 * moments.covariance).tolist())) == pytest.approx(
        math.log(1.1)
    )
    flat = Moments.from_samples(np.c_[samples[:, 0], np.ones(len(samples))], 16)
    variance = torch.tensor([[float(flat.covariance[0, 0]), 5.0]], dtype=torch.float64)
    marginal = DiagonalGaussian(torch.zeros(1, 2, dtype=torch.float64), variance)
    assert relative_spread(flat, marginal) == pytest.approx(0.0, abs=1e-12)
    constant = Moments.from_samples(np.ones((8, 2)), 2)
    assert math.isnan(relative_spread(constant, marginal))
