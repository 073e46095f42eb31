import itertools
import math
from dataclasses import dataclass

import mpmath as mp
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import sdp_ref as sr
from sdp_ref.activations import ACTIVATIONS, Activation, activation, activation_of
from sdp_ref.activations.elementwise import OPERATORS
from sdp_ref.activations.pointwise import Pointwise, Quadrature, Straight
from sdp_ref.activations.relu import PReLU
from sdp_ref.errors import NoFormulaError

from .test_activations import NAMES as OTHERS
from .test_activations import double, fixture, layer, pair_laws

PARAMETERS = {
    "leaky_relu": {"negative_slope": 0.2},
    "celu": {"alpha": 0.7},
    "threshold": {"threshold": 0.5, "value": -1.0},
}
ALL = tuple(name for name, kind in ACTIVATIONS.items() if kind.moments)
NAMES = tuple(name for name in ALL if name not in OTHERS)
MOMENTLESS = tuple(name for name, kind in ACTIVATIONS.items() if not kind.moments)
QUADRATURES = tuple(name for name in NAMES if issubclass(ACTIVATIONS[name], Quadrature))
STRAIGHT = tuple(name for name in NAMES if issubclass(ACTIVATIONS[name], Straight))
CLOSED = ("exp", "square", "sin", "cos")
FINITE = tuple(name for name in ALL if name != "exp")  # whose moments overflow under wide laws


def slow_but(names, fast):
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def make(name):
    return activation(name, **PARAMETERS.get(name, {}))


@dataclass(frozen=True)
class General(Quadrature):
    """Another non-linearity by its function and derivative alone."""

    of_: Activation
    places: tuple[float, ...] = ()

    @property
    def corners(self):
        return self.places

    def function(self, x):
        return self.of_.function(x)

    def derivative(self, x):
        return self.of_.derivative(x)


def scaled(covariance, law):
    return covariance[:, 0, 1] / (law[2] * law[3])


@pytest.mark.parametrize("name", [*ALL, *MOMENTLESS])
def test_functions_and_derivatives_are_torch_s(name):
    kind = make(name)
    x = double(-800, -40, -7, -2.9, -1.1, -0.4, 0.3, 0.45, 2.9, 5, 7, 19, 40, 300).requires_grad_()
    if name in MOMENTLESS:
        x = x.detach().abs().requires_grad_()
    y = kind.build().double()(x)
    torch.testing.assert_close(kind.function(x), y, rtol=1e-13, atol=1e-15)
    (slope,) = torch.autograd.grad(y.sum(), x)
    single = (
        1e-8 if name in ("celu", "hardsigmoid") else 1e-14
    )  # torch differentiates these by float32 numbers
    torch.testing.assert_close(kind.derivative(x), slope, rtol=1e-12, atol=single)


@pytest.mark.parametrize("name", ALL)
def test_at_a_kink_the_derivative_is_that_from_the_right(name):
    kind = make(name)
    for place in getattr(kind, "corners", kind.kinks):
        x = double(place)
        after = torch.nextafter(x, double(math.inf))
        torch.testing.assert_close(kind.derivative(x), kind.derivative(after), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in QUADRATURES if name != "power"])
def test_mean_and_variance_match_fifty_digit_quadrature(name):
    m, s, expectation, variance = fixture(f"moments_{name}").T
    got_mean, got_variance = make(name).mean_variance(m, s * s)
    assert ((got_mean - expectation).abs() <= 1e-12 * s + 4e-16 * expectation.abs()).all()
    seen = variance > 1e-200
    assert ((got_variance - variance).abs() / variance)[seen].max() < 1e-11
    assert (got_variance[~seen] < 1e-199).all()


def test_powers_match_fifty_digit_quadrature():
    m, s, expectation, variance = fixture("moments_power").T
    got_mean, got_variance = make("power").mean_variance(m, s * s)
    assert ((got_mean - expectation).abs() <= 1e-13 * (expectation.abs() + s**3)).all()
    torch.testing.assert_close(got_variance, variance, rtol=1e-12, atol=0)


