import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import sdp_ref as sr
from sdp_ref.activations.pointwise import Apply
from sdp_ref.rules.points import effective_points

SPECS = [("spherical", 3), ("spherical", 5), *itertools.product(("tensor", "sparse"), (1, 3, 5, 7, 9))]


def cubature(scheme, degree):
    return sr.rule("cubature", scheme=scheme, degree=degree)


def moment(powers):
    """E of a product of powers of independent standard normals: double factorials."""
    return math.prod(0 if p % 2 else math.prod(range(p - 1, 0, -2)) for p in powers)


@pytest.mark.parametrize("dimension", [1, 2, 3, 5])
@pytest.mark.parametrize(("scheme", "degree"), SPECS)
def test_polynomials_up_to_the_degree_are_exact(scheme, degree, dimension):
    points, weights = cubature(scheme, degree).points(dimension)
    points = points.numpy()
    weights = weights.numpy()
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    for powers in itertools.combinations_with_replacement(range(degree + 1), dimension):
        if sum(powers) <= degree:
            for each in {powers, powers[::-1], (*powers[1:], powers[0])}:
                value = weights @ np.prod(points ** np.array(each), axis=1)
                assert value == pytest.approx(moment(each), abs=1e-8 * max(1, moment(each)))


@pytest.mark.parametrize(("scheme", "degree"), [case for case in SPECS if case[1] > 1])
def test_no_degree_more_is_exact(scheme, degree):
    """Or the degree would promise too little: E of x^(degree + 1) is missed."""
    points, weights = cubature(scheme, degree).points(2)
    points = points.numpy()
    weights = weights.numpy()
    assert weights @ points[:, 0] ** (degree + 1) != pytest.approx(moment([degree + 1]), rel=1e-3)


@given(st.integers(1, 6))
def test_of_degree_3_it_is_the_unscented_transform_without_its_centre(dimension):
    points, weights = cubature("spherical", 3).points(dimension)
    others, shares = sr.rule("unscented", kappa=0).points(dimension)
    assert torch.equal(points, others[1:])
    assert torch.equal(weights, shares[1:])


@pytest.mark.parametrize(("scheme", "degree"), [("tensor", 3), ("sparse", 9), ("spherical", 5)])
def test_too_many_points_are_refused_before_they_are_made(scheme, degree):
    x = sr.DiagonalGaussian(torch.zeros(1, 3000), torch.ones(1, 3000))
    with pytest.raises(sr.UnsupportedError, match="more than 1,000,000 points"):
        cubature(scheme, degree).propagate(torch.nn.Linear(3000, 2), x)


def test_small_distances_of_points_are_noted_where_float32_rounds_their_differences():
    x = sr.DiagonalGaussian(torch.full((1, 9), 1e3), torch.ones(1, 9))
    net = lambda v: v.sum(1, keepdim=True)  # noqa: E731
    assert any("float64" in note for note in sr.propagate(net, x, "unscented:alpha=.001").notes)
    for rule, law in (("unscented", x), ("unscented:alpha=.001", x.to(dtype=torch.float64))):
        prediction = sr.propagate(net, law, rule)
        assert not prediction.notes
        assert prediction.variance.item() == pytest.approx(9, rel=1e-4)


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
    points = sr.propagate(activation(), X, "marginal_sigma_points")
    exact = sr.propagate(activation(), X, "marginal_moment_matching")
    assert ((points.mean - exact.mean).abs() <= 0.111 * X.variance.sqrt()).all()
    assert ((points.variance - exact.variance).abs() <= 0.101 * X.variance).all()


@pytest.mark.parametrize("variance", [1e-8, 1e-20, 1e-36])
def test_small_variances_in_float32_follow_the_derivative(variance):
    x = sr.DiagonalGaussian(torch.tensor([[2.0, -1.0]]), torch.full((1, 2), variance))
    law = sr.propagate(nn.Tanh(), x, "marginal_sigma_points")
    expected = (1 - x.mean.double().tanh() ** 2) ** 2 * x.variance.double()
    torch.testing.assert_close(law.variance.double(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("scheme", "degree", "dimension", "count"),
    [
        ("spherical", 3, 7, 14),
        ("spherical", 5, 7, 99),
        ("tensor", 5, 4, 81),
        ("sparse", 3, 7, 15),
        ("sparse", 7, 1, 4),
    ],
)
def test_a_scheme_has_its_documented_number_of_points(scheme, degree, dimension, count):
    assert len(cubature(scheme, degree).points(dimension)[1]) == count


@pytest.mark.parametrize("inputs", [2, 4, 8, 49, 182])
def test_effective_points_of_degree_five(inputs):
    """1 / sum w^2 of 2 / (n + 2), (4 - n) / 2 (n + 2)^2 and 1 / (n + 2)^2 (McNamee and Stenger)."""
    n = inputs
    squares = (
        (2 / (n + 2)) ** 2 + 2 * n * ((4 - n) / (2 * (n + 2) ** 2)) ** 2 + 2 * n * (n - 1) / (n + 2) ** 4
    )
    _, weights = sr.rule("cubature", degree=5).points(n)
    assert effective_points(weights) == pytest.approx(1 / squares)
    x = sr.DiagonalGaussian(torch.zeros(1, n).double(), torch.ones(1, n).double())
    notes = sr.propagate(torch.nn.Linear(n, 1).double(), x, "cubature:degree=5").notes
    assert bool(notes) == (n > 4)
    assert not notes or f"{2 * n * n + 1} points vary as {1 / squares:.3g} samples" in notes[0]
