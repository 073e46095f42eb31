import functools
import math

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.optimize import brentq
from torch import nn

import sdp_ref as sr
from sdp_bench import oracles
from sdp_bench.oracles.exact.stable import CAUCHY, NORMAL, fourier_integrals, stable
from sdp_bench.oracles.partitions.quantiles import LEVELS, Quantiles
from sdp_ref.laws import SymmetricStable

ALPHAS = (0.5, 0.8, 1.2, 1.5, 1.8, 1.95)


def slow_but(fast):
    return [alpha if alpha in fast else pytest.param(alpha, marks=pytest.mark.slow) for alpha in ALPHAS]


def zolotarev(x, alpha):
    """Density and survival by Nolan's real integrals (1997, theorem 1), not by a Fourier inversion."""
    with mp.workdps(25):
        x, alpha = mp.mpf(x), mp.mpf(alpha)
        power = alpha / (alpha - 1)

        def v(t):
            return (mp.cos(t) / mp.sin(alpha * t)) ** power * mp.cos((alpha - 1) * t) / mp.cos(t)

        def exponent(t):
            return x**power * v(t)

        # The integrands turn where the exponent, monotone in t, is 1: cut there and about it.
        first, last = mp.mpf("1e-18"), mp.pi / 2 - mp.mpf("1e-18")
        low, high = first, last
        rising = exponent(high) > exponent(low)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if (exponent(middle) < 1) == rising else (low, middle)
        turn = (low + high) / 2
        steps = [mp.mpf(2) ** k for k in range(-8, 9)]
        cuts = [turn * step for step in steps]
        if 2 * turn > mp.pi / 2:
            cuts = [mp.pi / 2 - (mp.pi / 2 - turn) * step for step in steps]
        cuts = [first, *sorted(cut for cut in cuts if first < cut < last), last]
        density = mp.quad(lambda t: v(t) * mp.exp(-exponent(t)), cuts)
        density *= alpha * x ** (1 / (alpha - 1)) / (mp.pi * abs(alpha - 1))
        integral = mp.quad(lambda t: mp.exp(-exponent(t)), cuts) / mp.pi
        survival = integral if alpha > 1 else mp.mpf(1) / 2 - integral
        return float(density), float(survival)


@pytest.mark.parametrize("alpha", slow_but((0.5, 1.8)))
def test_density_and_survival_equal_zolotarevs_integrals(alpha):
    law = stable(alpha)
    x = np.array([0.02, 2.5, 1e3])
    expected = np.array([zolotarev(each, alpha) for each in x])
    np.testing.assert_allclose(law.density(x), expected[:, 0], rtol=1e-10)
    np.testing.assert_allclose(law.survival(x), expected[:, 1], rtol=1e-10)


def test_fourier_integrals_give_cauchys_law_and_the_normal_one():
    x = np.concatenate([np.linspace(0, 6, 50), [1e3, 1e8]])
    density, survival = fourier_integrals(x, 1.0)
    np.testing.assert_allclose(density, CAUCHY.density(x), rtol=1e-12)
    np.testing.assert_allclose(survival, CAUCHY.survival(x), rtol=1e-12)
    x = x[:50]
    density, survival = fourier_integrals(x, 2.0)
    np.testing.assert_allclose(density, stats.norm.pdf(x, scale=math.sqrt(2)), atol=1e-14)
    np.testing.assert_allclose(survival, stats.norm.sf(x, scale=math.sqrt(2)), atol=1e-14)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_interpolated_values_equal_fourier_integrals_between_the_knots(alpha):
    x = np.sinh(np.random.default_rng(0).uniform(0, 50, 400))
    law = stable(alpha)
    density, survival = fourier_integrals(x, alpha)
    np.testing.assert_allclose(law.density(x), density, rtol=2e-11)
    np.testing.assert_allclose(law.survival(x), survival, rtol=2e-11)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_peak_and_tail_have_their_closed_forms(alpha):
    law = stable(alpha)
    peak = math.gamma(1 + 1 / alpha) / math.pi
    assert law.density(np.array([0.0]))[0] == pytest.approx(peak, rel=1e-11)
    small = 1e-3 * law.width
    curved = 1 - law.density(np.array([small]))[0] / peak
    assert curved == pytest.approx(0.5e-6, rel=1e-3)
    far = np.array([1e30])  # beyond the last knot
    tail = math.gamma(alpha) * math.sin(math.pi * alpha / 2) / math.pi * far**-alpha
    np.testing.assert_allclose(law.survival(far), tail, rtol=1e-10)
    np.testing.assert_allclose(law.density(far), alpha * tail / far, rtol=1e-10)


@pytest.mark.parametrize("law", [NORMAL, CAUCHY, stable(0.8), stable(1.8)], ids=lambda law: f"{law.alpha}")
def test_survival_is_the_integral_of_the_density(law):
    for low, high in ((-2.0, 0.5), (0.0, 1.0), (3.0, 8.0)):
        mass, _ = integrate.quad(lambda x: float(law.density(np.array(x))), low, high, epsabs=1e-13)
        difference = law.survival(np.array(low)) - law.survival(np.array(high))
        assert difference == pytest.approx(mass, abs=1e-12)


def test_alpha_of_one_is_cauchys():
    assert stable(1) is CAUCHY


@pytest.mark.parametrize("alpha", [0.3, 1.99, 2.0, 3.0, math.nan])
def test_alpha_out_of_range_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha must be from"):
        stable(alpha)


SAMPLES = 200_000
RULES = ("sdp", "marginal_sdp")


def linear(inputs, outputs, seed=0):
    torch.manual_seed(seed)
    return nn.Linear(inputs, outputs).double().requires_grad_(False)


@functools.cache
def standard(alpha):
    """Quantiles of the law with index alpha at all levels, and its densities there."""
    if alpha in (1, 2):
        law = stats.cauchy() if alpha == 1 else stats.norm(scale=math.sqrt(2))
        return law.ppf(LEVELS), law.pdf(law.ppf(LEVELS))
    law = stable(alpha)

    def quantile(level):
        return brentq(lambda x: float(law.survival(np.array(-x))) - level, -50, 50)  # the law is symmetric

    x = np.array([quantile(level) for level in LEVELS])
    return x, law.density(x)


def inputs(alpha):
    location = torch.tensor([[0.3, -1.2, 0.8, 2.0]], dtype=torch.float64)
    scale = torch.tensor([[0.5, 2.0, 0.1, 1.0]], dtype=torch.float64)
    return SymmetricStable(location, scale, alpha)


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
    full = sr.propagate(net, x, "sdp")
    marginal = sr.propagate(net, x, "marginal_sdp")
    assert np.abs(deviations(net, x, full.location, full.scale, alpha)).max() < 4.5
    off = deviations(net, x, marginal.location, marginal.scale, alpha)
    assert np.abs(off).max(0).min() > 10
    if alpha == 1:  # by the triangle inequality; for alpha over 1, as for Gaussians, either may be wider
        assert (marginal.scale > full.scale).all()
