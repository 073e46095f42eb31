import math

import numpy as np
import pytest
from scipy import stats

from sdp_bench.reports.statistics.bounds import (
    inputs_to_show_large,
    inputs_to_show_small,
    lower_bound,
    upper_bound,
)


@pytest.mark.parametrize("count", [1, 5, 298, 299])
def test_for_zeros_the_upper_bound_is_that_of_clopper_and_pearson(count):
    exact = stats.binomtest(0, count, alternative="less").proportion_ci(0.95).high
    assert upper_bound(np.zeros(count), 1.0) == pytest.approx(exact, rel=1e-12)


def test_for_equal_values_the_upper_bound_is_between_the_value_and_the_largest():
    """Of n values v, a mean m is refuted if ((1 - v) / (1 - m))^n >= 20."""
    for count in (1, 4, 100):
        bound = upper_bound(np.full(count, 0.3), 1.0)
        assert (0.7 / (1 - bound)) ** count == pytest.approx(20)


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_the_upper_bound_is_wrong_in_at_most_5_percent_of_all_samples_of_a_coin(count):
    """Exactly, by the binomial distribution of the number of large errors."""
    for size in (0.05, 0.5, 1.0):
        for mean in np.linspace(0.001, 0.999, 40) * size:
            wrong = 0.0
            for heads in range(count + 1):
                values = np.where(np.arange(count) < heads, size, 0.0)
                if upper_bound(values, 1.0) < mean:
                    wrong += stats.binom.pmf(heads, count, mean / size)
            assert wrong <= 0.05 + 1e-12


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_the_lower_bound_is_wrong_in_at_most_5_percent_of_all_samples_of_a_coin(count):
    bounds = [lower_bound(np.where(np.arange(count) < heads, 1.0, 0.0)) for heads in range(count + 1)]
    for mean in np.geomspace(1e-4, 0.999, 60):
        wrong = sum(stats.binom.pmf(heads, count, mean) for heads, bound in enumerate(bounds) if bound > mean)
        assert wrong <= 0.05 + 1e-12


def test_bounds_hold_the_mean_of_the_sample_and_close_in_on_it():
    generator = np.random.default_rng(0)
    widths = []
    for count in (1, 10, 100, 1000, 10_000):
        values = np.minimum(0.01 * generator.exponential(size=count), 1.0)
        low, high = lower_bound(values), upper_bound(values, 1.0)
        assert 0 <= low <= values.mean() <= high <= 1
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.001


def test_the_lower_bound_is_shifted_and_scaled_with_the_values():
    values = np.random.default_rng(1).exponential(size=7)
    bound = lower_bound(values)
    assert lower_bound(100 * values) == pytest.approx(100 * bound)
    assert lower_bound(values - 3, -3.0) == pytest.approx(bound - 3)


def test_a_rare_large_value_among_many_shows_nothing():
    values = np.zeros(50_000)
    assert lower_bound(values) == 0
    values[7] = 1.0
    assert 0 <= lower_bound(values) < 1e-6


def test_a_value_above_the_largest_leaves_no_upper_bound():
    assert upper_bound(np.array([0.0, 1.5]), 1.0) == math.inf
    assert upper_bound(np.array([0.0, 1.5]), 2.0) < 2


def test_the_computed_number_of_inputs_decides():
    """Of equal values: with this number the bound passes the limit, and for the upper one not before."""
    assert inputs_to_show_small(np.zeros(1), 0.01, 1.0) == 299
    for value, limit in ((0.0, 0.05), (0.004, 0.01), (0.03, 0.05)):
        needed = inputs_to_show_small(np.full(3, value), limit, 1.0)
        assert (
            upper_bound(np.full(needed, value), 1.0) <= limit < upper_bound(np.full(needed - 1, value), 1.0)
        )
    for value, limit in ((0.02, 0.01), (0.3, 0.05), (1.0, 0.05)):
        needed = inputs_to_show_large(np.full(3, value), limit)
        assert lower_bound(np.full(needed, value)) > limit
    assert math.isinf(inputs_to_show_small(np.full(3, 0.02), 0.01, 1.0))
    assert math.isinf(inputs_to_show_large(np.full(3, 0.005), 0.01))
