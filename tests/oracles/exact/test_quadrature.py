import dataclasses
import itertools
import math

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, special

from sdp_bench.oracles.exact.quadrature import Mixed, Piece, exact_total_variation, exact_wasserstein
from sdp_bench.oracles.exact.stable import CAUCHY, NORMAL, stable
from sdp_bench.oracles.exact.theorem import Candidate, check_theorem
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, SymmetricStable, unchecked

EXACT = 1e-10


def normal(location, scale):
    return Mixed.location_scale(NORMAL, location, scale)


def cauchy(location, scale):
    return Mixed.location_scale(CAUCHY, location, scale)


def phi(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def moment_matched(mean, sigma):
    """Law of moment matching: mean and variance of ReLU(N(mean, sigma^2)), in closed form."""
    with mp.workdps(40):
        r = mp.mpf(mean) / mp.mpf(sigma)
        density, below = mp.npdf(r), mp.ncdf(-r)
        first = density + r * (1 - below)
        variance = (r * r + 1) * (1 - below) + r * density - first**2
        return float(sigma * first), float(sigma * mp.sqrt(variance))


# Total variation


@pytest.mark.parametrize("shift", [0.0, 1e-3, 0.5, 2.0, 30.0, 76.0, 1e6])
def test_the_tv_of_shifted_normal_and_cauchy_laws_has_a_closed_form(shift):
    assert exact_total_variation(normal(1.0, 2.0), normal(1.0 + 2 * shift, 2.0)) == pytest.approx(
        math.erf(shift / 2 / math.sqrt(2)), abs=EXACT
    )
    assert exact_total_variation(cauchy(0.0, 2.0), cauchy(2 * shift, 2.0)) == pytest.approx(
        2 / math.pi * math.atan(shift / 2), abs=EXACT
    )
    law = stable(1.5)
    expected = 1 - 2 * float(law.survival(np.array(shift / 2)))
    assert exact_total_variation(
        Mixed.location_scale(law, 0.0, 1.0), Mixed.location_scale(law, shift, 1.0)
    ) == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("ratio", [1.0001, 1.5, 10.0, 1e6])
def test_the_tv_of_scaled_laws_follows_from_where_their_densities_cross(ratio):
    """They cross at +- c: equal log densities give c in closed form."""
    c = ratio * math.sqrt(2 * math.log(ratio) / (ratio**2 - 1))
    expected = special.erf(c / math.sqrt(2)) - special.erf(c / ratio / math.sqrt(2))
    assert exact_total_variation(normal(3.0, 1.0), normal(3.0, ratio)) == pytest.approx(expected, abs=EXACT)
    c = math.sqrt(ratio)
    expected = 2 / math.pi * (math.atan(c) - math.atan(c / ratio))
    assert exact_total_variation(cauchy(3.0, 1.0), cauchy(3.0, ratio)) == pytest.approx(expected, abs=EXACT)


@given(r=st.floats(-8, 8), sigma=st.floats(1e-3, 1e3))
@settings(max_examples=60, deadline=None)
def test_the_tv_of_relu_to_its_input_is_the_mass_below_zero(r, sigma):
    """The first misses the atom alone, the second all but the atom."""
    for law in (NORMAL, CAUCHY, stable(0.8)):
        x = Mixed.location_scale(law, r * sigma, sigma)
        below = float(law.survival(np.array(r)))
        assert exact_total_variation(x.relu(), x) == pytest.approx(below, abs=EXACT)
        assert exact_total_variation(x.relu(), Mixed.point(0.0)) == pytest.approx(1 - below, abs=EXACT)
        assert exact_total_variation(x.relu(), Mixed.point(sigma)) == pytest.approx(1, abs=EXACT)


def test_relu_of_a_standard_normal_has_tv_one_half_to_its_input():
    """TV is 0.500 for SDP and for the point mass, 0.5377 for moment matching."""
    truth = normal(0.0, 1.0).relu()
    assert exact_total_variation(truth, normal(0.0, 1.0)) == pytest.approx(0.5, abs=EXACT)
    assert exact_total_variation(truth, Mixed.point(0.0)) == pytest.approx(0.5, abs=EXACT)
    mean, sd = moment_matched(0.0, 1.0)
    assert exact_total_variation(truth, normal(mean, sd)) == pytest.approx(0.5377, abs=5e-5)


@pytest.mark.parametrize("r", [-3.0, -0.7, 0.0, 0.4, 2.5, 6.0])
def test_the_tv_of_moment_matching_equals_integrals_by_mpmath(r):
    """TV = p0 + integral of (p - q)+ over x > 0, with the crossings from the quadratic equation."""
    mean, sd = moment_matched(r, 1.0)
    with mp.workdps(30):
        m, s = mp.mpf(mean), mp.mpf(sd)
        a, b = 1 / s**2 - 1, -2 * (m / s**2 - r)
        c = m**2 / s**2 - mp.mpf(r) ** 2 + 2 * mp.log(s)
        roots = [(-b + sign * mp.sqrt(b * b - 4 * a * c)) / (2 * a) for sign in (-1, 1)]
        cuts = [mp.mpf(0), *sorted(root for root in roots if root > 0), mp.mpf(60)]
        gains = [
            mp.ncdf(high, r, 1) - mp.ncdf(low, r, 1) - mp.ncdf(high, m, s) + mp.ncdf(low, m, s)
            for low, high in itertools.pairwise(cuts)
        ]
        expected = float(mp.ncdf(-r) + sum(max(gain, 0) for gain in gains))
    assert exact_total_variation(normal(r, 1).relu(), normal(mean, sd)) == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("alpha", [0.8, 1.8])
def test_tv_of_stable_laws_against_plain_quadrature(alpha):
    law = stable(alpha)
    truth = Mixed.location_scale(law, 0.5, 1.0).relu()
    other = Mixed.location_scale(law, 0.9, 0.7)

    def difference(x):
        return float(truth.density(np.array(x)) - other.density(np.array(x)))

    points = np.linspace(1e-9, 6, 401)
    signs = np.sign([difference(x) for x in points])
    crossings = [
        optimize.brentq(difference, points[i], points[i + 1], xtol=1e-14)
        for i in np.flatnonzero(signs[:-1] != signs[1:])
    ]
    assert len(crossings) == 2
    inside = sum(
        abs(integrate.quad(difference, low, high, epsabs=1e-13)[0])
        for low, high in itertools.pairwise([0.0, *crossings, 6.0])
    )
    # Beyond 6 the density of the narrower law is smaller; on x < 0 only that law has mass.
    beyond = float(law.survival(np.array(5.5)) - law.survival(np.array(5.1 / 0.7)))
    below = float(law.survival(np.array(0.9 / 0.7)))
    expected = (truth.atom(0.0) + inside + beyond + below) / 2
    assert exact_total_variation(truth, other) == pytest.approx(expected, abs=EXACT)


# W1


def test_w1_of_point_masses_is_their_distance():
    assert exact_wasserstein(Mixed.point(-1.0), Mixed.point(2.5)) == pytest.approx(3.5, abs=1e-14)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.8])
