"""Estimated errors of linearisation, against quadrature, exact moments and simulated coverage."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from sdp_bench.bench.advice.estimates import class_error, deviations_error, distribution_error

SAMPLES = 10_000


def noise(seed, *shape):
    return np.random.default_rng(seed).normal(size=(SAMPLES, *shape))


def squared(z, x, sigma):
    """The square of x + sigma z, and its linearisation."""
    return (x + sigma * z) ** 2, x * x + 2 * x * sigma * z


def total_variation_of_a_square(x, sigma):
    """Half the integral of the absolute difference of the densities of a square and of its linearisation."""
    width = 2 * abs(x) * sigma
    y = np.linspace(x * x - 12 * width, x * x + 30 * width, 2_000_001)
    root = np.sqrt(np.maximum(y, 1e-300))
    density = (norm.pdf(root, x, sigma) + norm.pdf(-root, x, sigma)) / (2 * root) * (y > 0)
    return 0.5 * np.abs(density - norm.pdf(y, x * x, width)).sum() * (y[1] - y[0])


@pytest.mark.parametrize(("x", "sigma"), [(1.5, 0.2), (1.0, 0.25), (-1.66, 1.0)])
def test_the_total_variation_of_a_square_is_that_of_quadrature(x, sigma):
    exact = total_variation_of_a_square(x, sigma)
    values = [distribution_error(*squared(noise(seed, 1), x, sigma)).value for seed in range(20)]
    assert 0.85 * exact < np.mean(values) < 1.1 * exact  # cells miss part of it


def test_fine_cells_resolve_folds_that_coarse_ones_do_not():
    """Of x + 0.3 sin 10 x, with noise over many folds, the difference of densities alternates quickly."""
    x, z = math.pi / 20, 10 * noise(0, 1)
    outputs, linear = x + z + 0.3 * np.sin(10 * (x + z)), x + 0.3 + z
    assert distribution_error(outputs, linear).low > 0.1


def test_residuals_independent_of_the_linearisation_hardly_change_the_distribution():
    """Total variation between normal laws with variances 1 and 1.01 is 0.0024."""
    z, residuals = noise(0, 3), noise(1, 3)
    assert distribution_error(z + 0.1 * residuals, z).high < 0.05


def test_joint_changes_are_found_that_no_output_shows_alone():
    """Two outputs with correlation 0.5 instead of 0, of five."""
    grid = np.arange(-8, 8, 0.01)
    x, y = np.meshgrid(grid, grid)
    density = np.exp(-(x * x - x * y + y * y) / 1.5) / (2 * math.pi * math.sqrt(0.75))
    exact = 0.5 * np.abs(density - norm.pdf(x) * norm.pdf(y)).sum() * 0.01**2
    z = noise(0, 5)
    outputs = z.copy()
    outputs[:, 1] = 0.5 * z[:, 0] + math.sqrt(0.75) * z[:, 1]
    assert 0.85 * exact < distribution_error(outputs, z).value < 1.1 * exact


def test_the_standard_deviation_of_a_square_is_exact_within_the_interval():
    """Var (x + s z)^2 = 4 x^2 s^2 + 2 s^4, and linearisation has the first term only."""
    x, sigma = 1.0, 0.5
    exact = 0.5 * math.log1p(sigma**2 / (2 * x**2))
    intervals = [deviations_error(*squared(noise(seed, 1), x, sigma)) for seed in range(200)]
    covered = np.mean([interval.low <= exact <= interval.high for interval in intervals])
    assert covered >= 0.89  # four standard errors below 0.95


def test_the_interval_of_the_class_probability_covers_it():
    """The second of two classes is chosen above 0.3 instead of above 0."""
    exact = norm.cdf(0.3) - 0.5
    intervals = []
    for seed in range(200):
        z = noise(seed, 1)
        zero = np.zeros_like(z)
        intervals.append(class_error(np.hstack([zero, z - 0.3]), np.hstack([zero, z])))
    covered = np.mean([interval.low <= exact <= interval.high for interval in intervals])
    assert covered >= 0.89


@pytest.mark.parametrize("rare", [1, 2, 4])
def test_few_effective_samples_widen_the_interval(rare):
    """A few samples beyond a steep kink contribute all of the difference between the standard deviations."""
    linear = noise(0, 1)
    outputs = linear.copy()
    outputs[:rare] += 25 / math.sqrt(rare)
    interval = deviations_error(outputs, linear)
    assert interval.value < math.log(1.05) < interval.high


def test_without_a_residual_errors_are_zero():
    z = noise(0, 4)
    for error in (deviations_error(z, z), class_error(z, z), distribution_error(z, z)):
        assert (error.value, error.low, error.high) == (0, 0, 0)
