"""Gaussian moments of the non-linearities against stored references, quadrature and what must hold."""

import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from torch import Tensor

from sdp_ref.activations import ACTIVATIONS, Activation, activation

FIXTURES = Path(__file__).parents[1] / "fixtures"
NAMES = ("relu", "leaky_relu", "sigmoid", "silu", "gelu", "tanh")  # the others are in test_pointwise.py
RAMPS = tuple(name for name in NAMES if ACTIVATIONS[name].homogeneous)
MIXTURES = ("sigmoid", "silu", "tanh")


def make(name: str) -> Activation:
    return activation(name, negative_slope=0.2) if name == "leaky_relu" else activation(name)


TORCH = {name: make(name).build() for name in NAMES}


def fixture(name: str) -> Tensor:
    return torch.tensor(json.loads((FIXTURES / f"{name}.json").read_text())["rows"], dtype=torch.float64)


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def pair_laws(h: Tensor, k: Tensor, s1: Tensor, s2: Tensor, rho: Tensor) -> tuple[Tensor, Tensor]:
    """One law of two units a row: mean (rows, 2) and covariance (rows, 2, 2)."""
    c = rho * s1 * s2
    covariance = torch.stack([torch.stack([s1 * s1, c], -1), torch.stack([c, s2 * s2], -1)], -1)
    return torch.stack([h * s1, k * s2], -1), covariance


def layer(n: int = 12, batch: int = 3, seed: int = 0, rank: int | None = None) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(batch, n, rank or n, generator=generator, dtype=torch.float64)
    return torch.randn(batch, n, generator=generator, dtype=torch.float64), factor @ factor.mT / factor.shape[
        -1
    ]


def adversarial() -> tuple[Tensor, Tensor]:
    hs = (-1e4, -40.0, -8.0, -2.0, 0.0, 8.0, 1e4)
    rhos = (-1.0, -1 + 1e-6, 0.0, 1e-8, 0.5, 1 - 1e-12, 1.0)
    stds = (0.0, 1e-150, 1e-3, 1.0, 1e3)
    grid = [double(*hs), double(*hs[::2]), double(*stds), double(0.0, 1e-3, 1.0), double(*rhos)]
    return pair_laws(*(a.flatten() for a in torch.meshgrid(*grid, indexing="ij")))