def test_w1_of_a_centred_stable_law_to_its_relu_is_half_its_mean_size(alpha):
    """Half of E|X|, which is 2 Γ(1 − 1/α) / π."""
    x = Mixed.location_scale(stable(alpha), 0.0, 1.0)
    expected = math.gamma(1 - 1 / alpha) / math.pi
    assert exact_wasserstein(x.relu(), x) == pytest.approx(expected, rel=EXACT)


@pytest.mark.parametrize("shift", [0.0, 1e-3, 0.5, 30.0, 1e4])
def test_w1_of_shifted_laws_is_the_shift(shift):
    for law in (NORMAL, CAUCHY, stable(0.8), stable(1.2), stable(1.8)):
        a, b = Mixed.location_scale(law, 1.0, 2.0), Mixed.location_scale(law, 1.0 + shift, 2.0)
        assert exact_wasserstein(a, b) == pytest.approx(shift, abs=EXACT)


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.001, 30.0])
def test_w1_of_scaled_laws_is_their_mean_size_times_the_difference(scale):
    assert exact_wasserstein(normal(1.0, 1.0), normal(1.0, scale)) == pytest.approx(
        abs(scale - 1) * math.sqrt(2 / math.pi), abs=EXACT
    )
    for alpha in (1.2, 1.5, 1.8):
        law = stable(alpha)
        expected = abs(scale - 1) * 2 * math.gamma(1 - 1 / alpha) / math.pi
        assert exact_wasserstein(
            Mixed.location_scale(law, 1.0, 1.0), Mixed.location_scale(law, 1.0, scale)
        ) == pytest.approx(expected, rel=EXACT)