def test_the_general_covariance_of_a_ramp_matches_the_stored_one_near_perfect_correlation():
    *law, want = fixture("covariance_relu")[::4].T
    _, c = General(activation("relu"), (0.0,)).mean_covariance(*pair_laws(*law))
    assert (scaled(c, law) - want).abs().max() < 1e-6


@pytest.mark.parametrize("name", slow_but(("leaky_relu", *STRAIGHT), ("leaky_relu", "relu6")))
def test_covariances_of_straight_pieces_are_the_general_ones(name):
    kind = make(name)
    h, k = double(-3, -0.5, 0.2, 2.5, 1.0, 8.0), double(0.3, -0.6, 0.2, 1.0, -1.0, 7.0)
    s1, s2 = double(1, 0.5, 3, 2, 1, 1), double(2, 0.5, 3, 0.1, 1, 1)
    law = (h, k, s1, s2, double(0.5, -0.9, 0.8, 0.6, -0.95, 0.7))
    _, exact = kind.mean_covariance(*pair_laws(*law))
    corners = getattr(kind, "corners", kind.kinks)
    _, general = General(kind, corners).mean_covariance(*pair_laws(*law), tolerance=1e-8)
    assert (scaled(exact, law) - scaled(general, law)).abs().max() < 1e-8


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_are_the_general_moments(name):
    kind = make(name)
    mean, variance = double(-3, -0.4, 0.0, 1.5, math.pi / 2, 0.0), double(0.3, 1e-6, 1, 0.5, 1e-3, 1e-5)
    for got, want in zip(
        kind.mean_variance(mean, variance), General(kind).mean_variance(mean, variance), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-17)
    torch.testing.assert_close(
        kind.mean_derivative(mean, variance),
        General(kind).mean_derivative(mean, variance),
        rtol=1e-12,
        atol=1e-14,
    )
    one = torch.ones(4, dtype=torch.float64)
    law = (double(-1, 0, 0.5, 2), double(0.5, 0, 0.5, -1), one, 0.5 * one, double(0.5, -0.8, 0.9, -0.3))
    _, exact = kind.mean_covariance(*pair_laws(*law))
    _, general = General(kind).mean_covariance(*pair_laws(*law), tolerance=1e-9)
    assert (scaled(exact, law) - scaled(general, law)).abs().max() < 1e-8


def test_waves_do_not_overflow_and_lose_themselves_in_wide_laws():
    mean, covariance = double(0.3, -0.2)[None], torch.full((1, 2, 2), 1e8, dtype=torch.float64)
    for name in ("sin", "cos"):
        m, c = make(name).mean_covariance(mean, covariance)
        assert (m == 0).all()
        phase = math.cos(0.5) / 2
        torch.testing.assert_close(c, torch.tensor([[[0.5, phase], [phase, 0.5]]], dtype=torch.float64))


def adversarial():
    grid = (
        double(-1e4, -8.0, 0.0, 3.0, 40.0),
        double(-2.0, 0.0, 8.0),
        double(0.0, 1e-150, 1e-3, 1.0, 1e3),
        double(0.0, 1e-3, 1.0),
        double(-1.0, -1 + 1e-6, 0.0, 1e-8, 0.5, 1 - 1e-12, 1.0),
    )
    return pair_laws(*(a.flatten() for a in torch.meshgrid(*grid, indexing="ij")))


@pytest.mark.parametrize("name", slow_but(FINITE, (*OTHERS, "relu6", "softsign", "cos")))
def test_nothing_is_nan_and_no_covariance_exceeds_what_its_variances_allow(name):
    mean, covariance = adversarial()
    mean = mean.requires_grad_()
    covariance = covariance.requires_grad_()
    m, c = make(name).mean_covariance(mean, covariance)
    assert torch.isfinite(m).all()
    assert torch.isfinite(c).all()
    for gradient in torch.autograd.grad(m.sum() + c.sum(), (mean, covariance)):
        assert torch.isfinite(gradient).all()
    variance = c.diagonal(dim1=-2, dim2=-1)
    scale = covariance.diagonal(dim1=-2, dim2=-1).sqrt().prod(-1)
    assert (variance >= 0).all()
    slack = 1e-9 * (variance.prod(-1)).sqrt() + 1e-11 * scale
    assert (c[:, 0, 1].abs() <= variance.sqrt().prod(-1) + slack).all()


