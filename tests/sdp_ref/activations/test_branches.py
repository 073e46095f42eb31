"""Covariances between different functions of jointly normal units."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import erf, expit, ndtr

from sdp_ref.activations import activation
from sdp_ref.activations.branches import Branch, branch_covariance
from sdp_ref.activations.pointwise import Pointwise
from sdp_ref.activations.relu import PReLU

FUNCTIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * ndtr(x),
    "sin": np.sin,
    "tanh": np.tanh,
    "silu": lambda x: x * expit(x),
    "abs": np.abs,
    "square": np.square,
    "probit": ndtr,
    "erf": erf,
    "heaviside": lambda x: (x > 0).astype(float),
}
RHOS = (0.0, 1e-4, 0.4, 0.9, 0.999, 1.0)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)


def make(name):
    if name == "heaviside":
        return Pointwise(lambda x: (x > 0).to(x.dtype), (0.0,), "heaviside")
    return activation(name)


def panels(edges):
    """Nodes and weights, with the normal density, of panels with edges (..., k), sorted."""
    width = np.diff(edges)[..., None] / 2
    u = edges[..., :-1, None] + width * (NODES + 1)
    return u.reshape(*u.shape[:-2], -1), (width * WEIGHTS * stats.norm.pdf(u)).reshape(*u.shape[:-2], -1)


def covariances(m, n, s, t, rho):
    """Cov(f(X), g(Y)) for all pairs, by composite Gauss-Legendre quadrature with panels that end at 0.

    X = m + s U and Y = n + t (rho U + sqrt(1 - rho^2) V) with independent standard normal U and V.
    """
    rest = t * np.sqrt((1 - rho) * (1 + rho))
    grid = np.linspace(-9, 9, 37)
    bends = [-m / s]
    if rho:
        width = rest / (t * abs(rho))
        bends += list(-n / (t * rho) + width * np.array([-8, -4, -2, -1, 0, 1, 2, 4, 8]))
    u, weight = panels(np.sort(np.clip([*grid, *bends], -9, 9)))
    centre = n + t * rho * u
    v, inner_weight = np.zeros((len(u), 1)), np.ones((len(u), 1))
    if rest:
        at_zero = np.clip(-centre / rest, -9, 9)
        v, inner_weight = panels(np.sort(np.column_stack([np.tile(grid[::2], (len(u), 1)), at_zero])))
    points = centre[:, None] + rest * v
    x = np.array([f(m + s * u) for f in FUNCTIONS.values()])
    y = np.array([(inner_weight * g(points)).sum(1) for g in FUNCTIONS.values()])
    x_mean, y_mean = x @ weight, y @ weight
    return ((x - x_mean[:, None]) * weight) @ (y - y_mean[:, None]).T


def branch(name, mean, std):
    function = make(name)
    variance = std**2
    return Branch(function, mean, variance, function.mean_variance(mean, variance)[1])


LAWS = [(0.3, -0.7, 1.0, 1.5), (-2.0, 1.0, 0.5, 1.0), (0.0, 0.0, 2.0, 0.1), (4.0, 0.2, 1.0, 3.0)]
ROWS = [(*law, sign * rho) for law in LAWS for rho in RHOS for sign in (1, -1)]


@pytest.fixture(scope="module")
def expected():
    return np.array([covariances(*row) for row in ROWS])


@pytest.mark.parametrize("tolerance", [1e-6, 1e-8])
@pytest.mark.parametrize("first", FUNCTIONS)
def test_covariances_match_two_dimensional_quadrature(expected, first, tolerance):
    m, n, s, t, rho = torch.tensor(ROWS, dtype=torch.float64).T.unsqueeze(2)
    of_first = branch(first, m, s)
    for column, second in enumerate(FUNCTIONS):
        got = branch_covariance(of_first, branch(second, n, t), (rho * s * t).unsqueeze(2), tolerance)
        wanted = torch.from_numpy(expected[:, list(FUNCTIONS).index(first), column])
        error = (got[:, 0, 0] - wanted).abs() / (s * t)[:, 0]
        assert error.max() < tolerance, (second, ROWS[error.argmax()])


@pytest.mark.parametrize("name", ["relu", "sin", "probit", "square"])
@pytest.mark.parametrize("std", [0.1, 1.0, 6.0])
def test_an_exponential_shifts_the_law_of_the_other_unit(name, std):
    """Cov(f(X), exp(Y)) = E[exp(Y)] (E f(X + c) - E f(X)) by completing the square, with c = Cov(X, Y)."""
    m, v = torch.tensor([[0.4, -1.0]], dtype=torch.float64), torch.tensor([[1.0, 4.0]], dtype=torch.float64)
    n, w = torch.tensor([[-0.2]], dtype=torch.float64), torch.tensor([[std**2]], dtype=torch.float64)
    block = std * torch.tensor([[[0.7], [-1.9]]], dtype=torch.float64)
    first, second = make(name), branch("exp", n, w.sqrt())
    got = branch_covariance(branch(name, m, v.sqrt()), second, block, 1e-10)[..., 0]
    shifted = first.mean_variance(m + block[..., 0], v)[0] - first.mean_variance(m, v)[0]
    expected = torch.exp(n + w / 2) * shifted
    spread = (first.mean_variance(m, v)[1] * second.outputs).sqrt()
    assert ((got - expected).abs() <= 1e-10 * v.sqrt() * std + 1e-9 * spread).all()


@pytest.mark.parametrize("rho", [0.5, -0.95, 0.999])
def test_gradients_are_those_of_finite_differences(rho):
    def value(m, n, v, w, c):
        first, second = (
            Branch(make(name), x, y, torch.ones(1, 1))
            for name, x, y in zip(("relu", "tanh"), (m, n), (v, w), strict=True)
        )
        return branch_covariance(first, second, c, 1e-10)

    numbers = [[[0.3]], [[-0.4]], [[1.2]], [[0.7]], [[[rho * (1.2 * 0.7) ** 0.5]]]]
    arguments = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in numbers]
    assert torch.autograd.gradcheck(value, arguments, eps=1e-5, atol=1e-6)


def test_a_slope_per_unit_is_a_combination_of_a_line_and_a_ramp():
    m, v = torch.tensor([[0.2, -0.6]]).double(), torch.tensor([[1.0, 2.0]]).double()
    block = torch.tensor([[[0.5, -0.3, 0.6], [1.1, 0.2, -0.7]]]).double()
    n, w = torch.tensor([[0.1, 0.4, -1.0]]).double(), torch.tensor([[1.5, 1.0, 0.8]]).double()
    second = Branch(make("gelu"), n, w, make("gelu").mean_variance(n, w)[1])
    slopes = torch.tensor([0.25, 1.5])
    prelu = PReLU(slopes).flattened(torch.Size([2]))
    got = branch_covariance(Branch(prelu, m, v, prelu.mean_variance(m, v)[1]), second, block, 1e-9)
    for unit, slope in enumerate(slopes.tolist()):
        leaky = activation("leaky_relu", negative_slope=slope)
        of_unit = Branch(leaky, m[:, [unit]], v[:, [unit]], leaky.mean_variance(m, v)[1][:, [unit]])
        expected = branch_covariance(of_unit, second, block[:, [unit]], 1e-9)
        assert torch.allclose(got[:, [unit]], expected, atol=1e-8)
    transposed = branch_covariance(second, Branch(prelu, m, v, got[0, 0]), block.mT, 1e-9)
    assert torch.allclose(transposed.mT, got, atol=1e-12)


def test_a_sine_under_wide_laws_is_resolved():
    """Cov(X, sin Y) = Cov(X, Y) E cos Y, here with 30 periods within a law; x = relu(x) - relu(-x)."""
    m, v = torch.tensor([[0.4]]).double(), torch.tensor([[1.0]]).double()
    n, w = torch.tensor([[-0.2]]).double(), torch.tensor([[30.0**2]]).double()
    block = torch.tensor([[[-3.0]]]).double()
    second = Branch(make("sin"), n, w, make("sin").mean_variance(n, w)[1])
    square = make("square")
    got = branch_covariance(Branch(square, m, v, square.mean_variance(m, v)[1]), second, block, 1e-8)
    # E[X^2 sin Y] by differentiating exp(i Y) under the law of (X, Y): -c^2 E sin Y + 2 m c E cos Y
    damped = torch.exp(-w / 2)
    expected = damped * (2 * m * block[0] * n.cos() - block[0] ** 2 * n.sin())
    assert torch.allclose(got[0], expected, atol=1e-7)


def test_functions_without_moments_have_them_at_point_masses_only():
    m, zero = torch.tensor([[0.4]]).double(), torch.zeros(1, 1).double()
    first = Branch(make("log"), m, zero, zero)
    second = Branch(make("relu"), m, 1 + zero, make("relu").mean_variance(m, 1 + zero)[1])
    assert branch_covariance(first, second, torch.zeros(1, 1, 1).double(), 1e-6) == 0