@given(r=st.floats(-6, 6), sigma=st.floats(1e-3, 1e3))
@settings(max_examples=60, deadline=None)
def test_w1_of_sdp_is_the_mean_of_what_relu_moves(r, sigma):
    predicted = normal(r * sigma, sigma) if r >= 0 else Mixed.point(0.0)
    expected = sigma * (phi(r) - abs(r) * special.ndtr(-abs(r)))
    assert exact_wasserstein(normal(r * sigma, sigma).relu(), predicted) == pytest.approx(
        expected, abs=EXACT * sigma
    )


@pytest.mark.parametrize("mean", [-0.4, -0.1, -0.01, 0.0, 0.03, 0.1, 0.5])
def test_the_w1_of_moment_matching_has_a_closed_form(mean):
    """On x < 0 the cdf of the prediction; beyond, cdfs that cross once, by their antiderivatives."""
    sigma = 0.1
    m, s = moment_matched(mean, sigma)

    def below(x, location, scale):  # integral of the normal cdf up to x
        z = (x - location) / scale
        return scale * (z * special.ndtr(z) + phi(z))

    crossing = max((mean * s - m * sigma) / (s - sigma), 0.0)
    far = max(mean, m) + 40 * sigma
    gain = [below(x, mean, sigma) - below(x, m, s) for x in (0.0, crossing, far)]
    expected = below(0.0, m, s) + abs(gain[1] - gain[0]) + abs(gain[2] - gain[1])
    assert exact_wasserstein(normal(mean, sigma).relu(), normal(m, s)) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("slope", [0.0, 0.1, 0.7])
def test_the_w1_of_leaky_relu_is_the_mean_difference_of_quantiles(slope):
    """W1 is the integral of abs(F^-1 - G^-1), and the map is monotone."""
    mean, m, s = 0.3, 0.6, 0.8

    def gap(z):  # u = cdf(z)
        x = mean + z
        return abs((x if x > 0 else slope * x) - (m + s * z)) * phi(z)

    kinks = [-mean, (m - mean) / (1 - s), (m - slope * mean) / (slope - s)]
    expected, _ = integrate.quad(gap, -12, 12, points=kinks, epsabs=1e-13, limit=200)
    w1 = exact_wasserstein(normal(mean, 1.0).leaky_relu(slope), normal(m, s))
    assert w1 == pytest.approx(expected, abs=EXACT)


def test_infinite_w1_is_refused():
    """ReLU takes the left tail away; nothing without it is at a finite distance from what has it."""
    x = cauchy(1.0, 1.0)
    with pytest.raises(ValueError, match="left tails"):
        exact_wasserstein(x.relu(), x)
    with pytest.raises(ValueError, match="right tails"):
        exact_wasserstein(x.relu(), Mixed.point(0.0))
    with pytest.raises(ValueError, match="right tails"):
        exact_wasserstein(x.relu(), cauchy(1.0, 2.0).relu())
    with pytest.raises(ValueError, match=r"alpha of 1\.05"):
        exact_wasserstein(Mixed.location_scale(stable(1.03), 0.0, 1.0), Mixed.point(0.0))
    with pytest.raises(ValueError, match="left tails"):
        exact_wasserstein(Mixed.location_scale(stable(0.8), 0.0, 1.0), normal(0.0, 1.0))


