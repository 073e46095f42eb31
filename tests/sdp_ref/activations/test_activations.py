import json
import math
import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from sdp_ref.activations import ACTIVATIONS, activation

FIXTURES = Path(__file__).parents[1] / "fixtures"
NAMES = ("relu", "leaky_relu", "sigmoid", "silu", "gelu", "tanh")  # the others are in test_pointwise.py
RAMPS = tuple(name for name in NAMES if ACTIVATIONS[name].homogeneous)
MIXTURES = ("sigmoid", "silu", "tanh")


def make(name):
    return activation(name, negative_slope=0.2) if name == "leaky_relu" else activation(name)


def fixture(name):
    """Moments by quadrature with 50 digits, written by tests/sdp_ref/make_fixtures.py."""
    return torch.tensor(json.loads((FIXTURES / f"{name}.json").read_text())["rows"], dtype=torch.float64)


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def pair_laws(h, k, s1, s2, rho):
    """One law of two units a row: mean (rows, 2) and covariance (rows, 2, 2)."""
    c = rho * s1 * s2
    covariance = torch.stack([torch.stack([s1 * s1, c], -1), torch.stack([c, s2 * s2], -1)], -1)
    return torch.stack([h * s1, k * s2], -1), covariance


def layer(n=12, batch=3, seed=0, rank=None):
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(batch, n, rank or n, generator=generator, dtype=torch.float64)
    return torch.randn(batch, n, generator=generator, dtype=torch.float64), factor @ factor.mT / factor.shape[
        -1
    ]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_non_linearity_is_a_value(name):
    copy = pickle.loads(pickle.dumps(make(name)))
    assert copy == make(name)
    assert len({copy, make(name)}) == 1


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("swoosh", {}, "'swoosh'.*relu, leaky_relu"),
        ("leaky_relu", {"slope": 1.0}, "it takes negative_slope"),
        ("leaky_relu", {"negative_slope": math.inf}, "must be a finite number"),
    ],
)
def test_unknown_names_and_parameters_are_refused(name, parameters, message):
    with pytest.raises(ValueError, match=message):
        activation(name, **parameters)


@pytest.mark.parametrize(
    ("mean", "covariance", "tolerance", "message"),
    [((2, 3), (2, 3), 1e-6, "takes a mean"), ((1, 1), (1, 1, 1), 0, "at least")],
)
def test_bad_arguments_are_refused(mean, covariance, tolerance, message):
    with pytest.raises(ValueError, match=message):
        make("relu").mean_covariance(torch.zeros(mean), torch.zeros(covariance), tolerance=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_mean_and_variance_match_fifty_digit_quadrature(name):
    m, s, expectation, variance = fixture(f"moments_{name}").T
    got_mean, got_variance = make(name).mean_variance(m, s * s)
    assert ((got_mean - expectation).abs() / s).max() < 1e-12
    # relative, down to where the density itself is 1e-100
    seen = variance > 1e-200
    assert ((got_variance - variance).abs() / variance)[seen].max() < 1e-12
    assert (got_variance[~seen] < 1e-199).all()


@pytest.mark.parametrize("name", ["relu", "sigmoid", "silu", "gelu"])
def test_the_mean_is_relatively_accurate_in_the_left_tail(name):
    m, s, expectation, _ = fixture(f"moments_{name}").T
    tail = (m < -s) & (expectation.abs() > 1e-200)
    got, _ = make(name).mean_variance(m, s * s)
    assert ((got - expectation) / expectation)[tail].abs().max() < 1e-11


@pytest.mark.parametrize("name", ["relu", "gelu", "probit"])
def test_closed_covariances_match_fifty_digit_quadrature(name):
    *law, want = fixture(f"covariance_{name}").T
    _, covariance = make(name).mean_covariance(*pair_laws(*law))
    assert (covariance[:, 0, 1] / (law[2] * law[3]) - want).abs().max() < 1e-13


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-9])
def test_smooth_covariances_match_two_dimensional_quadrature(name, tolerance):
    *law, want = fixture(f"covariance_{name}").T
    _, covariance = make(name).mean_covariance(*pair_laws(*law), tolerance=tolerance)
    assert (covariance[:, 0, 1] / (law[2] * law[3]) - want).abs().max() < tolerance


