import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_bench import oracles


class Power(nn.Module):
    def __init__(self, exponent):
        super().__init__()
        self.exponent = exponent

    def forward(self, x):
        return x**self.exponent


def random_net(width, depth, activation, seed):
    """Weights with variance 2 / width, without biases."""
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for outputs in [width] * depth + [4]:
        layer = nn.Linear(width, outputs, bias=False, dtype=torch.float64)
        nn.init.normal_(layer.weight, std=(2 / width) ** 0.5, generator=generator)
        layers += [layer, activation()]
    return nn.Sequential(*layers[:-1])


def test_cubes_of_quadratic_forms_have_their_exact_mean():
    # E z^3 = m^3 + 3 m v + k3 for z = x^T Q x, with the cumulants (Mathai and Provost 1992)
    # 2^(k-1) ((k-1)! tr (Q S)^k + k! mu^T (Q S)^(k-1) Q mu)
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    mu, root, first, second = draw(3), draw(3, 3), draw(5, 3), draw(2, 5)
    net = nn.Sequential(
        nn.Linear(3, 5, bias=False), Power(2), nn.Linear(5, 2, bias=False), Power(3), nn.Identity()
    ).double()
    net[0].weight.data, net[2].weight.data = first, second
    s = root @ root.T
    expected = []
    for weights in second:
        q = first.T @ torch.diag(weights) @ first
        m = torch.trace(q @ s) + mu @ q @ mu
        v = 2 * torch.trace(q @ s @ q @ s) + 4 * mu @ q @ s @ q @ mu
        k3 = 8 * torch.trace(q @ s @ q @ s @ q @ s) + 24 * mu @ q @ s @ q @ s @ q @ mu
        expected.append(m**3 + 3 * m * v + k3)
    law = sr.propagate(net, sr.Gaussian(mu[None], s[None]), "third_cumulants")
    torch.testing.assert_close(law.mean[0], torch.stack(expected), rtol=1e-9, atol=0)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.Tanh])
def test_one_hidden_layer_has_the_moments_of_moment_matching(activation):
    net = random_net(6, 1, activation, 2)
    x = sr.DiagonalGaussian(torch.linspace(-1, 1, 12).double().view(2, 6), torch.full((2, 6), 0.5).double())
    ours = sr.propagate(net, x, "third_cumulants")
    reference = sr.propagate(net, x, "moment_matching")
    torch.testing.assert_close(ours.mean, reference.mean)
    torch.testing.assert_close(ours.covariance, reference.covariance)


@torch.no_grad()
@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
def test_wide_random_nets_have_a_smaller_error_than_with_covariances_alone(activation):
    net = random_net(40, 4, activation, 3)
    x = sr.DiagonalGaussian(torch.zeros(1, 40).double(), torch.ones(1, 40).double())
    outputs = oracles.sample_outputs(net, x, 400_000, seed=4).double()
    mean, covariance = outputs.mean(0), torch.cov(outputs.T)
    noise = float(covariance.diagonal().mean() / len(outputs))
    errors, spreads = {}, {}
    for rule in ("third_cumulants", "moment_matching"):
        law = sr.propagate(net, x, rule)
        errors[rule] = float((law.mean[0] - mean).square().mean())
        spreads[rule] = float((law.covariance[0] - covariance).norm() / covariance.norm())
    assert 3 * errors["third_cumulants"] + 10 * noise < errors["moment_matching"]
    assert 2 * spreads["third_cumulants"] + 0.02 < spreads["moment_matching"]


def test_a_layer_that_is_too_wide_is_refused_with_its_size():
    x = sr.DiagonalGaussian(torch.zeros(1, 4).double(), torch.ones(1, 4).double())
    with pytest.raises(sr.UnsupportedError, match=r"40 units: they would take 2,560,000 bytes"):
        sr.propagate(nn.Linear(4, 40).double(), x, sr.rule("third_cumulants:max_bytes=1000000"))


