import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import brentq
from torch import nn

import sdp_ref as sr
from sdp_bench import oracles
from sdp_bench.oracles.exact.stable import stable
from sdp_bench.oracles.partitions.quantiles import LEVELS, Quantiles
from sdp_ref.laws import Cauchy, SymmetricStable

SAMPLES = 200_000
RULES = ("sdp", "marginal_sdp")


def linear(inputs, outputs, seed=0):
    torch.manual_seed(seed)
    return nn.Linear(inputs, outputs).double().requires_grad_(False)


def standard(alpha):
    """Quantiles of the standard law at LEVELS, and the density there."""
    if alpha in (1, 2):
        law = stats.cauchy() if alpha == 1 else stats.norm(scale=math.sqrt(2))
        return law.ppf(LEVELS), law.pdf(law.ppf(LEVELS))
    law = stable(alpha)
    x = np.array([brentq(lambda x, p=p: float(law.survival(np.array(-x))) - p, -50, 50) for p in LEVELS])
    return x, law.density(x)


def inputs(alpha, family=SymmetricStable):
    """A law of four components of different scales."""
    location = torch.tensor([[0.3, -1.2, 0.8, 2.0]], dtype=torch.float64)
    scale = torch.tensor([[0.5, 2.0, 0.1, 1.0]], dtype=torch.float64)
    return Cauchy(location, scale) if family is Cauchy else SymmetricStable(location, scale, alpha)


def deviations(net, x, location, scale, alpha):
    """By how many standard errors the sampled quantiles are off those of a stable law, (levels, m)."""
    sampled = Quantiles.from_samples(oracles.sample_outputs(net, x, SAMPLES, seed=7))
    quantiles, density = standard(alpha)
    predicted = location[0].numpy() + np.outer(quantiles, scale[0].numpy())
    errors = np.outer(np.sqrt(LEVELS * (1 - LEVELS) / SAMPLES) / density, scale[0].numpy())
    return (sampled.values - predicted) / errors


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("alpha", [0.7, 1.0, 1.5, 2.0])
def test_affine_maps_are_exact(rule, alpha):
    """Scale (|A|^alpha gamma^alpha)^(1 / alpha), whatever the signs of A."""
    net, x = linear(4, 3), inputs(alpha)
    y = sr.propagate(net, x, rule)
    assert isinstance(y, SymmetricStable)
    assert np.abs(deviations(net, x, y.location, y.scale, alpha)).max() < 4.5


@pytest.mark.parametrize("alpha", [0.7, 1.5])
def test_the_papers_formula_for_stable_laws_is_wrong(alpha):
    """SM A.2 has (|A| gamma^alpha)^(1 / alpha): no exponent on A. Sampling decides against it."""
    net, x = linear(4, 3), inputs(alpha)
    weight = net.weight
    printed = (weight.abs() @ x.scale[0].pow(alpha)).pow(1 / alpha)[None]
    location = net(x.location)
    assert np.abs(deviations(net, x, location, printed, alpha)).max(0).min() > 20


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_sdp_keeps_what_marginal_sdp_drops(alpha):
    """Two linear layers are one: SDP's scale is that of the product, marginal SDP's is not."""
    net, x = nn.Sequential(linear(4, 30), linear(30, 3, seed=1)), inputs(alpha)
    full, marginal = (sr.propagate(net, x, rule) for rule in RULES)
    assert np.abs(deviations(net, x, full.location, full.scale, alpha)).max() < 4.5
    off = deviations(net, x, marginal.location, marginal.scale, alpha)
    assert np.abs(off).max(0).min() > 10
    if alpha == 1:  # by the triangle inequality; for alpha over 1, as for Gaussians, either may be wider
        assert (marginal.scale > full.scale).all()