@pytest.mark.rounding
@pytest.mark.parametrize("name", RAMPS)
@pytest.mark.parametrize("exponent", [-498, -20, 3, 498])
def test_ramps_are_scale_equivariant(name, exponent):
    mean, covariance = layer(rank=3)
    mean[0] *= 30
    m, c = make(name).mean_covariance(mean, covariance)
    scale = 2.0**exponent
    scaled_m, scaled_c = make(name).mean_covariance(mean * scale, covariance * scale**2)
    assert torch.equal(scaled_m, m * scale)
    assert torch.equal(scaled_c, c * scale**2)
    scale = 10.0 ** (exponent / 4)
    scaled_m, scaled_c = make(name).mean_covariance(mean * scale, covariance * scale**2)
    torch.testing.assert_close(scaled_m / scale, m, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(scaled_c / scale**2, c, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rho", [0.5, 0.999, 1 - 1e-6, 1.0])
@pytest.mark.parametrize("gap", [0.0, 0.01, 0.5])
def test_the_ramps_covariance_grows_with_the_chance_that_both_are_on(rho, gap):
    h, k = 0.3, 0.3 + gap
    mean, covariance = pair_laws(double(h), double(k), double(1), double(1), double(rho))
    covariance.requires_grad_()
    _, c = make("relu").mean_covariance(mean, covariance)
    (gradient,) = torch.autograd.grad(c[0, 0, 1], covariance)
    if rho == 1:
        both = stats.norm.cdf(h)
    else:
        r = math.sqrt((1 - rho) * (1 + rho))
        both = integrate.quad(
            lambda u: stats.norm.pdf(u) * stats.norm.cdf((k + rho * u) / r),
            -h,
            10,
            points=[-k / rho, -k / rho - 5 * r, -k / rho + 5 * r],
            limit=400,
            epsabs=1e-12,
        )[0]
    assert float(gradient[0, 0, 1] + gradient[0, 1, 0]) == pytest.approx(both, abs=1e-8 if rho < 1 else 1e-6)


laws = st.tuples(
    st.floats(-60, 60),
    st.floats(-60, 60),
    st.floats(-3, 3).map(lambda e: 10.0**e),
    st.floats(-3, 3).map(lambda e: 10.0**e),
    st.floats(-1, 1),
)


@given(laws=st.lists(laws, min_size=1, max_size=20), name=st.sampled_from(NAMES))
@settings(max_examples=60, deadline=None)
def test_covariances_are_bounded_and_have_the_sign_of_the_correlation(laws, name):
    h, k, s1, s2, rho = torch.tensor(laws, dtype=torch.float64).T
    _, c = make(name).mean_covariance(*pair_laws(h, k, s1, s2, rho))
    v1, v2, across = c[:, 0, 0], c[:, 1, 1], c[:, 0, 1]
    assert (v1 >= 0).all()
    assert (across.abs() <= (v1 * v2).sqrt() * (1 + 1e-9) + 1e-11 * s1 * s2).all()
    if name in ("relu", "leaky_relu", "sigmoid", "tanh"):  # monotone (Price: the slopes' mean is positive)
        assert (across * rho.sign() >= -1e-13 * s1 * s2).all()


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
def test_reflection_keeps_the_covariance(name):
    mean, covariance = layer()
    m, c = make(name).mean_covariance(mean, covariance)
    reflected_m, reflected_c = make(name).mean_covariance(-mean, covariance)
    torch.testing.assert_close(c, reflected_c, rtol=1e-11, atol=1e-13)
    expected = torch.full_like(m, 1.0 if name == "sigmoid" else 0.0)
    torch.testing.assert_close(m + reflected_m, expected, atol=1e-14, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_the_mean_is_the_mean_slope(name):
    """dE f / dm = E f' and dE f / dV = E f'' / 2 = E f'(m + s u) u / (2 s), by sums over a fine grid."""
    m = double(-0.6, 0.3, 2.0).requires_grad_()
    v = double(0.2, 1.0, 4.0).requires_grad_()
    mean, _ = make(name).mean_variance(m, v)
    by_mean, by_variance = torch.autograd.grad(mean.sum(), (m, v))
    u = torch.linspace(-10, 10, 20001, dtype=torch.float64)
    weights = 1e-3 * torch.exp(-u * u / 2) / math.sqrt(2 * math.pi)
    deviation = v.detach().sqrt()
    slope = make(name).derivative(m.detach()[:, None] + deviation[:, None] * u)
    error = 2e-3 if name in RAMPS else 1e-10  # the slope of a ramp jumps between two nodes
    torch.testing.assert_close(by_mean, slope @ weights, rtol=0, atol=error)
    torch.testing.assert_close(by_variance, (slope * u) @ weights / (2 * deviation), rtol=0, atol=error)
