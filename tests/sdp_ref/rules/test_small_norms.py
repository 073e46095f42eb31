"""Norms over one or two components, and softmax of two classes: functions of one number per group."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sdp_ref as sr

RULES = ("moment_matching", "dvia", "low_rank", "marginal_moment_matching")


class Normalise(nn.Module):
    def forward(self, x):
        return F.normalize(x, dim=-1)


def moments(function, mean, deviation, breaks=()):
    """Mean and variance of f(t), t ~ N(mean, deviation^2), by Gauss-Legendre quadrature between `breaks`."""
    edges = mean + deviation * np.linspace(-12, 12, 97)
    edges = np.unique(np.concatenate([edges, [b for b in breaks if edges[0] < b < edges[-1]]]))
    nodes, weights = np.polynomial.legendre.leggauss(40)
    half = np.diff(edges)[:, None] / 2
    t = edges[:-1, None] + half * (nodes + 1)
    z = (t - mean) / deviation
    density = np.exp(-(z**2) / 2) / (deviation * math.sqrt(2 * math.pi))
    shares = half * weights * density
    # differences from the value at the mean, so that small variances do not cancel
    difference = function(t) - function(mean)
    shift = (shares * difference).sum()
    return function(mean) + shift, (shares * (difference - shift) ** 2).sum()


def direction(eps):
    return lambda t: t / np.sqrt(t * t + eps)


def steps(eps):
    """Edges next to the steep part of a smooth sign."""
    return [side * math.sqrt(eps) * 2.0**k for k in range(-4, 44) for side in (1, -1)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sigma", [0.003, 0.05, 0.4, 2.0, 30.0])
@pytest.mark.parametrize("eps", [1e-5, 1e-3, 0.5])
@pytest.mark.parametrize("mean", [(0.4, -1.1), (0.7, 0.7), (0.2, 0.21)])
def test_moments_of_a_layer_norm_of_two_components_are_exact(rule, sigma, eps, mean):
    net = nn.LayerNorm(2, eps=eps).double()
    net.weight.data = torch.tensor([1.5, -0.5]).double()
    net.bias.data = torch.tensor([0.25, 2.0]).double()
    x = sr.DiagonalGaussian(
        torch.tensor([mean], dtype=torch.float64), torch.tensor([[1.0, 3.0]]).double() * sigma**2
    )
    y = sr.propagate(net, x, rule)
    expected, variance = moments(direction(eps), (mean[0] - mean[1]) / 2, sigma, steps(eps))
    values = (1.5 * expected + 0.25, 0.5 * expected + 2.0)
    deviation = math.sqrt(variance)
    assert y.mean[0].tolist() == pytest.approx(values, abs=1e-9 * (1 + deviation))
    assert y.variance[0].sqrt().tolist() == pytest.approx((1.5 * deviation, 0.5 * deviation), rel=1e-7)


OTHERS = {  # net, shape of the input, pairs of components or single ones, eps
    "GroupNorm of pairs": (nn.GroupNorm(3, 6, eps=1e-4), (6,), [(0, 1), (2, 3), (4, 5)], 1e-4),
    "GroupNorm over positions": (nn.GroupNorm(2, 2, eps=1e-4), (2, 2), [(0, 1), (2, 3)], 1e-4),
    "InstanceNorm1d": (nn.InstanceNorm1d(3, eps=1e-4), (3, 2), [(0, 1), (2, 3), (4, 5)], 1e-4),
    "InstanceNorm2d": (nn.InstanceNorm2d(2, eps=1e-4), (2, 2, 1), [(0, 1), (2, 3)], 1e-4),
    "InstanceNorm3d": (nn.InstanceNorm3d(1, eps=1e-4), (1, 1, 2, 1), [(0, 1)], 1e-4),
    "LayerNorm of (2, 1)": (nn.LayerNorm((2, 1), eps=1e-4), (2, 2, 1), [(0, 1), (2, 3)], 1e-4),
    "RMSNorm of one": (nn.RMSNorm(1, eps=1e-4), (3, 1), [(0,), (1,), (2,)], 1e-4),
    "default RMSNorm of one": (nn.RMSNorm(1), (3, 1), [(0,), (1,), (2,)], torch.finfo(torch.float64).eps),
    "normalize": (Normalise(), (3, 1), [(0,), (1,), (2,)], 1e-24),
}


def inputs(event, sigma):
    generator = torch.Generator().manual_seed(5)
    n = math.prod(event)
    mean = torch.randn(1, *event, generator=generator).double()
    factor = torch.randn(n, n, generator=generator).double() * sigma / math.sqrt(n)
    return mean, factor


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sigma", [0.02, 0.5, 5.0])
@pytest.mark.parametrize("name", OTHERS)
def test_moments_of_other_norms_over_few_components_are_exact(rule, sigma, name):
    net, event, groups, eps = OTHERS[name]
    mean, factor = inputs(event, sigma)
    covariance = factor @ factor.mT
    if rule == "marginal_moment_matching":
        covariance = covariance.diagonal().diag()
        x = sr.DiagonalGaussian(mean, covariance.diagonal().reshape(mean.shape))
    else:
        x = sr.Gaussian(mean, covariance.unsqueeze(0))
    y = sr.propagate(net.double(), x, rule)
    for group in groups:
        weights = torch.zeros(len(covariance)).double()
        weights[list(group)] = torch.tensor([0.5, -0.5] if len(group) == 2 else [1.0]).double()
        number = float(weights @ mean.flatten())
        deviation = float(weights @ covariance @ weights) ** 0.5
        expected, variance = moments(direction(eps), number, deviation, steps(eps))
        signs = np.array([1.0, -1.0])[: len(group)]
        assert y.mean.flatten()[list(group)].tolist() == pytest.approx(signs * expected, abs=1e-8)
        assert y.variance.flatten()[list(group)].tolist() == pytest.approx(
            [variance] * len(group), rel=1e-6, abs=1e-30
        )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sigma", [0.1, 1.0, 8.0])
def test_softmax_of_two_classes_is_a_sigmoid(rule, sigma):
    mean, factor = inputs((2, 3), sigma)
    x = sr.Gaussian(mean, (factor @ factor.mT).unsqueeze(0))
    if rule == "marginal_moment_matching":
        x = sr.DiagonalGaussian(mean, x.variance)
    y = sr.propagate(nn.Softmax(1), x, rule)
    for k in range(3):
        weights = torch.zeros(2, 3).double()
        weights[:, k] = torch.tensor([1.0, -1.0])
        flat = weights.flatten()
        number = float(flat @ mean.flatten())
        deviation = float(flat @ x.covariance[0] @ flat) ** 0.5
        expected, variance = moments(lambda t: 1 / (1 + np.exp(-t)), number, deviation)
        assert y.mean[0, :, k].tolist() == pytest.approx([expected, 1 - expected], abs=1e-10)
        assert y.variance[0, :, k].tolist() == pytest.approx([variance] * 2, rel=1e-8)


@pytest.mark.parametrize("rule", ["moment_matching", "dvia"])
def test_covariances_between_signs_follow_the_arcsine_law(rule):
    """Cov(sign X, sign Y) = 2 / pi arcsin(rho) for centred X and Y (Sheppard 1899)."""
    rho = torch.tensor([[1.0, 0.6, -0.9], [0.6, 1.0, -0.2], [-0.9, -0.2, 1.0]], dtype=torch.float64)
    x = sr.Gaussian(torch.zeros(1, 3, 1).double(), rho.unsqueeze(0))
    y = sr.propagate(nn.RMSNorm(1, eps=1e-16).double(), x, rule)
    assert torch.allclose(y.covariance[0], 2 / math.pi * torch.asin(rho), atol=1e-6)


@pytest.mark.parametrize("rule", ["moment_matching", "dvia"])
def test_covariances_between_pairs_and_with_a_shortcut_agree_with_samples(rule):
    """In 10^6 samples with their standard errors; the input is read again after the norm."""

    class Shortcut(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.GroupNorm(2, 4, eps=0.05)

        def forward(self, x):
            return torch.cat([x, self.norm(x)], 1)

    net = Shortcut().double()
    mean, factor = inputs((4,), 1.0)
    samples = mean + torch.randn(10**6, 4, generator=torch.Generator().manual_seed(1)).double() @ factor.mT
    with torch.no_grad():
        outputs = net(samples)
    y = sr.propagate(net, sr.Gaussian(mean, (factor @ factor.mT).unsqueeze(0)), rule)
    centred = outputs - y.mean
    products = centred.unsqueeze(1) * centred.unsqueeze(2)
    error = products.std(0) / 1000
    assert bool(((products.mean(0) - y.covariance[0]).abs() < 4.5 * error).all())


@pytest.mark.parametrize("rule", RULES)
def test_the_components_of_a_pair_stay_opposite(rule):
    """Also with factors of low rank: their linear part has the exact variance."""
    x = sr.DiagonalGaussian(torch.tensor([[0.3, -0.2]]).double(), torch.full((1, 2), 0.2).double())
    net = nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 1, bias=False)).double()
    net[1].weight.data = torch.ones(1, 2).double()
    variance = float(sr.propagate(net, x, rule).variance.detach())
    if rule == "marginal_moment_matching":
        assert variance > 0.1  # it drops the correlation
    else:
        assert variance == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("net", [nn.LayerNorm(2), nn.RMSNorm(1, eps=1e-3), nn.Softmax(-1)])
def test_gradients_are_those_of_differences(rule, net):
    width = 1 if isinstance(net, nn.RMSNorm) else 2
    mean = torch.linspace(-0.6, 0.8, 2 * width).reshape(1, 2, width).double()

    def predicted(mean, variance):
        y = sr.propagate(net.double(), sr.DiagonalGaussian(mean, variance), rule)
        return y.mean, y.variance

    variance = torch.full_like(mean, 0.3)
    given = mean.requires_grad_(), variance.requires_grad_()
    assert torch.autograd.gradcheck(predicted, given, eps=1e-5, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("rule", RULES)
def test_norms_of_point_masses_and_of_single_components_have_no_variance(rule):
    x = sr.DiagonalGaussian(torch.tensor([[1.0, -2.0]]).double(), torch.zeros(1, 2).double())
    y = sr.propagate(nn.LayerNorm(2).double(), x, rule)
    assert torch.allclose(y.mean, nn.LayerNorm(2).double()(x.mean))
    assert float(y.variance.detach().abs().max()) == 0
    one = sr.DiagonalGaussian(torch.ones(1, 3, 1).double(), torch.ones(1, 3, 1).double())
    y = sr.propagate(nn.LayerNorm(1).double(), one, rule)
    assert float(y.mean.detach().abs().max()) == 0
    assert float(y.variance.detach().abs().max()) == 0


@pytest.mark.parametrize("rule", RULES)
def test_each_input_of_a_batch_has_its_own_moments(rule):
    mean = torch.tensor([[1.0, -2.0], [0.0, 0.0], [300.0, 299.0]]).double()
    x = sr.DiagonalGaussian(mean, torch.tensor([[0.1, 0.2], [1.0, 0.0], [1e-6, 1e4]]).double())
    together = sr.propagate(nn.LayerNorm(2).double(), x, rule)
    for row in range(3):
        alone = sr.DiagonalGaussian(mean[row : row + 1], x.variance[row : row + 1])
        y = sr.propagate(nn.LayerNorm(2).double(), alone, rule)
        assert torch.allclose(together.mean[row], y.mean[0], rtol=1e-9)
        assert torch.allclose(together.variance[row], y.variance[0], rtol=1e-9)
