import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

import sdp_ref as sr
from tests.sdp_ref.common import diagonal, gaussian

SEEDS = 400


def quadratic(inputs, outputs, dtype=torch.float64):
    generator = torch.Generator().manual_seed(2)
    forms = torch.randn(outputs, inputs, inputs, generator=generator, dtype=torch.float64).to(dtype)
    slopes = torch.randn(outputs, inputs, generator=generator, dtype=torch.float64).to(dtype)
    return lambda v: v @ slopes.mT + torch.einsum("bi,kij,bj->bk", v, forms, v)


def by_quadrature(net, x):
    """Mean and covariance by three of Gauss and Hermite's nodes a direction: exact up to degree 5."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    grid = torch.tensor(list(itertools.product(nodes, repeat=x.dimension)))
    shares = torch.tensor([math.prod(each) for each in itertools.product(weights, repeat=x.dimension)])
    shares /= shares.sum()
    means, covariances = [], []
    for mean, covariance in zip(x.mean.double(), x.covariance.double(), strict=True):
        values, vectors = torch.linalg.eigh(covariance)
        outputs = net(mean + grid @ (vectors * values.clamp(min=0).sqrt()).mT)
        means.append(shares @ outputs)
        centred = outputs - means[-1]
        covariances.append(centred.mT @ (shares[:, None] * centred))
    return torch.stack(means), torch.stack(covariances)


@pytest.mark.parametrize("make", [gaussian, diagonal])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (3, 2), (2, 4)])
def test_it_is_exact_for_quadratic_nets(make, inputs, outputs):
    assert sr.rule("second_order").claims == {"second order"}
    net, x = quadratic(inputs, outputs), make(2, inputs)
    law = sr.propagate(net, x, "second_order")
    mean, covariance = by_quadrature(net, x)
    assert torch.allclose(law.mean, mean, rtol=1e-12)
    assert torch.allclose(law.covariance, covariance, rtol=1e-11, atol=1e-11 * float(covariance.abs().max()))


@pytest.fixture(scope="module")
def estimated():
    """A quadratic net's law of five inputs, exact, and many estimates of it from two probes each."""
    net, x = quadratic(5, 2), gaussian(1, 5)
    many = sr.Gaussian(x.mean.repeat(SEEDS, 1), x.covariance.repeat(SEEDS, 1, 1))
    found = sr.rule("second_order", probes=2, seed=tuple(range(SEEDS))).propagate(net, many)
    linear = sr.propagate(net, x, "sdp").covariance
    return sr.propagate(net, x, "second_order"), linear, found


def test_estimates_are_unbiased(estimated):
    exact, _, found = estimated
    for one, all_of_them in ((exact.mean, found.mean), (exact.covariance, found.covariance)):
        error = all_of_them.std(0) / math.sqrt(SEEDS)
        assert bool(((all_of_them.mean(0) - one[0]).abs() <= 5 * error).all())


def test_the_stated_errors_bound_those_of_the_estimates(estimated):
    exact, linear, found = estimated
    second = (exact.covariance - linear)[0].diagonal()  # tr(H S H S) / 2
    # of so many estimates a standard deviation is told to 5 % or so; the bounds leave out the diagonals
    assert bool((found.mean.std(0) <= 1.1 * (second / 2).sqrt()).all())
    assert bool((found.variance.std(0) <= 1.1 * second * math.sqrt(2 / 2)).all())
    assert bool((found.mean.std(0) > 0.1 * (second / 2).sqrt()).all())


