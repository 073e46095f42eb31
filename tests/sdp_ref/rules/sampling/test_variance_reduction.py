import math

import pytest
import torch
from torch import nn

import sdp_ref as sr
from tests.sdp_ref.common import gaussian

SAMPLERS = ("mc", "antithetic", "whitened", "sobol", "lattice", "whitened_sobol")
BOTH = ("jacobian", "regression")
SEEDS = 400


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).double()


def estimates(rule, net, x, **parameters):
    """Means and covariances of many estimates of one law, shapes (SEEDS, 2) and (SEEDS, 2, 2)."""
    laws = sr.rule(rule, seed=tuple(range(SEEDS)), **parameters)
    repeated = type(x)(*(v.expand(SEEDS, *v.shape[1:]).contiguous() for v in (x.mean, x.covariance)))
    with torch.no_grad():
        found = laws.propagate(net, repeated)
    return found.mean, found.covariance


def exact(net, x):
    with torch.no_grad():
        law = sr.rule("cubature", degree=31, scheme="tensor").propagate(net, x)
    return law.mean[0], law.covariance[0]


def bias(estimates, truth):
    """In standard errors, the largest of all entries."""
    error = estimates.std(0) / SEEDS**0.5
    return ((estimates.mean(0) - truth) / error).abs().max().item()


@pytest.mark.parametrize("rule", ["monte_carlo", "control_variate"])
@pytest.mark.parametrize("sampler", ["mc", "antithetic", "sobol", "lattice"])
def test_means_are_unbiased_and_so_are_covariances_of_draws(net, rule, sampler):
    x, points = gaussian(1, 3), sampler in ("sobol", "lattice")
    mean, covariance = exact(net, x)
    options = {"coefficient": "jacobian"} if rule == "control_variate" else {}
    means, covariances = estimates(rule, net, x, samples=16 if points else 8, sampler=sampler, **options)
    assert bias(means, mean) < 4
    assert points or bias(covariances, covariance) < 4


@pytest.mark.parametrize("sampler", [each for each in SAMPLERS if each != "mc"])
def test_every_sampler_is_steadier_than_independent_draws(net, sampler):
    x = gaussian(1, 3)
    spread = {
        s: estimates("monte_carlo", net, x, samples=32, sampler=s)[0].var(0).sum() for s in ("mc", sampler)
    }
    assert spread[sampler] < 0.3 * spread["mc"]


@pytest.mark.parametrize("coefficient", BOTH)
def test_little_noise_leaves_little_to_sample(net, coefficient):
    """The rest is of second order: a tenth of the noise is a tenth of the relative spread."""
    wide = gaussian(1, 3)
    shares = []
    for scale in (1.0, 0.1):
        x = sr.Gaussian(wide.mean, wide.covariance * scale**2)
        plain = estimates("monte_carlo", net, x, samples=32)[0].std(0).norm()
        controlled = estimates("control_variate", net, x, samples=32, coefficient=coefficient)
        steady = controlled[0].std(0).norm()
        shares.append(steady / plain)
    assert shares[1] < 0.15 * shares[0] < 0.15


def test_regression_gives_a_covariance_and_the_jacobian_may_not(net):
    x = gaussian(1, 3)
    _, regressed = estimates("control_variate", net, x, samples=6, coefficient="regression")
    assert (torch.linalg.eigvalsh(regressed) > 0).all()
    wide = sr.Gaussian(x.mean, 100 * x.covariance)
    _, linear = estimates("control_variate", net, wide, samples=3, coefficient="jacobian")
    assert (torch.linalg.eigvalsh(linear)[:, 0] < 0).any()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("monte_carlo:sampler=whitened,samples=3", "3 whitened draws of 3 inputs"),
        ("monte_carlo:sampler=whitened_sobol,samples=4", "4 whitened pairs of 3 inputs"),
        ("control_variate:coefficient=regression,samples=4", "4 samples on 3 inputs"),
    ],
)
def test_too_few_samples_for_the_input_are_refused(net, rule, message):
    with pytest.raises(sr.UnsupportedError, match=message):
        sr.propagate(net, gaussian(1, 3), rule)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("inputs", [2, 4])
def test_few_points_that_are_nearly_collinear_give_no_steep_slopes(sampler, inputs):
    """The fewest samples that a regression takes give a smaller error than plain samples."""
    samples = (inputs + 2) * (2 if sampler in ("antithetic", "whitened_sobol") else 1)
    x = sr.DiagonalGaussian(torch.zeros(250, inputs).double(), torch.ones(250, inputs).double())
    options = {"samples": samples, "sampler": sampler, "seed": tuple(range(250))}
    variances = sr.propagate(torch.relu, x, sr.rule("control_variate", **options)).variance
    plain = sr.propagate(torch.relu, x, sr.rule("monte_carlo", **options)).variance
    truth = 0.5 - 0.5 / math.pi
    assert variances.max() < 7 * truth
    assert (variances - truth).square().mean() < 1.01 * (plain - truth).square().mean()


class Polynomial(nn.Module):
    """A cubic polynomial of all inputs."""

    def forward(self, x):
        total = x.sum(1, keepdim=True)
        return torch.cat([total**3 - x[:, :1] * x[:, 1:2] + 2, total**2 * x[:, 2:3]], 1)


def test_whitened_pairs_are_exact_for_means_of_cubic_polynomials():
    x = gaussian(1, 3)
    rule = sr.rule("monte_carlo", samples=16, sampler="whitened_sobol")
    assert torch.allclose(rule.propagate(Polynomial(), x).mean[0], exact(Polynomial(), x)[0], rtol=1e-10)
    with pytest.raises(ValueError, match="even number"):
        sr.rule("monte_carlo", samples=17, sampler="whitened_sobol")


@pytest.mark.parametrize("sampler", ["whitened", "whitened_sobol"])
@pytest.mark.parametrize("coefficient", BOTH)
def test_a_control_variate_leaves_the_means_of_whitened_samples(net, sampler, coefficient):
    """Their mean and covariance are those of the input, so a linear function has its exact mean."""
    x = gaussian(1, 3)
    plain, _ = estimates("monte_carlo", net, x, samples=16, sampler=sampler)
    controlled, _ = estimates("control_variate", net, x, samples=16, sampler=sampler, coefficient=coefficient)
    assert torch.allclose(plain, controlled, rtol=1e-10)


def test_whitened_pairs_are_steadier_than_pairs_and_than_whitened_samples(net):
    x = gaussian(1, 3)
    spread = {
        s: float(estimates("monte_carlo", net, x, samples=64, sampler=s)[0].var(0).sum()) for s in SAMPLERS
    }
    assert spread["whitened_sobol"] < 0.5 * min(spread["antithetic"], spread["whitened"])