def test_w1_without_means_can_be_finite():
    """Cauchy tails that agree cancel: here the integral of P(X > x) from -1 to 0."""
    expected = 0.5 + 0.25 - math.log(2) / (2 * math.pi)
    assert exact_wasserstein(cauchy(0, 1).relu(), cauchy(1, 1).relu()) == pytest.approx(expected, abs=EXACT)


# Properties of both

laws = st.builds(
    lambda law, location, scale, slope: (
        Mixed.location_scale(law, location, scale)
        if slope is None
        else Mixed.location_scale(law, location, scale).leaky_relu(slope)
    ),
    st.sampled_from([NORMAL, stable(1.5)]),
    st.floats(-3, 3),
    st.sampled_from([0.0, 0.1, 0.9, 1.0, 4.0]),
    st.sampled_from([None, 0.0, 0.2]),
)


@given(p=laws, q=laws, r=laws)
@settings(max_examples=60, deadline=None)
def test_both_are_metrics(p, q, r):
    for distance in (exact_total_variation, exact_wasserstein):
        assert distance(p, p) == 0
        assert distance(p, q) == pytest.approx(distance(q, p), abs=EXACT)
        assert distance(p, q) >= 0
        assert distance(p, r) <= distance(p, q) + distance(q, r) + EXACT
    assert exact_total_variation(p, q) <= 1


@given(m=st.floats(-3, 3), s=st.floats(0.1, 5), unit=st.sampled_from([1e-6, 0.3, 1e6]))
@settings(max_examples=40, deadline=None)
def test_a_change_of_units_scales_w1_and_leaves_tv_as_it_is(m, s, unit):
    p, q = normal(0.4, 1.0).relu(), normal(m, s)
    p_scaled, q_scaled = normal(0.4 * unit, unit).relu(), normal(m * unit, s * unit)
    assert exact_total_variation(p_scaled, q_scaled) == pytest.approx(exact_total_variation(p, q), abs=EXACT)
    assert exact_wasserstein(p_scaled, q_scaled) == pytest.approx(unit * exact_wasserstein(p, q), rel=1e-9)


@given(m=st.floats(-3, 3), s=st.floats(0.1, 5))
@settings(max_examples=20, deadline=None)
def test_relu_increases_no_distance(m, s):
    p, q = normal(0.4, 1.0), normal(m, s)
    for distance in (exact_total_variation, exact_wasserstein):
        assert distance(p.relu(), q.relu()) <= distance(p, q) + EXACT


# Measures


def test_images_of_point_masses():
    assert Mixed.point(2.0).relu() == Mixed.point(2.0)
    assert Mixed.point(-2.0).relu() == Mixed.point(0.0)
    assert Mixed.point(-2.0).leaky_relu(0.5) == Mixed.point(-1.0)
    assert normal(-1.0, 0.0).relu() == Mixed.point(0.0)


def test_relu_is_idempotent():
    image = normal(0.3, 1.0).relu()
    assert image.relu() == image