@pytest.mark.parametrize("name", ALL)
def test_zero_variance_is_a_point_mass_and_little_is_nearly_one(name):
    kind, x = make(name), double(-3.3, -0.4, 0.7, 2.2, 9.0)
    m, v = kind.mean_variance(x, torch.zeros_like(x))
    torch.testing.assert_close(m, kind.function(x), rtol=1e-15, atol=0)
    assert (v == 0).all()
    torch.testing.assert_close(kind.mean_derivative(x, 0 * x), kind.derivative(x), rtol=1e-15, atol=0)
    slope = kind.derivative(x)
    for value in (1e-30, 1e-12):
        variance = torch.full_like(x, value).requires_grad_()
        _, v = kind.mean_variance(x, variance)
        torch.testing.assert_close(v.detach(), slope**2 * value, rtol=1e-9, atol=1e-9 * value)
        (gradient,) = torch.autograd.grad(v.sum(), variance)
        torch.testing.assert_close(gradient, slope**2, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_mean_derivatives_are_the_derivatives_of_means(name):
    """By the mean, in steps: autograd goes by the derivative that is under test."""
    kind = make(name)
    mean, variance = double(-4.0, -0.6, 0.3, 0.5, 3.0, 6.2), double(0.04, 1.0, 0.2, 1.0, 3.0, 0.3)
    step = 1e-3
    up = kind.mean_variance(mean + step, variance)[0]
    down = kind.mean_variance(mean - step, variance)[0]
    up2 = kind.mean_variance(mean + 2 * step, variance)[0]
    down2 = kind.mean_variance(mean - 2 * step, variance)[0]
    by_steps = (8 * (up - down) - (up2 - down2)) / (12 * step)
    torch.testing.assert_close(kind.mean_derivative(mean, variance), by_steps, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", slow_but(ALL, (*OTHERS, "elu", "sin", "prelu")))
def test_gradients_agree_with_finite_differences(name):
    kind = make(name)
    mean, covariance = layer(2, batch=1)
    mean = mean.requires_grad_()
    covariance = covariance.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda m, c: kind.mean_covariance(m, (c + c.mT) / 2, tolerance=1e-9), (mean, covariance)
    )
    mean, variance = double(-0.8, 0.3, 2.0).requires_grad_(), double(0.3, 1.0, 4.0).requires_grad_()
    assert torch.autograd.gradcheck(kind.mean_variance, (mean, variance))
    assert torch.autograd.gradcheck(kind.mean_derivative, (mean, variance))


@pytest.mark.rounding
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_types_come_back_but_lose_nothing_inside(name, dtype):
    mean, covariance = layer(2, batch=2)
    mean = mean.to(dtype)
    covariance = covariance.to(dtype)
    mean[0, 0] = -8 * covariance[0, 0, 0].sqrt()
    m, c = make(name).mean_covariance(mean, covariance)
    wide_m, wide_c = make(name).mean_covariance(mean.double(), covariance.double())
    assert torch.equal(m, wide_m.to(dtype))
    assert torch.equal(c, wide_c.to(dtype))


@pytest.mark.parametrize("name", slow_but(ALL, (*OTHERS, "relu6", "mish")))
@pytest.mark.parametrize("rank", [None, 1])
def test_a_layer_is_symmetric_and_semi_definite_within_its_tolerance(name, rank):
    mean, covariance = layer(6, batch=2, rank=rank)
    m, c = make(name).mean_covariance(mean, covariance)
    alone = make(name).mean_variance(mean, covariance.diagonal(dim1=-2, dim2=-1))
    torch.testing.assert_close((m, c.diagonal(dim1=-2, dim2=-1)), alone, rtol=1e-14, atol=0)
    assert torch.equal(c, c.mT)
    values = torch.linalg.eigvalsh(c)
    most = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert (values[:, 0] > -1e-6 * most - 1e-9 * values[:, -1]).all()


def test_a_unit_that_is_nearly_linear_keeps_to_stein_beside_one_that_needs_every_term():
    mean, s = double(0.99, 2.71, -0.2)[None], double(0.88, -0.086, 1.1)
    covariance = s[:, None] * s
    kind = make("hardshrink")
    _, c = kind.mean_covariance(mean, covariance[None])
    slope = kind.mean_derivative(mean, s[None] ** 2)
    torch.testing.assert_close(c[0, 1], (slope * covariance[1])[0], rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["relu", "gelu", "tanh", "elu", "relu6", "sin"])
@pytest.mark.parametrize("n", [1, 2])
def test_moments_do_not_depend_on_the_batch_which_may_be_empty(name, n):
    mean, covariance = layer(n, batch=2)
    m, c = make(name).mean_covariance(mean, covariance)
    one = make(name).mean_covariance(mean[:1], covariance[:1])
    torch.testing.assert_close((m[:1], c[:1]), one, rtol=1e-14, atol=1e-16)
    m, c = make(name).mean_covariance(mean[:0], covariance[:0])
    assert m.shape == (0, n)
    assert c.shape == (0, n, n)


@given(
    h=st.floats(-1e4, 1e4),
    exponent=st.floats(-3, 3),
    name=st.sampled_from(["relu", "tanh", "relu6", "hardtanh", "softsign", "softplus", "elu", "softshrink"]),
)
@settings(max_examples=60, deadline=None)
def test_variance_is_at_most_the_input_s_where_no_slope_is_steeper_than_1(h, exponent, name):
    s = 10.0**exponent
    m, v = make(name).mean_variance(double(h * s), double(s * s))
    assert 0 <= v.item() <= s * s * (1 + 1e-9)
    assert math.isfinite(m.item())


def bump(x):
    return torch.exp(-x * x / 2)


def test_any_smooth_function_has_its_moments():
    """E exp(-X^2 / 2) and that of its product at two units are Gaussian integrals."""
    mean, covariance = layer(3, batch=2)
    kind = Pointwise(bump)
    m, c = kind.mean_covariance(mean, covariance, tolerance=1e-9)

    def expected(at, spread):
        wider = spread + torch.eye(spread.shape[-1], dtype=torch.float64)
        quadratic = (at * torch.linalg.solve(wider, at)).sum()
        return torch.exp(-quadratic / 2) / torch.linalg.det(wider).sqrt()

    for row in range(2):
        for i in range(3):
            one = expected(mean[row, [i]], covariance[row][[i]][:, [i]])
            torch.testing.assert_close(m[row, i], one, rtol=1e-12, atol=0)
            for j in range(i):
                pair = expected(mean[row, [i, j]], covariance[row][[i, j]][:, [i, j]])
                other = expected(mean[row, [j]], covariance[row][[j]][:, [j]])
                assert abs(c[row, i, j] - (pair - one * other)) < 1e-8


@pytest.mark.parametrize(
    ("function", "places"), [(lambda x: torch.floor(x / 1.7), ()), (lambda x: torch.exp(x * x), ())]
)
def test_a_function_whose_quadrature_does_not_settle_is_refused(function, places):
    with pytest.raises(NoFormulaError, match="moments of mine"):
        Pointwise(function, places, "mine").mean_variance(double(0.4), double(4.0))


@pytest.mark.parametrize("name", MOMENTLESS)
def test_functions_without_moments_are_linearised_and_refused_by_name(name):
    net = make(name).build()
    x = sr.DiagonalGaussian(torch.full((1, 2), 2.0).double(), torch.full((1, 2), 1e-6).double())
    exact, got = sr.propagate(net, x, "sdp"), sr.propagate(net, x, "marginal_sdp")
    assert torch.allclose(got.variance, exact.variance)
    for rule in ("moment_matching", "marginal_moment_matching"):
        with pytest.raises(sr.UnsupportedError, match=f"moments of {name}"):
            sr.propagate(net, x, rule)


class Twice(nn.Module):
    """A slope a channel, beside a residual branch."""

    def __init__(self, weight):
        super().__init__()
        self.act = nn.PReLU(len(weight)).double()
        self.act.weight.data = weight

    def forward(self, x):
        return x + self.act(x)


def test_a_slope_a_channel_is_leaky_relu_in_each_channel():
    weight = double(0.1, -0.5, 2.0)
    net = Twice(weight)
    mean = torch.randn(1, 3, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _, covariance = layer(12, batch=1)
    x = sr.Gaussian(mean, covariance)
    with torch.no_grad():
        got = sr.propagate(net.act, x, "moment_matching")
        beside = sr.propagate(net, x, "moment_matching")
        marginal = sr.propagate(net.act, sr.DiagonalGaussian(mean, torch.ones_like(mean)), "marginal_sdp")
    slope = net.act.weight.detach().repeat_interleave(4)
    for channel, a in enumerate(weight.tolist()):
        part = slice(4 * channel, 4 * channel + 4)
        m, c = activation("leaky_relu", negative_slope=a).mean_covariance(
            mean.flatten(1)[:, part], covariance[:, part, part]
        )
        torch.testing.assert_close(got.mean.flatten(1)[:, part], m)
        torch.testing.assert_close(got.covariance[:, part, part], c)
        want = torch.where(mean[:, channel] >= 0, 1.0, a * a).double()
        torch.testing.assert_close(marginal.variance[:, channel], want)
    general = PReLU(slope).mean_covariance(mean.flatten(1), covariance)
    torch.testing.assert_close(general[1], got.covariance)
    mean_slope = PReLU(slope).mean_derivative(mean.flatten(1), covariance.diagonal(dim1=1, dim2=2))
    cross = covariance * mean_slope[:, None, :]
    torch.testing.assert_close(beside.covariance, covariance + got.covariance + cross + cross.mT)


def test_gradients_reach_the_slopes():
    net = nn.PReLU(2).double()
    x = sr.DiagonalGaussian(double(-0.5, 0.5)[None], double(1.0, 2.0)[None])
    (gradient,) = torch.autograd.grad(sr.propagate(net, x, "moment_matching").covariance.sum(), net.weight)
    assert (gradient != 0).all()


@pytest.mark.parametrize(
    ("op", "arguments", "options", "function"),
    [
        ("hardtanh", (-2.0, 3.0), {}, lambda x: x.clamp(-2, 3)),
        ("clamp", (-1, 1), {}, lambda x: x.clamp(-1, 1)),
        ("clamp", (None, 1), {}, lambda x: x.clamp(max=1)),
        ("clamp_min", (0.25,), {}, lambda x: x.clamp(min=0.25)),
        ("clamp_max", (0.25,), {}, lambda x: x.clamp(max=0.25)),
        ("leaky_relu", (0.3,), {}, lambda x: torch.where(x > 0, x, 0.3 * x)),
        ("elu", (1.6732632423543772, 1.0507009873554805), {}, nn.functional.selu),
        ("elu", (0.5, 1, 2.0), {}, lambda x: nn.functional.celu(x, 0.5)),
        ("gelu", (), {"approximate": "tanh"}, lambda x: nn.functional.gelu(x, approximate="tanh")),
        ("softplus", (2.0, 5.0), {}, lambda x: nn.functional.softplus(x, 2.0, 5.0)),
        ("threshold", (0.5, -1.0), {}, lambda x: nn.functional.threshold(x, 0.5, -1.0)),
        ("prelu", (torch.tensor([0.5]),), {}, lambda x: torch.where(x > 0, x, 0.5 * x)),
        ("pow.Tensor_Scalar", (2,), {}, torch.square),
        ("pow.Tensor_Scalar", (3,), {}, lambda x: x**3),
        ("pow.Tensor_Scalar", (-1,), {}, torch.reciprocal),
        ("log_sigmoid", (), {}, nn.functional.logsigmoid),
    ],
)
def test_operators_are_modules(op, arguments, options, function):
    x = torch.tensor([[-3.2, -0.7, -0.1, 0.2, 0.9, 1.7, 4.4]])
    module = OPERATORS[op].from_op(op, *arguments, **options)
    assert torch.allclose(module(x), function(x), rtol=1e-6)
    assert torch.allclose(activation_of(module).function(x), function(x), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("op", "arguments", "message"),
    [
        ("clamp", (torch.zeros(1),), "bound that is not a number"),
        ("clamp", (2.0, 1.0), "from 2.0 to 1.0"),
        ("pow.Tensor_Scalar", (1.7,), r"x \*\* 1.7"),
        ("pow.Tensor_Scalar", (float("inf"),), r"x \*\* inf"),
        ("pow.Tensor_Scalar", (float("nan"),), r"x \*\* nan"),
        ("elu", (1.0, 2.0, 3.0), "scale 2.0"),
        ("prelu", (0.5,), "no tensor"),
    ],
)
def test_operators_without_a_formula_are_refused(op, arguments, message):
    with pytest.raises(NoFormulaError, match=message):
        OPERATORS[op].from_op(op, *arguments)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("hardtanh", {"min_val": 1.0, "max_val": 0.0}),
        ("hardshrink", {"lambd": math.nan}),
        ("celu", {"alpha": 0.0}),
        ("elu", {"alpha": math.inf}),
        ("softplus", {"beta": 0.0}),
        ("threshold", {"value": math.nan}),
        ("power", {"exponent": 0.5}),
    ],
)
def test_parameters_out_of_their_range_are_refused(name, parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        activation(name, **parameters)


def test_a_second_derivative_is_refused_and_not_wrong():
    mean = double(0.3).requires_grad_()
    m, _ = make("elu").mean_variance(mean, double(1.0))
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(m.sum(), mean, create_graph=True)


CASES = {  # function, its bends, and intercept and slope of each of its pieces
    "clamp from below": (lambda v: v.clamp(min=0.25), (0.25,), ((0.25, 0), (0, 1))),
    "clamp from above": (lambda v: v.clamp(max=-2.0), (-2.0,), ((0, 1), (-2, 0))),
    "hardtanh": (nn.Hardtanh(-2.0, 1.0), (-2.0, 1.0), ((-2, 0), (0, 1), (1, 0))),
    "relu6": (nn.ReLU6(), (0.0, 6.0), ((0, 0), (0, 1), (6, 0))),
    "softshrink": (nn.Softshrink(1.5), (-1.5, 1.5), ((1.5, 1), (0, 0), (-1.5, 1))),
    "hardshrink": (nn.Hardshrink(0.25), (-0.25, 0.25), ((0, 1), (0, 0), (0, 1))),
    "threshold": (nn.Threshold(2.0, 0.5), (2.0,), ((0.5, 0), (0, 1))),
}


def moments(bends, pieces, mean, deviation):
    """Mean and variance by moments of truncated normals, in 400 digits."""
    with mp.workdps(400):
        m, s = mp.mpf(mean), mp.mpf(deviation)
        ends = [mp.mpf(-200), *((bend - m) / s for bend in bends), mp.mpf(200)]
        first = second = mp.mpf(0)
        for (a, b), (intercept, slope) in zip(itertools.pairwise(ends), pieces, strict=True):
            mass, z = mp.ncdf(b) - mp.ncdf(a), mp.npdf(a) - mp.npdf(b)
            square = mass + a * mp.npdf(a) - b * mp.npdf(b)
            value, step = intercept + slope * m, slope * s
            first += value * mass + step * z
            second += value**2 * mass + 2 * value * step * z + step**2 * square
        return float(first), float(second - first**2)


@pytest.mark.parametrize("steps", [2.5, 9.5, 24.0])
@pytest.mark.parametrize("deviation", [2.0**-4, 2.0**-14])
@pytest.mark.parametrize("name", CASES)
def test_variances_are_right_however_small(name, deviation, steps):
    net, bends, pieces = CASES[name]
    for bend in bends:
        for side in (-1, 1):
            mean = bend + side * steps * deviation
            right = moments(bends, pieces, mean, deviation)
            x = sr.DiagonalGaussian(torch.tensor([[mean]]).double(), torch.tensor([[deviation**2]]).double())
            for rule in ("marginal_moment_matching", "moment_matching"):
                law = sr.propagate(net, x, rule)
                assert law.mean.item() == pytest.approx(right[0], rel=1e-11, abs=1e-13 * deviation)
                assert law.variance.item() == pytest.approx(right[1], rel=1e-6 if steps > 20 else 1e-7, abs=0)
