import math

import numpy as np
import pytest
from scipy import stats

from sdp_bench.oracles.partitions.logits import (
    Margin,
    energy_distance,
    pairwise_summary,
    sliced_total_variation,
    without_shift,
)
from sdp_bench.oracles.partitions.partition import ScoreDifferences, pairwise_total_variation
from tests.oracles.repeated import assert_standard_errors_are_the_spread

RNG = np.random.default_rng(7)
MIXING = RNG.standard_normal((10, 10)) * np.geomspace(1, 0.01, 10)


def logits(samples, seed):
    return np.random.default_rng(seed).standard_normal((samples, 10)) @ MIXING + np.arange(10)


def share_below(estimates):
    return float(np.mean([estimate.indistinguishable for estimate in estimates]))


def test_a_shift_of_all_outputs_is_seen_by_no_distance():
    x, y = logits(1000, 1), logits(1000, 2)
    shifted = y + np.random.default_rng(3).standard_normal((1000, 1))
    assert np.allclose(without_shift(y), without_shift(shifted))
    assert energy_distance(x, y).value == pytest.approx(energy_distance(x, shifted).value)
    assert sliced_total_variation(x, y).value == pytest.approx(sliced_total_variation(x, shifted).value)


def test_cells_of_the_margin_have_equal_mass():
    pilot = logits(6400, 1)
    assert (np.abs(Margin.from_samples(pilot, 64).counts(pilot) - 100) <= 1).all()


def test_the_summary_of_pairs_is_that_of_the_pairs():
    x, y = logits(5000, 1), logits(4000, 2) * 1.1
    partition = ScoreDifferences.from_samples(logits(5000, 3), 30)
    each = pairwise_total_variation(x, y, partition)
    found = pairwise_summary(x, y, partition)
    assert found.largest.value == max(estimate.value for estimate in each)
    assert found.mean.value == pytest.approx(np.mean([estimate.value for estimate in each]))
    assert found.mean.stderr <= max(estimate.stderr for estimate in each)
    assert not found.largest.indistinguishable


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.15, 2.0])
def test_standard_errors_of_the_summary_of_pairs_are_the_spread_of_repeated_draws(scale):
    """Those of fully dependent pairs would be half again to three times as large."""

    def drawn(seed):
        return np.random.default_rng(seed).standard_normal((1500, 4))

    partition = ScoreDifferences.from_samples(np.random.default_rng(1).standard_normal((20_000, 4)), 20)
    found = [
        pairwise_summary(drawn(10 + i), scale * drawn(5000 + i), partition, redraws=20, seed=i)
        for i in range(150)
    ]
    for which in ("largest", "mean"):
        assert_standard_errors_are_the_spread([getattr(each, which) for each in found], 3.4)


def test_a_summary_of_point_masses_is_sure():
    """And of one pair, and of samples that are the same."""
    x = np.tile(np.arange(2.0), (50, 1))
    partition = ScoreDifferences.from_samples(x, 4)
    for other, value in ((x, 0.0), (x[:, ::-1].copy(), 1.0)):
        for estimate in vars(pairwise_summary(x, other, partition)).values():
            assert (estimate.value, estimate.stderr) == (value, 0.0)


def test_the_sliced_distance_finds_a_difference_in_one_thin_direction():
    generator = np.random.default_rng(5)
    scales = np.geomspace(1, 1e-3, 9)
    basis = np.linalg.qr(np.column_stack([np.ones(10), generator.standard_normal((10, 9))]))[0][:, 1:]
    x, y = generator.standard_normal((2, 20_000, 9))
    y[:, -1] += 1.0
    found = sliced_total_variation(x * scales @ basis.T, y * scales @ basis.T, bins=64)
    exact = 2 * stats.norm.cdf(0.5) - 1
    assert found.value == pytest.approx(exact, abs=4 * found.stderr + 0.02)  # bins lose a little
    assert found.value > 5 * found.floor95


def test_the_sliced_distance_of_the_same_law_is_at_its_floor():
    found = [sliced_total_variation(logits(1000, i), logits(1000, 1000 + i), seed=i) for i in range(20)]
    assert share_below(found) > 0.75  # 0.95 - 4 * sqrt(.95 * .05 / 20)


def test_distinct_point_masses_are_distinguished():
    x = np.tile(np.arange(10.0), (600, 1))
    assert sliced_total_variation(x, x).value == 0
    assert sliced_total_variation(x, x + np.eye(10)[0]).value == 1


def mean_absolute(shift, sd):
    h = shift / sd
    return sd * (math.sqrt(2 / math.pi) * math.exp(-h * h / 2) + h * (1 - 2 * stats.norm.cdf(-h)))


def test_the_energy_distance_of_shifted_normal_laws_has_its_closed_form():
    generator = np.random.default_rng(11)
    x, y = generator.standard_normal((2, 1000, 2))
    y[:, 0] += 1.0
    # less the shift, a point is (d, -d) / 2 with d = y_0 - y_1 of variance 2: its length is |d| / sqrt(2)
    exact = 2 * (mean_absolute(1 / math.sqrt(2), math.sqrt(2)) - mean_absolute(0, math.sqrt(2)))
    found = energy_distance(x, y)
    assert found.value == pytest.approx(exact, abs=4 * found.stderr)
    assert not found.indistinguishable


def test_energy_distance_of_the_same_law_is_unbiased_and_below_its_95_per_cent_point():
    found = [energy_distance(logits(120, i), logits(90, 1000 + i), seed=i) for i in range(200)]
    values = np.array([estimate.value for estimate in found])
    assert abs(values.mean()) < 4 * values.std() / math.sqrt(200)
    assert 0.88 < share_below(found) < 0.99


@pytest.mark.parametrize("offset", [0.0, 1e8])
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_energy_distance_is_in_units_of_the_outputs_wherever_they_are(offset, scale):
    # multiples of 2^-20, so that an offset rounds nothing
    x = np.round(logits(300, 1) * 2**20) / 2**20
    y = np.round(logits(300, 2) * 2**20) / 2**20
    plain = energy_distance(x, 1.5 * y)
    found = energy_distance(scale * (x + offset), scale * (1.5 * y + offset))
    for name in ("value", "floor95", "stderr"):
        # 1e-8 of rounding beside the offset, where all is multiplied by a number that is no power of two
        rel = 1e-9 if offset == 0 or scale == 1 else 1e-6
        assert getattr(found, name) == pytest.approx(scale * getattr(plain, name), rel=rel)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Margin.from_samples(np.zeros((5, 1))), "at least two outputs"),
        (lambda: energy_distance(np.zeros((5, 3)), np.zeros((5, 2))), "one width"),
        (lambda: energy_distance(np.full((5, 3), np.nan), np.zeros((5, 3))), "non-finite"),
        (lambda: sliced_total_variation(np.zeros((50, 3)), np.zeros((50, 3))), "at least 256 samples"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
