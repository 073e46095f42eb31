import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_ref.activations.pointwise import Apply

X = sr.DiagonalGaussian(torch.tensor([[-0.7, 0.0, 1.3]]).double(), torch.tensor([[0.2, 2.0, 0.0]]).double())


def test_the_mean_of_a_polynomial_of_degree_five_is_exact():
    m, v = X.mean, X.variance
    exact = m**5 + 10 * m**3 * v + 15 * m * v**2 - 2 * (m**4 + 6 * m**2 * v + 3 * v**2) + m
    net = Apply(lambda x: x**5 - 2 * x**4 + x)  # as one function: separate terms would be independent
    torch.testing.assert_close(sr.propagate(net, X, "marginal_sigma_points").mean, exact)


def test_the_variance_of_a_square_is_exact():
    law = sr.propagate(torch.square, X, "marginal_sigma_points")
    torch.testing.assert_close(law.variance, 4 * X.mean**2 * X.variance + 2 * X.variance**2)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.Tanh])
def test_moments_differ_from_the_exact_ones_by_less_than_a_kink_does(activation):
    points, exact = (
        sr.propagate(activation(), X, rule) for rule in ("marginal_sigma_points", "marginal_moment_matching")
    )
    assert ((points.mean - exact.mean).abs() <= 0.111 * X.variance.sqrt()).all()
    assert ((points.variance - exact.variance).abs() <= 0.101 * X.variance).all()


@pytest.mark.parametrize("variance", [1e-8, 1e-20, 1e-36])
def test_small_variances_in_float32_follow_the_derivative(variance):
    x = sr.DiagonalGaussian(torch.tensor([[2.0, -1.0]]), torch.full((1, 2), variance))
    law = sr.propagate(nn.Tanh(), x, "marginal_sigma_points")
    expected = (1 - x.mean.double().tanh() ** 2) ** 2 * x.variance.double()
    torch.testing.assert_close(law.variance.double(), expected, rtol=1e-4, atol=0)