def test_attention_has_a_second_derivative():
    """torch's fast kernels of attention have none; the function does, as written out by hand."""
    torch.manual_seed(0)
    into, out = torch.randn(4, 12).double(), torch.randn(12, 2).double()

    def of(attention):
        def net(x):
            # with a dimension of heads, one here, or torch takes no fast kernel
            query, key, value = (x.reshape(-1, 1, 3, 4) @ into).chunk(3, -1)
            return attention(query, key, value).flatten(1) @ out

        return net

    def by_hand(q, k, v):
        return (q @ k.mT / 2).softmax(-1) @ v

    x = gaussian(1, 12)
    law = sr.propagate(of(nn.functional.scaled_dot_product_attention), x, "second_order")
    plain = of(by_hand)

    def first_output(v):
        return plain(v[None])[0, 0]

    at = x.mean[0]
    spread = x.covariance[0]
    forms = torch.autograd.functional.hessian(first_output, at) @ spread
    jacobian = torch.autograd.functional.jacobian(first_output, at)
    assert torch.allclose(law.mean[0, 0], first_output(at) + forms.trace() / 2, rtol=1e-10)
    variance = jacobian @ spread @ jacobian + (forms @ forms).trace() / 2
    assert torch.allclose(law.variance[0, 0], variance, rtol=1e-10)


def test_an_estimated_covariance_is_one(estimated):
    _, _, found = estimated
    assert float(torch.linalg.eigvalsh(found.covariance).min()) > 0


def test_as_many_probes_as_inputs_are_exact():
    net, x = quadratic(4, 2), gaussian(2, 4)
    exact = sr.propagate(net, x, "second_order")
    for probes, same in ((3, False), (4, True), (100, True)):
        law = sr.propagate(net, x, sr.rule("second_order", probes=probes))
        assert torch.equal(law.covariance, exact.covariance) == same
        assert torch.equal(law.mean, exact.mean) == same


def test_draws_belong_to_seed_and_place():
    net, x = quadratic(4, 2), gaussian(2, 4)
    first = sr.rule("second_order", probes=2, seed=0).propagate(net, x)
    again = sr.rule("second_order", probes=2, seed=0).propagate(net, x)
    other = sr.rule("second_order", probes=2, seed=1).propagate(net, x)
    both = sr.rule("second_order", probes=2, seed=(7, 7)).propagate(net, x)
    assert torch.equal(first.mean, again.mean)
    assert not torch.equal(first.mean, other.mean)
    alone = sr.rule("second_order", probes=2, seed=[7]).propagate(net, x[1])
    assert torch.allclose(both.mean[1:], alone.mean, rtol=1e-12)
    assert sr.rule("second_order", probes=2).with_seeds([7, 7]).propagate(net, x).mean.equal(both.mean)


def test_nothing_is_as_large_as_a_hessian():
    inputs = 400_000  # a matrix would have 1.3 TB

    def net(v):
        return torch.stack([v.square().mean(1), v.sin().mean(1)], 1)

    x = sr.DiagonalGaussian(torch.zeros(1, inputs), torch.ones(1, inputs))
    law = sr.propagate(net, x, sr.rule("second_order", probes=3))
    assert law.mean.tolist() == [pytest.approx([1, 0], abs=1e-6)]  # a diagonal Hessian has no error


def test_it_refuses_kinks_and_laws_without_covariance():
    net = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    with pytest.raises(sr.UnsupportedError, match=r"'second_order' does not support relu.*kink.*unscented"):
        sr.propagate(net, diagonal(1, 4), "second_order")
    cauchy = sr.Cauchy(torch.zeros(1, 4).double(), torch.ones(1, 4).double())
    with pytest.raises(sr.UnsupportedError, match="Cauchy input, which has no covariance"):
        sr.propagate(net[:3], cauchy, "second_order")


def test_at_small_noise_errors_of_mean_and_covariance_are_of_fourth_order():
    """Half the noise divides both errors by 16."""
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 2)).double()

    def errors(scale):
        x = sr.DiagonalGaussian(torch.tensor([[0.3, -0.8]]).double(), torch.full((1, 2), scale**2).double())
        with torch.no_grad():
            truth = sr.propagate(net, x, sr.rule("cubature", degree=31, scheme="tensor"))
        law = sr.propagate(net, x, "second_order")
        return np.array(
            [float((law.mean - truth.mean).norm()), float((law.covariance - truth.covariance).norm())]
        )

    assert errors(0.1) / errors(0.05) == pytest.approx([16, 16], rel=0.1)
