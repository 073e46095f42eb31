import math

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy import integrate

import sdp_ref as sr
from sdp_ref.activations import ACTIVATIONS
from sdp_ref.conformance import reference
from sdp_ref.conformance.cases import OPS
from tests.sdp_ref.common import assert_moments_by_sampling
from tests.sdp_ref.make_conformance_fixtures import FAST as FUNCTIONS


def test_the_activations_are_those_of_the_kit():
    assert set(FUNCTIONS) == set(reference.known(ACTIVATIONS))
    for name in FUNCTIONS:
        assert len(reference.pairs(name)) == 17


def test_references_of_relu_units_equal_the_closed_forms():
    for unit in reference.single("relu"):
        m, s = mp.mpf(unit.mean), mp.mpf(unit.std)
        with mp.workdps(60):
            h = m / s
            mean = m * mp.ncdf(h) + s * mp.npdf(h)
            variance = (m * m + s * s) * mp.ncdf(h) + m * s * mp.npdf(h) - mean**2
        assert unit.expectation == pytest.approx(float(mean), rel=1e-12, abs=1e-300)
        assert unit.variance == pytest.approx(float(variance), rel=1e-11, abs=1e-300)


def arc_cosine_covariance(rho):
    """Covariance of ReLUs of two standard normal values, by the arc-cosine kernel of Cho and Saul (2009)."""
    second_moment = math.sqrt(1 - rho**2) + rho * (math.pi - math.acos(rho))
    return (second_moment - 1) / (2 * math.pi)


def test_references_of_centred_relu_pairs_equal_the_arc_cosine_kernel():
    assert reference.pair("relu", 0.0).covariance == pytest.approx(arc_cosine_covariance(0.5), rel=1e-12)
    (small,) = (pair for pair in reference.pairs("relu") if pair.units[0].std == 0.125)
    assert small.covariance == pytest.approx(arc_cosine_covariance(0.9) / 64, rel=1e-11)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("relu", "tanh") else pytest.param(name, marks=pytest.mark.slow)
        for name in FUNCTIONS
        if name != "hardshrink"
    ],
)
def test_references_of_pairs_equal_adaptive_quadrature(name):
    f = FUNCTIONS[name]  # of Hardshrink it would miss the jump
    for pair in (reference.pairs(name)[5], reference.pairs(name)[7]):
        (a, b), rho = pair.units, pair.rho

        def density(t, u, power, a=a, b=b, rho=rho):
            x = f(a.mean + a.std * u) - a.expectation
            y = f(b.mean + b.std * (rho * u + math.sqrt(1 - rho**2) * t)) - b.expectation
            return (x * y) ** power * math.exp(-(u * u + t * t) / 2) / (2 * math.pi)

        got, _ = integrate.dblquad(density, -8, 8, -8, 8, args=(1,), epsabs=1e-7, epsrel=1e-7)
        assert pair.covariance == pytest.approx(got, abs=1e-6 * a.std * b.std)


def test_perfectly_correlated_pairs_are_one_unit():
    for name in FUNCTIONS:
        (pair,) = (p for p in reference.pairs(name) if p.rho == 1 and p.units[0] == p.units[1])
        assert pair.covariance == pytest.approx(pair.units[0].variance, rel=1e-12)
        assert pair.spread[2] == pytest.approx(pair.units[0].spread, rel=1e-12)


@pytest.mark.parametrize("name", OPS)
def test_references_of_ops_agree_with_samples(name):
    """The reference is of the op that the kit asks."""
    for row in reference.of_op(name):
        rng = np.random.default_rng(0)
        x = rng.multivariate_normal(row.mean, row.covariance, 200_000, method="cholesky")
        expected = (torch.tensor([v], dtype=torch.float64) for v in (row.expectation, row.moments))
        assert_moments_by_sampling(sr.Gaussian(*expected), OPS[name](torch.from_numpy(x)))
