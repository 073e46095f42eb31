import numpy as np
import pytest
import torch
from scipy import stats

from sdp_bench.oracles.partitions.quantiles import (
    LEVELS,
    Quantiles,
    interquartile_ratio,
    largest_quantile_distance,
    mean_quantile_distance,
)
from tests.oracles.repeated import assert_standard_errors_are_the_spread
from tests.stand_in import StandIn


def cauchys(seed, samples=20_000, outputs=1):
    return np.random.default_rng(seed).standard_cauchy((samples, outputs))


def quantiles(values):
    return Quantiles.from_samples(values)


def test_quantiles_are_numpys():
    values = cauchys(1, 501, 3)
    np.testing.assert_allclose(quantiles(values).values, np.quantile(values, LEVELS, axis=0), rtol=1e-12)
    assert LEVELS[[4, 9, 14]] == pytest.approx([0.25, 0.5, 0.75])
    single = quantiles(values.astype(np.float32))
    np.testing.assert_allclose(
        single.values, np.quantile(values.astype(np.float32).astype(float), LEVELS, axis=0)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_of_a_device_have_the_quantiles_of_the_cpus(dtype):
    values = torch.tensor(cauchys(1, 501, 3), dtype=dtype)
    values[:200, 1] = 0.3
    infinite, undefined = values.clone(), values.clone()
    infinite[7, 2], undefined[7, 2] = -torch.inf, torch.nan
    with StandIn() as stand_in:
        there = quantiles(values.to(stand_in.device)).ordered
        for bad in (infinite, undefined):
            with pytest.raises(ValueError, match="non-finite"):
                quantiles(bad.to(stand_in.device))
    assert there.dtype == np.float64
    assert np.array_equal(there, quantiles(values).ordered)


@pytest.mark.parametrize(
    ("draw", "law"), [("standard_cauchy", stats.cauchy), ("standard_normal", stats.norm)]
)
@pytest.mark.parametrize("size", [None, 500])
def test_replicates_have_the_covariance_of_quantiles(draw, law, size):
    """Asymptotically p (1 - q) / (n f(x_p) f(x_q)) for levels p <= q."""
    values = getattr(np.random.default_rng(2), draw)((100_000, 1))
    n = size or len(values)
    replicates = quantiles(values).replicates(4000, samples=size)[..., 0]
    x = law.ppf(LEVELS)
    low, high = np.minimum.outer(LEVELS, LEVELS), np.maximum.outer(LEVELS, LEVELS)
    exact = low * (1 - high) / n / np.multiply.outer(law.pdf(x), law.pdf(x))
    observed = np.cov(replicates, rowvar=False)
    sds, found = np.sqrt(np.diag(exact)), np.sqrt(np.diag(observed))
    # A bootstrap of quantiles knows their spread to about n^(-1/4), which is 6 % here; correlations
    # do not depend on the density.
    assert np.abs(found / sds - 1).max() < 0.2
    correlations = observed / np.multiply.outer(found, found) - exact / np.multiply.outer(sds, sds)
    assert np.abs(correlations).max() < 0.1
    assert np.abs(replicates.mean(0) - quantiles(values).values[:, 0]).max() < 0.2 * sds.max()


def test_replicates_of_other_seeds_are_independent():
    estimate = quantiles(cauchys(1))
    first = estimate.replicates(4000, seed=1)[:, 9, 0]
    second = estimate.replicates(4000, seed=2)[:, 9, 0]
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(4000)
    assert (estimate.replicates(5, seed=1) == estimate.replicates(5, seed=1)).all()


def test_distances_between_scaled_and_shifted_laws_have_their_closed_forms():
    """A scale 1.5 times as large moves the quantile q by q / 2, a shift of one moves all by one."""
    q = stats.cauchy.ppf(LEVELS)
    truth = cauchys(1, 400_000, 2)
    rule = cauchys(2, 400_000, 2) * np.array([1.5, 1.0]) + np.array([0.0, 1.0])
    exact = {
        mean_quantile_distance: [np.abs(q / 2).mean() / 2, 0.5],
        largest_quantile_distance: [np.abs(q / 2).max() / 2, None],
        interquartile_ratio: [1.5, 1.0],
    }
    for statistic, values in exact.items():
        for estimate, value in zip(statistic(quantiles(truth), quantiles(rule)), values, strict=True):
            if value is not None:
                assert abs(estimate.value - value) < 4 * estimate.stderr
                assert 0 < estimate.stderr < 0.05


STATISTICS = [mean_quantile_distance, largest_quantile_distance, interquartile_ratio]


@pytest.mark.parametrize("statistic", STATISTICS)
def test_the_standard_error_is_the_spread_of_repeated_draws(statistic):
    found = [
        statistic(quantiles(cauchys(2 * k, 4000)), quantiles(1.5 * cauchys(2 * k + 1, 4000) + 0.3))[0]
        for k in range(100)
    ]
    assert_standard_errors_are_the_spread(found, 3.5)


def test_point_masses():
    point, line = np.full((100, 1), 2.0), np.linspace(0, 1, 100)[:, None]
    for statistic, equal in zip(STATISTICS, (0.0, 0.0, 1.0), strict=True):
        (same,) = statistic(quantiles(point), quantiles(point))
        assert (same.value, same.stderr) == (equal, 0.0)
        assert same.indistinguishable
        (other,) = statistic(quantiles(point), quantiles(line))
        assert other.value == np.inf
        assert not other.indistinguishable
    assert interquartile_ratio(quantiles(line), quantiles(point))[0].value == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quantiles(np.ones((99, 2))), "at least 100 samples, got 99"),
        (lambda: quantiles(np.ones(200)), "floating-point matrix"),
        (lambda: quantiles(np.where(np.arange(200)[:, None] == 5, np.nan, 1.0)), "non-finite"),
        (
            lambda: mean_quantile_distance(quantiles(np.ones((200, 2))), quantiles(np.ones((200, 1)))),
            "the oracle has 2 outputs, the rule 1",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