@pytest.mark.parametrize("slope", [0.0, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("location", [-50.0, -0.6, 0.0, 0.9, 50.0])
def test_image_under_leaky_relu_has_the_cdf_of_the_image(location, slope):
    x = normal(location, 1.0)
    image = x.leaky_relu(slope)
    y = np.linspace(-2, 2, 41)
    inverse = np.where(y >= 0, y, y / slope if slope else -np.inf)
    np.testing.assert_allclose(image.cdf(y), special.ndtr(inverse - location), atol=1e-14)
    assert sum(mass for _, mass in image.atoms) + float(
        image.mass(np.array(-np.inf), np.array(np.inf))
    ) == pytest.approx(1, abs=1e-14)


def test_laws_become_measures():
    one, two = torch.tensor([[1.0]]), torch.tensor([[2.0]])
    assert Mixed.of(Gaussian(one, torch.tensor([[[4.0]]]))) == normal(1.0, 2.0)
    assert Mixed.of(DiagonalGaussian(one, torch.tensor([[4.0]]))) == normal(1.0, 2.0)
    assert Mixed.of(DiagonalGaussian(one, torch.tensor([[0.0]]))) == Mixed.point(1.0)
    assert Mixed.of(Cauchy(one, two)) == cauchy(1.0, 2.0)
    assert Mixed.of(SymmetricStable(one, two, 1.0)) == cauchy(1.0, 2.0)
    assert Mixed.of(SymmetricStable(one, two, 2.0)) == normal(1.0, 2.0 * math.sqrt(2))
    assert Mixed.of(SymmetricStable(one, two, 1.5)) == Mixed(pieces=(Piece(stable(1.5), 1.0, 2.0),))


def test_a_law_without_an_exact_measure_is_refused():
    pair = torch.zeros(1, 2)
    with pytest.raises(ValueError, match="one law on the line, got 1 of dimension 2"):
        Mixed.of(DiagonalGaussian(pair, pair + 1))
    with pytest.raises(ValueError, match="one law on the line, got 2 of dimension 1"):
        Mixed.of(DiagonalGaussian(pair.T, pair.T + 1))
    with pytest.raises(ValueError, match="variance must be >= 0"):
        Mixed.of(unchecked(DiagonalGaussian, pair[:, :1], pair[:, :1] - 1))
    with pytest.raises(ValueError, match="scale must be"):
        normal(0.0, -1.0)
    with pytest.raises(ValueError, match="scale must be"):
        normal(0.0, math.inf)
    with pytest.raises(ValueError, match="location must be finite"):
        normal(math.nan, 1.0)
    with pytest.raises(ValueError, match="negative_slope"):
        normal(0.0, 1.0).leaky_relu(-0.1)


def agrees(check):
    """The verdict, the bounds of the proof, and a search that comes near the bound it cannot pass."""
    assert check.verdict == ("tie" if check.ratio == 0 else "holds")
    assert check.theorem.tv == pytest.approx(min(check.atom, 1 - check.atom), abs=1e-10)
    assert check.point.tv == pytest.approx(1 - check.atom, abs=1e-10)
    assert (check.point.location, check.point.scale) == (0.0, 0.0)
    assert check.atom - 1e-10 <= check.density.tv <= check.atom + 1e-8
    assert check.gap >= -1e-10


@pytest.mark.parametrize("family", [NORMAL, CAUCHY, stable(1.5)], ids=lambda family: family.name)
def test_no_law_is_nearer(family):
    for check in check_theorem([family], (-1.0, 0.0, 1.0)):
        agrees(check)


@pytest.mark.parametrize("family", [CAUCHY, stable(1.2)], ids=lambda family: family.name)
def test_the_search_finds_the_law_that_the_theorem_names(family):
    (check,) = check_theorem([family], [0.8])
    assert check.density.location == pytest.approx(0.8, abs=1e-6)
    assert check.density.scale == pytest.approx(1, abs=1e-6)
    assert check.apart < 1e-6


def test_a_wrong_theorem_would_fail():
    """Had it named moment matching's law, or the point mass for a positive mean, a nearer law is found."""
    (check,) = check_theorem([NORMAL], [0.5])
    truth = Mixed.location_scale(NORMAL, 0.5, 1.0).relu()
    for location, scale in ((0.6978, 0.7439), (0.0, 0.0), (0.5, 1.001)):
        tv = exact_total_variation(truth, Mixed.location_scale(NORMAL, location, scale))
        named = Candidate(location, scale, tv)
        assert dataclasses.replace(check, theorem=named).verdict == "fails"


def test_an_input_without_a_check_is_refused():
    with pytest.raises(ValueError, match="tolerance must be at least 1e-10"):
        check_theorem(tolerance=1e-12)
    with pytest.raises(ValueError, match="ratios must be finite"):
        check_theorem(ratios=[0.0, math.nan])
