import math

import numpy as np
import pytest
import torch
from scipy import linalg

from sdp_bench import oracles
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, unchecked
from tests.oracles.repeated import assert_standard_errors_are_the_spread
from tests.stand_in import StandIn

MIXING = np.array([[1.0, 0.5, -0.7], [0.0, 0.3, 0.2], [0.0, 0.0, 0.05]])
MEAN = np.array([5.0, -3.0, 2.0])
COVARIANCE = MIXING.T @ MIXING


def draw(seed, samples):
    """Heavier tails than a Gaussian's: what floors and errors must not assume away."""
    rng = np.random.default_rng(seed)
    standard = rng.standard_t(8, (samples, 3)) * np.sqrt(6 / 8)
    return standard @ MIXING + MEAN


def gaussian(mean, covariance):
    return Gaussian(torch.tensor(mean, dtype=torch.float64)[None], torch.tensor(covariance)[None])


SHIFT = np.array([0.2, 0.0, -0.1])
EXACT = gaussian(MEAN, COVARIANCE)
UNSOUND = unchecked(Gaussian, EXACT.mean * math.nan, EXACT.covariance)
WRONG = gaussian(MEAN + SHIFT, COVARIANCE * 1.5 + 0.01 * np.eye(3))
METRICS = [oracles.bures, oracles.gaussian_kl, oracles.mean_error]


def test_moments_are_numpys():
    samples = draw(1, 1000)
    moments = oracles.Moments.from_samples(torch.tensor(samples))
    np.testing.assert_allclose(moments.mean, samples.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.covariance, np.cov(samples.T, bias=True), rtol=1e-10)
    assert moments.samples == 1000


@pytest.mark.rounding
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_of_a_device_are_taken_there(dtype):
    samples = torch.tensor(draw(1, 10_000), dtype=dtype)
    here = oracles.Moments.from_samples(samples, 16)
    bad = samples.clone()
    bad[-1, 0] = torch.inf
    with StandIn() as stand_in:
        there = oracles.Moments.from_samples(samples.to(stand_in.device), 16)
        assert stand_in.copied == 16 * (2 * 3 + 3 * 3)  # two means and a covariance of each block, no samples
        with pytest.raises(ValueError, match="non-finite"):
            oracles.Moments.from_samples(bad.to(stand_in.device))
        with pytest.raises(ValueError, match=r"matrices of one width, got shape \(3,\)"):
            oracles.Moments.from_stream([samples[0].to(stand_in.device)])
    assert (there.samples, there.null_variance) == (here.samples, here.null_variance)
    # Sums are taken in another order: nothing but rounding differs.
    np.testing.assert_allclose(there.block_means, here.block_means, rtol=1e-13)
    np.testing.assert_allclose(there.block_covariances, here.block_covariances, rtol=1e-12, atol=1e-15)


def test_streamed_moments_are_the_same():
    samples = draw(1, 1003)
    whole = oracles.Moments.from_samples(samples, 8)
    streamed = oracles.Moments.from_stream(iter(np.array_split(samples, 8)))
    np.testing.assert_array_equal(whole.covariance, streamed.covariance)
    np.testing.assert_array_equal(whole.block_means, streamed.block_means)
    uneven = oracles.Moments.from_stream([samples[:10], samples[10:700], samples[700:]])
    np.testing.assert_allclose(uneven.covariance, whole.covariance, rtol=1e-12)


def test_float32_samples_far_from_zero_keep_their_variance():
    samples = (1000 + 0.01 * np.random.default_rng(1).standard_normal((10_000, 2))).astype(np.float32)
    moments = oracles.Moments.from_samples(torch.tensor(samples))
    np.testing.assert_allclose(moments.covariance, np.cov(samples.astype(float).T, bias=True), rtol=1e-9)


def test_replicates_spread_as_repeated_draws_do():
    means, covariances = oracles.Moments.from_samples(draw(1, 64_000)).replicates(2000)
    repeated = [oracles.Moments.from_samples(draw(2 + r, 4000)) for r in range(200)]
    # the block-based sd is sure to 1/sqrt(2 * 63), the repeated one to 1/sqrt(2 * 199)
    tolerance = 4 * np.sqrt(1 / 126 + 1 / 398)
    scale = np.sqrt(4000 / 64_000)
    expected = scale * np.std([m.mean for m in repeated], axis=0, ddof=1)
    assert np.abs(means.std(0) / expected - 1).max() < tolerance
    diagonals = [m.covariance.diagonal() for m in repeated]
    expected = scale * np.std(diagonals, axis=0, ddof=1)
    observed = covariances.diagonal(axis1=1, axis2=2).std(0)
    assert np.abs(observed / expected - 1).max() < tolerance * 1.5  # heavy tails: sds of variances vary more


