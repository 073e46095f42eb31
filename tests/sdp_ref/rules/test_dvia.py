import mpmath as mp
import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from sdp_ref import rule
from sdp_ref.activations import activation
from sdp_ref.rules.dvia import dvia_relu
from tests.sdp_ref.common import diagonal, mlp


def law(h, k, rho, s1=1.0, s2=1.0):
    mean = torch.tensor([[h * s1, k * s2]], dtype=torch.float64)
    c = rho * s1 * s2
    return mean, torch.tensor([[[s1 * s1, c], [c, s2 * s2]]], dtype=torch.float64)


def published(h, k, rho):
    """The formula as printed, which needs rho != 0."""
    with mp.workdps(40):
        h, k, rho = mp.mpf(h), mp.mpf(k), mp.mpf(rho)
        r = mp.sqrt(1 - rho * rho)
        a = mp.asin(rho) - rho / (1 + r)
        q = -(h * h + k * k) * rho / (2 * a * (1 + r)) + h * k * (mp.asin(rho) - rho) / (a * rho)
        return float(rho * (mp.ncdf(h) * mp.ncdf(k) + a / (2 * mp.pi) * mp.exp(q)))


@pytest.mark.parametrize("rho", [1e-12, 1e-3, 0.0999, 0.1001, 0.5, 0.9, 0.999, 1 - 1e-6, 1.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_covariance_is_the_published_formula(rho, sign):
    for h, k in ((0.0, 0.0), (0.5, -0.3), (-2.0, -2.0), (1.0, 1.001), (3.0, -3.0), (-1.0, 2.0)):
        _, c = dvia_relu(*law(h, k, sign * rho))
        assert c[0, 0, 1].item() == pytest.approx(published(h, k, sign * rho), rel=1e-12, abs=1e-300)


@pytest.mark.rounding
def test_the_mean_is_the_exact_one():
    mean, covariance = law(-0.7, 1.2, 0.4, 2.0, 3.0)
    want, _ = activation("relu").mean_covariance(mean, covariance)
    assert torch.equal(dvia_relu(mean, covariance)[0], want)


def test_the_diagonal_is_the_same_expression_at_correlation_one():
    for h in (-4.0, -1.0, 0.0, 2.0):
        _, c = dvia_relu(*law(h, h, 1.0))
        assert c[0, 0, 0] == c[0, 0, 1] == c[0, 1, 1]
        assert c[0, 0, 0].item() == pytest.approx(published(h, h, 1.0), rel=1e-13)


@pytest.mark.parametrize("h", [-1.0, 0.4])
def test_at_full_correlation_the_gradient_is_the_one_sided_derivative(h):
    mean, covariance = law(h, h, 1.0)
    covariance.requires_grad_()
    (gradient,) = torch.autograd.grad(dvia_relu(mean, covariance)[1][0, 0, 1], covariance)
    step = 1e-8  # of rho; the formula's next term is of order sqrt(step)
    want = (published(h, h, 1.0) - published(h, h, 1 - step)) / step
    assert (gradient[0, 0, 1] + gradient[0, 1, 0]).item() == pytest.approx(want, abs=1e-3)


VARIANTS = ("dvia:means=regular", "dvia:means=regular_covariance")


def by_hand(net, x):
    """f(x), the propagated mean and the covariance, layer by layer, with the formula as printed."""
    regular, mean = x.mean[0].numpy(), x.mean[0].numpy()
    covariance = np.diag(x.variance[0].numpy())
    for module in net:
        if isinstance(module, nn.Linear):
            weight = module.weight.detach().numpy()
            bias = module.bias.detach().numpy()
            regular, mean = weight @ regular + bias, weight @ mean + bias
            covariance = weight @ covariance @ weight.T
            continue
        sd = np.sqrt(np.diag(covariance))
        h, rho = regular / sd, (covariance / np.outer(sd, sd)).clip(-1, 1)
        factors = np.empty_like(covariance)
        for i, j in np.ndindex(factors.shape):
            factors[i, j] = published(h[i], h[j], float(rho[i, j]))
        mean = mean * stats.norm.cdf(mean / sd) + sd * stats.norm.pdf(mean / sd)
        regular, covariance = np.maximum(regular, 0), factors * np.outer(sd, sd)
    return regular, mean, covariance


@pytest.mark.parametrize("widths", [(3, 4, 2), (3, 4, 4, 2)])
def test_variants_are_the_formula_at_the_means_of_the_regular_pass(widths):
    net, x = mlp(*widths), diagonal(1, widths[0])
    regular, mean, covariance = by_hand(net, x)
    for spec, location in zip(VARIANTS, (regular, mean), strict=True):
        law = rule(spec).propagate(net, x)
        np.testing.assert_allclose(law.mean[0].detach(), location, rtol=1e-10)
        np.testing.assert_allclose(law.covariance[0].detach(), covariance, rtol=1e-9, atol=1e-12)


def test_one_hidden_layer_has_the_same_covariance_in_all_variants_and_two_have_not():
    for widths, same in (((3, 5, 2), True), ((3, 5, 5, 2), False)):
        net, x = mlp(*widths), diagonal(1, 3)
        laws = [rule(spec).propagate(net, x) for spec in ("dvia", *VARIANTS)]
        assert torch.allclose(laws[0].covariance, laws[1].covariance, rtol=1e-9) is same
        assert torch.allclose(laws[1].covariance, laws[2].covariance, rtol=1e-12)


def test_residual_branches_keep_the_mean_of_the_regular_pass():
    first, second = mlp(3, 3), mlp(3, 2)

    def net(x):
        return second(x + torch.relu(first(x)))

    x = diagonal(1, 3)
    regular = rule("dvia:means=regular").propagate(net, x)
    both = rule("dvia:means=regular_covariance").propagate(net, x)
    assert torch.allclose(regular.mean, net(x.mean))
    assert torch.allclose(regular.covariance, both.covariance)


@pytest.mark.parametrize(("h", "error"), [(-2.0, -0.12), (-4.0, -0.82)])
def test_the_variance_is_too_small_in_the_left_tail(h, error):
    mean, covariance = law(h, h, 0.0)
    _, predicted = dvia_relu(mean, covariance)
    _, exact = activation("relu").mean_variance(mean, torch.ones_like(mean))
    assert (predicted[0, 0, 0] / exact[0, 0] - 1).item() == pytest.approx(error, abs=0.005)


@pytest.mark.parametrize("rho", [-1.0, -0.7, 0.0, 0.3, 1.0])
def test_covariances_of_centred_inputs_are_exact(rho):
    mean, covariance = law(0.0, 0.0, rho, 2.0, 0.5)
    _, predicted = dvia_relu(mean, covariance)
    _, exact = activation("relu").mean_covariance(mean, covariance)
    torch.testing.assert_close(predicted, exact, rtol=1e-12, atol=1e-15)


def test_uncorrelated_units_stay_uncorrelated():
    _, covariance = dvia_relu(*law(0.3, -1.0, 0.0))
    assert covariance[0, 0, 1] == 0