def test_the_table_names_its_non_linearities() -> None:
    assert tuple(ACTIVATIONS)[:6] == NAMES
    assert all(activation(name).name == name for name in ACTIVATIONS)
    assert activation("leaky_relu").parameters["negative_slope"] == 0.01


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_non_linearity_is_a_value(name: str) -> None:
    copy = pickle.loads(pickle.dumps(make(name)))
    assert copy == make(name)
    assert len({copy, make(name)}) == 1


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("swoosh", {}, "unknown activation 'swoosh'.*relu, leaky_relu, sigmoid, silu, gelu, tanh"),
        ("relu", {"slope": 1.0}, "'relu' has no parameter 'slope'"),
        ("leaky_relu", {"slope": 1.0}, "it takes negative_slope"),
        ("leaky_relu", {"negative_slope": math.inf}, "must be a finite number"),
    ],
)
def test_unknown_names_and_parameters_are_refused(name: str, parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        activation(name, **parameters)


@pytest.mark.parametrize(
    ("mean", "covariance", "tolerance", "message"),
    [
        ((2, 3), (2, 3), 1e-6, "takes a mean"),
        ((3,), (3, 3), 1e-6, "takes a mean"),
        ((1, 1), (1, 1, 1), 0, "at least"),
    ],
)
def test_bad_arguments_are_refused(mean: tuple, covariance: tuple, tolerance: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make("relu").mean_covariance(torch.zeros(mean), torch.zeros(covariance), tolerance=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_functions_and_derivatives_are_torch_s(name: str) -> None:
    x = double(-800, -40, -3, -0.5, 0, 0.5, 3, 40, 800).requires_grad_()
    y = TORCH[name](x)
    torch.testing.assert_close(make(name).function(x), y, rtol=1e-14, atol=1e-17)
    (slope,) = torch.autograd.grad(y.sum(), x)
    if ACTIVATIONS[name].kinks:  # torch takes the derivative from the left at a kink, the paper the other
        slope[x == 0] = 1.0
    torch.testing.assert_close(make(name).derivative(x), slope, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("name", NAMES)
def test_mean_and_variance_match_fifty_digit_quadrature(name: str) -> None:
    m, s, expectation, variance = fixture(f"moments_{name}").T
    got_mean, got_variance = make(name).mean_variance(m, s * s)
    assert ((got_mean - expectation).abs() / s).max() < 1e-12
    # relative, down to where the density itself is 1e-100
    seen = variance > 1e-200
    assert ((got_variance - variance).abs() / variance)[seen].max() < 1e-12
    assert (got_variance[~seen] < 1e-199).all()


@pytest.mark.parametrize("name", ["relu", "sigmoid", "silu", "gelu"])
def test_the_mean_is_relatively_accurate_in_the_left_tail(name: str) -> None:
    m, s, expectation, _ = fixture(f"moments_{name}").T
    tail = (m < -s) & (expectation.abs() > 1e-200)
    got, _ = make(name).mean_variance(m, s * s)
    assert ((got - expectation) / expectation)[tail].abs().max() < 1e-11


@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_closed_covariances_match_fifty_digit_quadrature(name: str) -> None:
    *law, want = fixture(f"covariance_{name}").T
    _, covariance = make(name).mean_covariance(*pair_laws(*law))
    assert (covariance[:, 0, 1] / (law[2] * law[3]) - want).abs().max() < 1e-13


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-9])
def test_smooth_covariances_match_two_dimensional_quadrature(name: str, tolerance: float) -> None:
    *law, want = fixture(f"covariance_{name}").T
    _, covariance = make(name).mean_covariance(*pair_laws(*law), tolerance=tolerance)
    assert (covariance[:, 0, 1] / (law[2] * law[3]) - want).abs().max() < tolerance


@pytest.mark.parametrize("name", NAMES)
def test_covariance_matches_adaptive_quadrature(name: str) -> None:
    f = {"sigmoid": stats.logistic.cdf, "tanh": np.tanh}.get(
        name, lambda x: TORCH[name](torch.as_tensor(x, dtype=torch.float64)).numpy()
    )
    m, s, rho = (0.4, -0.7), (1.3, 0.6), -0.8

    def expectation(g: object) -> float:
        x, w = np.polynomial.legendre.leggauss(60)

        def outer(a: float) -> float:
            bend = min(max((-m[1] / s[1] - rho * a) / math.sqrt(1 - rho * rho), -9.0), 9.0)
            total = 0.0
            for low, high in ((-9.0, bend), (bend, 9.0)):
                u = low + (high - low) * (x + 1) / 2
                b = rho * a + math.sqrt(1 - rho * rho) * u
                weight = w * (high - low) / 2 * stats.norm.pdf(u)
                total += float(weight @ g(f(m[0] + s[0] * a), f(m[1] + s[1] * b)))
            return stats.norm.pdf(a) * total

        return integrate.quad(outer, -9, 9, points=[-m[0] / s[0]], epsabs=1e-10, limit=100)[0]

    first, second = expectation(lambda x, y: x + 0 * y), expectation(lambda x, y: y + 0 * x)
    want = expectation(lambda x, y: (x - first) * (y - second))
    _, covariance = make(name).mean_covariance(
        *pair_laws(*(double(v) for v in (m[0] / s[0], m[1] / s[1], *s, rho)))
    )
    assert covariance[0, 0, 1].item() == pytest.approx(want, abs=1e-6 if name in MIXTURES else 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_nan_and_no_gradient_infinite(name: str) -> None:
    mean, covariance = (a.requires_grad_() for a in adversarial())
    m, c = make(name).mean_covariance(mean, covariance)
    assert torch.isfinite(m).all()
    assert torch.isfinite(c).all()
    for gradient in torch.autograd.grad(m.sum() + c.sum(), (mean, covariance)):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("name", NAMES)
def test_no_covariance_exceeds_what_its_variances_allow(name: str) -> None:
    mean, covariance = adversarial()
    _, c = make(name).mean_covariance(mean, covariance)
    variance = c.diagonal(dim1=-2, dim2=-1)
    scale = covariance.diagonal(dim1=-2, dim2=-1).sqrt().prod(-1)
    assert (variance >= 0).all()
    assert (c[:, 0, 1].abs() <= variance.sqrt().prod(-1) * (1 + 1e-12) + 1e-12 * scale).all()


@pytest.mark.parametrize("name", NAMES)
def test_zero_variance_is_a_point_mass(name: str) -> None:
    mean, covariance = layer(4)
    mean[:, 1] = double(-3.0, 0.0, 700.0)
    covariance[:, 1] = covariance[:, :, 1] = 0
    m, c = make(name).mean_covariance(mean, covariance)
    torch.testing.assert_close(m[:, 1], TORCH[name](mean[:, 1]), rtol=1e-15, atol=1e-16)
    assert (c[:, 1] == 0).all()
    assert (c[:, :, 1] == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_vanishing_variance_is_the_linear_map_and_so_are_its_gradients(name: str) -> None:
    x = double(-3.0, -0.4, 0.7, 2.0)
    slope = make(name).derivative(x)
    for value in (0.0, 1e-30, 1e-12):
        variance = torch.full_like(x, value).requires_grad_()
        _, v = make(name).mean_variance(x, variance)
        torch.testing.assert_close(v.detach(), slope**2 * value, rtol=1e-9, atol=0)
        (gradient,) = torch.autograd.grad(v.sum(), variance)
        torch.testing.assert_close(gradient, slope**2, rtol=1e-9, atol=1e-14)


@pytest.mark.rounding
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rank", [None, 3, 1])
def test_the_matrix_is_symmetric_semi_definite_and_has_the_exact_diagonal(
    name: str, rank: int | None
) -> None:
    mean, covariance = layer(30, rank=rank)
    m, c = make(name).mean_covariance(mean, covariance)
    alone = make(name).mean_variance(mean, covariance.diagonal(dim1=-2, dim2=-1))
    assert torch.equal(m, alone[0])
    assert torch.equal(c.diagonal(dim1=-2, dim2=-1), alone[1])
    assert torch.equal(c, c.mT)
    values = torch.linalg.eigvalsh(c)
    assert (values[:, 0] > -1e-9 * values[:, -1]).all()


@pytest.mark.parametrize("name", NAMES)
def test_units_of_one_law_are_as_correlated_as_they_came(name: str) -> None:
    h = double(-2.0, 0.0, 1.0)
    one = torch.ones_like(h)
    _, c = make(name).mean_covariance(*pair_laws(h, h, one, one, one))
    torch.testing.assert_close(c[:, 0, 1], c[:, 0, 0], rtol=1e-6, atol=0)
    _, c = make(name).mean_covariance(*pair_laws(h, h, one, one, 0 * one))
    assert c[:, 0, 1].abs().max() < 1e-15


@pytest.mark.rounding
@pytest.mark.parametrize("name", RAMPS)
@pytest.mark.parametrize("exponent", [-498, -20, 3, 498])
def test_ramps_are_scale_equivariant(name: str, exponent: int) -> None:
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


@pytest.mark.rounding
def test_leaky_relu_spans_the_ramp_and_the_identity() -> None:
    mean, covariance = layer()
    m, c = activation("leaky_relu", negative_slope=1.0).mean_covariance(mean, covariance)
    torch.testing.assert_close(m, mean)
    torch.testing.assert_close(c, covariance, rtol=1e-13, atol=1e-14)
    m, c = activation("leaky_relu", negative_slope=0.0).mean_covariance(mean, covariance)
    want = activation("relu").mean_covariance(mean, covariance)
    torch.testing.assert_close((m, c), want, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
def test_reflection_keeps_the_covariance(name: str) -> None:
    mean, covariance = layer()
    m, c = make(name).mean_covariance(mean, covariance)
    reflected_m, reflected_c = make(name).mean_covariance(-mean, covariance)
    torch.testing.assert_close(c, reflected_c, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(
        m + reflected_m, torch.full_like(m, 1.0 if name == "sigmoid" else 0.0), atol=1e-14, rtol=0
    )


@pytest.mark.rounding
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_narrow_types_come_back_but_lose_nothing_inside(name: str, dtype: torch.dtype) -> None:
    mean, covariance = (a.to(dtype) for a in layer(4))
    mean[0, 0] = -8 * covariance[0, 0, 0].sqrt()
    m, c = make(name).mean_covariance(mean, covariance)
    assert m.dtype == c.dtype == dtype
    wide_m, wide_c = make(name).mean_covariance(mean.double(), covariance.double())
    assert torch.equal(m, wide_m.to(dtype))
    assert torch.equal(c, wide_c.to(dtype))


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_is_made_on_the_input_s_device(name: str) -> None:
    mean, covariance = (a.requires_grad_() for a in layer(5))
    with torch.device("meta"):  # what is made on the default device cannot meet the input's
        m, c = make(name).mean_covariance(mean, covariance)
        gradients = torch.autograd.grad(m.sum() + c.sum(), (mean, covariance))
    assert {t.device.type for t in (m, c, *gradients)} == {"cpu"}


@pytest.mark.parametrize("name", NAMES)
def test_gradients_agree_with_finite_differences(name: str) -> None:
    mean, covariance = (a.requires_grad_() for a in layer(3, batch=2))
    assert torch.autograd.gradcheck(
        lambda m, c: make(name).mean_covariance(m, (c + c.mT) / 2), (mean, covariance)
    )
    variance = covariance.detach().diagonal(dim1=-2, dim2=-1).clone().requires_grad_()
    assert torch.autograd.gradcheck(make(name).mean_variance, (mean, variance))


@pytest.mark.parametrize("rho", [0.5, 0.999, 1 - 1e-6, 1.0])
@pytest.mark.parametrize("gap", [0.0, 0.01, 0.5])
def test_the_ramps_covariance_grows_with_the_chance_that_both_are_on(rho: float, gap: float) -> None:
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
    assert (gradient[0, 0, 1] + gradient[0, 1, 0]).item() == pytest.approx(
        both, abs=1e-8 if rho < 1 else 1e-6
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_mean_s_gradient_is_the_mean_slope(name: str) -> None:
    """dE f/dm = E f' and dE f/dV = E f'' / 2, here by the mean of the slope and its own derivative."""
    m, v = double(-0.6, 0.3, 2.0).requires_grad_(), double(0.2, 1.0, 4.0).requires_grad_()
    mean, _ = make(name).mean_variance(m, v)
    by_mean, by_variance = torch.autograd.grad(mean.sum(), (m, v))
    u = torch.linspace(-10, 10, 20001, dtype=torch.float64)
    w = 1e-3 * torch.exp(-u * u / 2) / math.sqrt(2 * math.pi)
    slope = make(name).derivative(m.detach()[:, None] + v.detach().sqrt()[:, None] * u)
    coarse = 2e-3 if name in RAMPS else 1e-10  # their slope jumps between two nodes
    torch.testing.assert_close(by_mean, slope @ w, rtol=0, atol=coarse)
    torch.testing.assert_close(by_variance, (slope * u) @ w / (2 * v.detach().sqrt()), rtol=0, atol=coarse)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2])
def test_small_layers_and_empty_batches(name: str, n: int) -> None:
    mean, covariance = layer(n, batch=2)
    m, c = make(name).mean_covariance(mean, covariance)
    one_m, one_c = make(name).mean_covariance(mean[:1], covariance[:1])
    torch.testing.assert_close((m[:1], c[:1]), (one_m, one_c), rtol=1e-14, atol=1e-16)
    m, c = make(name).mean_covariance(mean[:0], covariance[:0])
    assert m.shape == (0, n)
    assert c.shape == (0, n, n)


laws = st.tuples(
    st.floats(-60, 60),
    st.floats(-60, 60),
    st.floats(-3, 3).map(lambda e: 10.0**e),
    st.floats(-3, 3).map(lambda e: 10.0**e),
    st.floats(-1, 1),
)


@given(laws=st.lists(laws, min_size=1, max_size=20), name=st.sampled_from(NAMES))
@settings(max_examples=60, deadline=None)
def test_covariances_are_bounded_and_have_the_sign_of_the_correlation(laws: list, name: str) -> None:
    h, k, s1, s2, rho = torch.tensor(laws, dtype=torch.float64).T
    _, c = make(name).mean_covariance(*pair_laws(h, k, s1, s2, rho))
    v1, v2, across = c[:, 0, 0], c[:, 1, 1], c[:, 0, 1]
    assert (v1 >= 0).all()
    assert (across.abs() <= (v1 * v2).sqrt() * (1 + 1e-9) + 1e-11 * s1 * s2).all()
    if name in ("relu", "leaky_relu", "sigmoid", "tanh"):  # monotone (Price: the slopes' mean is positive)
        assert (across * rho.sign() >= -1e-13 * s1 * s2).all()


@given(
    h=st.floats(-1e4, 1e4),
    exponent=st.floats(-3, 3),
    name=st.sampled_from(["relu", "sigmoid", "tanh", "leaky_relu"]),
)
@settings(max_examples=100, deadline=None)
def test_variance_is_at_most_the_slope_s_square_times_the_input_s(
    h: float, exponent: float, name: str
) -> None:
    s = 10.0**exponent
    largest = 0.25 if name == "sigmoid" else 1.0
    m, v = make(name).mean_variance(double(h * s), double(s * s))
    assert 0 <= v.item() <= largest**2 * s * s * (1 + 1e-12)
    assert math.isfinite(m.item())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_wide_layer_matches_sampling(name: str) -> None:
    mean, covariance = layer(100, batch=1, rank=4, seed=5)
    m, c = make(name).mean_covariance(mean, covariance)
    n = 400_000
    generator = torch.Generator().manual_seed(1)
    values, vectors = torch.linalg.eigh(covariance[0])
    root = vectors * values.clamp(min=0).sqrt()
    y = TORCH[name](mean + torch.randn(n, 100, generator=generator, dtype=torch.float64) @ root.T)
    centred = y - y.mean(0)
    sampled = centred.T @ centred / (n - 1)
    fourth = (centred**2).T @ (centred**2) / n
    stderr = ((fourth - sampled**2) / n).sqrt()
    assert ((y.mean(0) - m[0]).abs() < 5 * (c[0].diagonal() / n).sqrt()).all()
    assert ((sampled - c[0]).abs() < 5.5 * stderr + 1e-6).all()  # 5050 pairs