def test_a_point_mass_predicted_as_one_is_exact():
    constant = np.full((100, 1), np.float32(0.1))
    samples = np.hstack([constant, draw(1, 100)[:, :1]]).astype(np.float32)
    mean = torch.tensor([[0.1, 5.0]])
    exact, _ = oracles.std_ratio(samples, DiagonalGaussian(mean, torch.tensor([[0.0, 1.0]])))
    wrong, _ = oracles.std_ratio(samples, DiagonalGaussian(mean, torch.tensor([[0.5, 1.0]])))
    missing = oracles.std_ratio(samples, DiagonalGaussian(mean, torch.tensor([[0.0, 0.0]])))[1]
    assert exact.value == 1
    assert exact.indistinguishable
    assert wrong.value == math.inf
    assert not wrong.indistinguishable
    assert missing.value == 0


def test_std_ratios_are_those_of_the_predicted_standard_deviations():
    variances = torch.tensor(COVARIANCE.diagonal() * [4.0, 1.0, 0.25])[None]
    ratios = oracles.std_ratio(draw(1, 100_000), DiagonalGaussian(EXACT.mean, variances))
    for ratio, exact in zip(ratios, [2.0, 1.0, 0.5], strict=True):
        assert abs(ratio.value - exact) < 4 * ratio.stderr
        assert ratio.floor == 1
    assert [ratio.indistinguishable for ratio in ratios] == [False, True, False]


def from_moments(mean, covariance):
    z = np.random.default_rng(1).standard_normal((500, len(mean)))
    z -= z.mean(0)
    root = linalg.sqrtm(covariance)
    return z @ np.linalg.inv(linalg.sqrtm(z.T @ z / len(z))) @ root.real + mean


def test_bures_is_gelbrichs_distance():
    other_mean, other = MEAN + SHIFT, np.diag([1.0, 2.0, 0.5]) + 0.3
    root = linalg.sqrtm(COVARIANCE)
    cross = linalg.sqrtm(root @ other @ root).real
    expected = np.sqrt(0.05 + np.trace(COVARIANCE + other - 2 * cross))
    value = oracles.bures(from_moments(MEAN, COVARIANCE), gaussian(other_mean, other)).value
    assert value == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("sds", "shift", "expected"),
    [((1, 2), (0, 0), 0), ((1, 4), (0, 0), 2), ((0, 2), (2, 2), 3), ((1, 0), (1, 0), 5**0.5)],
)
def test_bures_of_independent_outputs_is_the_distance_of_means_and_sds(sds, shift, expected):
    samples = from_moments(np.zeros(2), np.diag([1.0, 4.0]))
    mean = torch.tensor([shift], dtype=torch.float64)
    variance = torch.tensor([sds], dtype=torch.float64) ** 2
    value = oracles.bures(samples, DiagonalGaussian(mean, variance)).value
    assert value == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("exponent", [-500, -250, 250, 500])
def test_bures_has_the_scale_of_the_outputs(exponent):
    """To the last bit, where the scale is a power of two; covariances are from 1e-301 to 1e301."""
    scale = 2.0**exponent
    samples, other = draw(1, 900), np.diag([1.0, 2.0, 0.5]) + 0.3
    value = oracles.bures(samples, gaussian(MEAN + SHIFT, other))
    scaled = oracles.bures(samples * scale, gaussian((MEAN + SHIFT) * scale, other * scale**2))
    assert scaled.value / scale == value.value
    assert scaled.stderr / scale == pytest.approx(value.stderr, rel=1e-12)


def test_gaussian_kl_is_torchs():
    law = torch.distributions.MultivariateNormal
    oracle = law(EXACT.mean[0], EXACT.covariance[0])
    expected = torch.distributions.kl_divergence(oracle, law(WRONG.mean[0], WRONG.covariance[0])).item()
    value = oracles.gaussian_kl(from_moments(MEAN, COVARIANCE), WRONG).value
    assert value == pytest.approx(expected, rel=1e-8)


def test_mean_error_is_in_standard_deviations():
    shift = 3 * MIXING[0] - 4 * MIXING[2]
    value = oracles.mean_error(from_moments(MEAN, COVARIANCE), gaussian(MEAN + shift, COVARIANCE)).value
    assert value == pytest.approx(5.0, rel=1e-8)


def test_kl_is_infinite_exactly_where_it_is():
    full = from_moments(np.zeros(2), np.eye(2))
    flat = full * [1.0, 0.0]

    def kl(samples, mean, variance):
        prediction = DiagonalGaussian(torch.tensor([mean]).double(), torch.tensor([variance]).double())
        estimate = oracles.gaussian_kl(samples, prediction)
        assert not math.isnan(estimate.stderr)
        return estimate.value

    assert kl(full, [0.0, 0.0], [1.0, 0.0]) == math.inf
    assert kl(flat, [0.0, 0.0], [1.0, 1.0]) == math.inf
    assert kl(flat, [0.0, 0.1], [1.0, 0.0]) == math.inf
    assert kl(flat, [0.0, 0.0], [1.0, 0.0]) == pytest.approx(0, abs=1e-12)
    assert kl(flat, [1.0, 0.0], [1.0, 0.0]) == pytest.approx(0.5)
    assert kl(0 * full, [0.0, 0.0], [0.0, 0.0]) == 0
    assert kl(0 * full, [0.0, 0.0], [1.0, 0.0]) == math.inf