@torch.no_grad()
@pytest.mark.parametrize("seed", [8, 17, 33, 34])
def test_strong_skewness_gives_finite_moments_and_no_negative_variance(seed):
    torch.manual_seed(seed)
    width = 1 + seed % 6
    activation = [nn.ReLU, nn.GELU, nn.LeakyReLU, nn.Hardtanh][seed % 4]
    layers = []
    for inputs in (3, width, width, width):
        layers += [nn.Linear(inputs, width), activation()]
    net = nn.Sequential(*layers, nn.Linear(width, 2)).double()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=1.5)
    variance = torch.full((1, 3), 10.0 ** (seed % 5 * 2 - 4)).double()
    law = sr.propagate(net, sr.DiagonalGaussian(torch.zeros(1, 3).double(), variance), "third_cumulants")
    assert law.mean.isfinite().all()
    assert law.covariance.isfinite().all()
    assert (law.covariance.diagonal(dim1=1, dim2=2) >= 0).all()


def test_third_cumulants_that_underflow_leave_the_moments_of_moment_matching():
    net = random_net(4, 2, nn.ReLU, 5)
    x = sr.DiagonalGaussian(torch.zeros(1, 4).double(), torch.full((1, 4), 1e-240, dtype=torch.float64))
    ours = sr.propagate(net, x, "third_cumulants")
    reference = sr.propagate(net, x, "moment_matching")
    torch.testing.assert_close(ours.mean * 1e120, reference.mean * 1e120)
    torch.testing.assert_close(ours.covariance * 1e240, reference.covariance * 1e240)


def test_edgeworth_has_the_moments_of_third_cumulants_and_the_third_cumulants_of_quadratic_forms():
    """Third cumulants 8 tr (Q S)^3 + 24 mu^T (Q S)^2 Q mu of x^T Q x (Mathai and Provost 1992)."""
    generator = torch.Generator().manual_seed(2)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    mu, root, first, second = draw(3), draw(3, 3), draw(5, 3), draw(2, 5)
    net = nn.Sequential(nn.Linear(3, 5, bias=False), Power(2), nn.Linear(5, 2, bias=False)).double()
    net[0].weight.data, net[2].weight.data = first, second
    s = root @ root.T
    x = sr.Gaussian(mu[None], s[None])
    law, plain = sr.propagate(net, x, "edgeworth"), sr.propagate(net, x, "third_cumulants")
    assert torch.equal(law.mean, plain.mean)
    assert torch.equal(law.covariance, plain.covariance)
    for k, weights in enumerate(second):
        q = first.T @ torch.diag(weights) @ first
        expected = 8 * torch.trace(q @ s @ q @ s @ q @ s) + 24 * mu @ q @ s @ q @ s @ q @ mu
        torch.testing.assert_close(law.third[0, k, k, k], expected, rtol=1e-9, atol=0)


def test_edgeworth_classes_are_closer_to_samples_than_those_of_the_gaussian_with_the_same_moments():
    """Of six nets with 64 units and skewed outputs, on average; the errors of the samples are below 0.001."""
    x = sr.DiagonalGaussian(torch.zeros(1, 64).double(), torch.ones(1, 64).double())
    samples = x.sample(2**18, torch.Generator().manual_seed(0))[:, 0]
    errors = dict.fromkeys(("third_cumulants", "edgeworth"), 0.0)
    for seed in range(6):
        net = random_net(64, 2, nn.ReLU, seed)
        with torch.no_grad():
            classes = torch.cat([net(part).argmax(1) for part in samples.split(2**14)])
        true = torch.bincount(classes, minlength=4) / len(classes)
        for rule in errors:
            predicted = sr.propagate(net, x, rule).class_probabilities()[0][0]
            errors[rule] += float((predicted - true).abs().sum() / 2) / 6
    assert errors["edgeworth"] < 0.9 * errors["third_cumulants"]