ROTATION = np.linalg.qr(np.random.default_rng(2).standard_normal((3, 3)))[0]


def rotated(variances):
    covariance = ROTATION * variances @ ROTATION.T
    return gaussian(np.zeros(3), (covariance + covariance.T) / 2)


@pytest.mark.rounding
def test_a_direction_that_only_rounding_fills_has_no_spread():
    flat = from_moments(np.zeros(3), np.eye(3)) * [1.0, 2.0, 0.0] @ ROTATION.T
    assert oracles.gaussian_kl(flat, rotated([1.0, 4.0, 0.0])).value == pytest.approx(0, abs=1e-12)
    assert oracles.gaussian_kl(flat, rotated([1.0, 4.0, 1.0])).value == math.inf


@pytest.mark.rounding
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_only_a_covariance_that_rounding_tells_from_a_singular_one_is_singular(dtype):
    samples = (from_moments(np.zeros(3), np.eye(3)) @ ROTATION.T).astype(dtype)
    for ordinary in (1e-14, 1e-8):
        # -log det of the thin direction and what the true variance of 1 is in units of the predicted one
        expected = (1 / ordinary - 1 + math.log(ordinary)) / 2
        found = oracles.gaussian_kl(samples, rotated([1.0, 1.0, ordinary])).value
        assert found == pytest.approx(expected, rel=0.1)
    for singular in (0.0, 1e-17, 1e-16):
        assert oracles.gaussian_kl(samples, rotated([1.0, 1.0, singular])).value == math.inf


def test_an_indefinite_prediction_has_infinite_kl_and_a_finite_distance():
    indefinite = torch.tensor([[[1.0, 0.5], [0.5, 0.2]]], dtype=torch.float64)
    prediction = unchecked(Gaussian, torch.zeros(1, 2, dtype=torch.float64), indefinite)
    samples = from_moments(np.zeros(2), np.eye(2))
    assert oracles.gaussian_kl(samples, prediction).value == math.inf
    assert math.isfinite(oracles.bures(samples, prediction).value)


@pytest.mark.parametrize("metric", METRICS)
def test_twenty_samples_give_finite_numbers(metric):
    samples = np.random.default_rng(1).standard_normal((20, 3))
    estimate = metric(samples, DiagonalGaussian(torch.zeros(1, 3), torch.ones(1, 3)))
    assert np.isfinite([estimate.value, estimate.floor, estimate.floor95, estimate.stderr]).all()


def test_a_sobol_draw_has_smaller_floors():
    x = DiagonalGaussian(torch.zeros(1, 2), torch.ones(1, 2))

    def estimate(sampler):
        draws = oracles.sample_outputs(torch.nn.Identity(), x, 2**14, seed=1, sampler=sampler)
        return oracles.bures(oracles.Moments.from_samples(draws, 16), x)

    plain, sobol = estimate("mc"), estimate("sobol")
    assert sobol.floor < plain.floor / 5
    assert sobol.value < plain.floor / 2


@pytest.mark.parametrize("metric", METRICS)
def test_standard_errors_are_the_spread_of_repeated_draws(metric):
    assert_standard_errors_are_the_spread([metric(draw(r, 4000), WRONG) for r in range(200)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: oracles.Moments.from_samples(draw(1, 3)), "N >= 4"),
        (lambda: oracles.Moments.from_samples(draw(1, 9)[0]), r"shape \(N, m\)"),
        (lambda: oracles.Moments.from_samples(draw(1, 9), 1), "blocks must be at least 2"),
        (lambda: oracles.Moments.from_samples(np.full((9, 2), np.inf)), "non-finite"),
        (lambda: oracles.Moments.from_stream([draw(1, 9)]), "at least two blocks"),
        (lambda: oracles.Moments.from_stream([draw(1, 9), draw(1, 9)[:, :2]]), "of one width"),
        (lambda: oracles.bures(draw(1, 9), Cauchy(EXACT.mean, EXACT.mean.abs())), "must be Gaussian"),
        (lambda: oracles.std_ratio(draw(1, 9)[:, :2], EXACT), "one law of 2 outputs"),
        (lambda: oracles.std_ratio(draw(1, 9), UNSOUND), "prediction has non-finite moments"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_spreads_that_float64_resolves_are_no_point_masses():
    """Mean 10, sd 1e-6: rounding of float32 outputs, but not of float64 ones."""
    samples = 10 + 1e-6 * np.random.default_rng(0).standard_normal((20_000, 1))
    twice = DiagonalGaussian(torch.full((1, 1), 10.0).double(), torch.full((1, 1), 4e-12).double())
    (ratio,) = oracles.std_ratio(samples, twice)
    assert abs(ratio.value - 2) < 4 * ratio.stderr
    (ratio,) = oracles.std_ratio(samples.astype(np.float32), twice)
    assert ratio.value == 1  # both are rounding
