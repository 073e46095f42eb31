from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.stats
import torch
from torch import nn

import sdp_bench
from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.nets.own.net import find
from sdp_bench.bench.noise import noise_of
from sdp_bench.bench.plugins import session
from sdp_bench.bench.sampling.adaptive import SampleRequest, sample_until
from sdp_bench.bench.sampling.quantities import (
    Quantity,
    block_of,
    estimates,
    levels_of,
    quantity_of,
    thresholds_of,
)

SIGMA = 0.3
CENTRES = np.linspace(-5, 5, 50, dtype=np.float32)
"""Inputs with equal components: each of the outputs of the identity is the largest equally often."""


class Identity(nn.Module):
    def forward(self, x):
        return 1.0 * x


class Constant(nn.Module):
    def forward(self, x):
        return torch.cat([x[:, :1], 0 * x[:, :1] + 0.1], 1)


def sampled(net, inputs, **options):
    return sdp_bench.sample(net, inputs, **{"sigma": SIGMA, "progress": False, **options})


def covered(table, exact):
    """Share of the intervals that contain the exact value."""
    return ((table["low"] <= exact) & (exact <= table["high"])).mean()


def test_intervals_that_stop_the_sampling_contain_the_exact_value_as_often_as_they_say():
    """At 400 outputs, with a number of blocks that their own spread determines. The share has a standard
    error of 1.1 %, and stopping at a small spread costs less than 2 % of the 95 %."""
    inputs = np.repeat(CENTRES[:, None], 8, 1)
    table = sampled(Identity(), inputs, until="5%", quantity="sd")
    assert table["samples"].nunique() > 5
    assert table["reached"].all()
    assert ((table["high"] - table["low"]) / 2 <= 0.05 * table["estimate"] * (1 + 1e-9)).all()
    assert covered(table, SIGMA) >= 0.95 - 0.02 - 3 * 0.011


def test_a_tolerance_may_be_a_number():
    inputs = np.zeros((1, 2), np.float32)
    pd.testing.assert_frame_equal(
        sampled(Identity(), inputs, until=0.05), sampled(Identity(), inputs, until="5%")
    )


def test_each_quantity_is_the_exact_one_of_gaussian_outputs():
    quantities = ["mean", "sd", "quantile:0.9", "class", "above:0.25"]
    table = sampled(Identity(), np.repeat(CENTRES[:, None], 8, 1), until="5%", quantity=quantities)
    centre = CENTRES[table["input"]]
    for quantity, exact in (
        ("mean", centre),
        ("sd", SIGMA),
        ("quantile:0.9", centre + SIGMA * scipy.stats.norm.ppf(0.9)),
        ("class", 1 / 8),
        ("above:0.25", scipy.stats.norm.sf((0.25 - centre) / SIGMA)),
    ):
        chosen = table["quantity"] == quantity
        share = covered(table[chosen], exact[chosen] if np.ndim(exact) else exact)
        assert share >= 0.95 - 4 * (0.95 * 0.05 / 400) ** 0.5, quantity


class RareStep(nn.Module):
    """1 above a threshold that Gaussian noise exceeds once in 31,574 samples, and 0 below."""

    def forward(self, x):
        return (x[:, :1] > 4 * SIGMA).to(x)


@pytest.mark.parametrize(("net", "value"), [(Constant(), 0.1), (RareStep(), 0.0)])
def test_equal_samples_do_not_determine_mean_and_standard_deviation(net, value):
    """The quantile and the exceedance probability have intervals that are valid for any law."""
    table = sampled(
        *(net, np.zeros((1, 2), np.float32)),
        **{"until": "5%", "quantity": "mean,sd,quantile:0.5,above:0.5", "max_samples": 20_000},
    )
    rows = table[table["output"] == table["output"].max()].set_index("quantity")
    assert rows["reached"].tolist() == [False, False, True, True]
    assert rows["low"].tolist()[:2] == [-np.inf, 0]
    assert rows["high"].tolist()[:2] == [np.inf, np.inf]
    median, exceedance = rows.loc["quantile:0.5"], rows.loc["above:0.5"]
    assert median[["estimate", "low", "high"]].tolist() == pytest.approx([value] * 3)
    assert exceedance["low"] <= scipy.stats.norm.sf(4) * (value == 0) <= exceedance["high"]
    # The other estimates are known, and more samples of a constant output do not help.
    assert not table.attrs["shortfall"]
    assert (table["samples"] < 20_000).all()
    assert any("no interval, first mean of output" in line for line in table.attrs["limits"])


def test_a_net_without_noise_in_its_outputs_has_no_interval():
    table = sampled(RareStep(), np.full((1, 1), -9, np.float32), until="5%", max_samples=20_000)
    assert "without an interval: (nearly) all samples are equal" in table.attrs["shortfall"]


def test_an_exceedance_probability_needs_no_variance():
    inputs = np.zeros((1, 1), np.float32)
    table = sampled(Identity(), inputs, noise="cauchy", sigma=1.0, quantity="above:-1", until="2%")
    assert table["reached"].all()
    assert abs(table["estimate"].item() - 0.75) < table["high"].item() - table["low"].item()


def test_thresholds_and_levels_that_differ_in_late_digits_have_their_own_rows():
    quantities = ["above:100000.5", "above:100000.25", "quantile:0.5000001", "quantile:0.5000002"]
    table = sampled(Identity(), np.zeros((1, 1), np.float32), quantity=quantities, until="5%")
    assert table["quantity"].tolist() == quantities


def test_the_mean_under_asymmetric_errors_is_not_the_input():
    table = sampled(
        *(Identity(), np.full((1, 1), 2.0)),
        **{"noise": "split_normal:+0.2-0.1", "sigma": 1.0, "quantity": "mean,quantile:0.05", "until": "2%"},
    )
    mean, quantile = table.itertuples()
    exact = 2 + (2 / np.pi) ** 0.5 * 0.1
    assert abs(mean.estimate - exact) < 2 * (mean.high - mean.low)
    # 0.05 = 2 * 0.1 / 0.3 times the normal tail
    exact = 2 + 0.1 * scipy.stats.norm.ppf(0.05 * 0.3 / 0.2)
    assert abs(quantile.estimate - exact) < 2 * (quantile.high - quantile.low)


# Resumption ------------------------------------------------------------------------------------------


class Silent:
    """A progress display that records what it is given."""

    def __init__(self):
        self.steps, self.lines = [], []

    def say(self, text):
        self.lines.append(text)

    @contextmanager
    def meter(self, title):
        yield self

    def done(self, count, total, text, share=None):
        self.steps.append((count, total))


REQUEST = SampleRequest(
    quantities=(Quantity("sd"), Quantity("class"), Quantity("quantile", 0.9)), tolerance=0.04, seed=3
)


@pytest.fixture(scope="module")
def net():
    generator = torch.Generator().manual_seed(0)
    made = nn.Linear(3, 2)
    with torch.no_grad():
        made.weight.copy_(torch.randn(2, 3, generator=generator))
    return find(session.code_of(made), {"0": np.eye(2, 3, dtype=np.float32)})


def shorten(path, blocks):
    arrays = np.load(path)
    statistics, inside = arrays["statistics"][:blocks], arrays["inside"]
    np.savez(path, statistics=statistics, inside=inside[inside[:, 0] < blocks])


def run(net, folder, request=REQUEST, progress=None):
    return sample_until(net, noise_of("laplace"), (0.5, 1.0), request, folder, progress or Silent())


def test_an_interrupted_call_resumes_with_the_numbers_of_an_uninterrupted_one(net, tmp_path):
    """A kill leaves the first blocks of some units, since files are replaced as a whole."""
    progress = Silent()
    whole = run(net, tmp_path, progress=progress)
    size = REQUEST.block_samples
    drawn = whole.groupby(["sigma", "input"])["samples"].first().sum()
    assert sorted({count for count, _ in progress.steps}) == list(range(size, drawn + 1, size))
    assert progress.steps[-1] == (drawn, drawn)
    assert all(count <= total for count, total in progress.steps)
    first, second, third, fourth = tmp_path.iterdir()
    first.unlink()
    shorten(second, 4)
    shorten(third, 13)
    again = Silent()
    assert run(net, tmp_path, progress=again).equals(whole)
    assert 0 < len(again.steps) < len(progress.steps)
    assert len(np.load(fourth)["statistics"]) >= 10
    stored = Silent()
    assert run(net, tmp_path, progress=stored).equals(whole)
    assert stored.steps == []


def test_a_damaged_file_is_drawn_again(net, tmp_path):
    whole = run(net, tmp_path)
    path = next(iter(tmp_path.iterdir()))
    path.write_bytes(path.read_bytes()[:150])
    progress = Silent()
    assert run(net, tmp_path, progress=progress).equals(whole)
    assert len(progress.lines) == 1
    assert path.name in progress.lines[0]


def test_other_seeds_give_other_numbers_and_the_limit_is_reported(net, tmp_path):
    quantities = REQUEST.quantities[:2]
    few = SampleRequest(quantities=quantities, tolerance=0.04, seed=4, max_samples=1000, block=100)
    table = run(net, tmp_path, few)
    assert set(table["samples"]) == {1000}
    assert not table["reached"].all()
    assert "not within 4 % after 1,000 samples" in table.attrs["shortfall"]
    assert "--max-samples" in table.attrs["shortfall"]
    assert "samples may suffice" in table.attrs["shortfall"]
    more = SampleRequest(quantities=quantities, tolerance=0.04, seed=4, block=100)
    finished = run(net, tmp_path, more)
    assert finished["reached"].all()
    assert finished.attrs["shortfall"] == ""
    assert not np.isin(finished["estimate"], run(net, tmp_path)["estimate"]).any()


# Requests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantity": "mode"}, "unknown quantity 'mode'; write one of mean, sd, quantile:0.95, class, above"),
        ({"quantity": "quantile:1"}, r"level of a quantile must lie in \(0, 1\), got '1'"),
        ({"quantity": "quantile"}, "unknown quantity 'quantile'"),
        ({"quantity": "above:inf"}, "threshold in 'above:inf' must be a number, as in above:51"),
        ({"until": "0%"}, "until: '0%' is not above 0"),
        ({"until": "0.1%", "max_samples": 1000}, "at least 100,000 samples are needed"),
        ({"noise": "cauchy"}, "has no variance, and tolerances are relative to standard deviations"),
        ({"quantity": "quantile:0.01", "block": 100}, "blocks need at least 10,000 samples, got 100"),
        ({"sigma": 0.0}, "noise level must be positive"),
        ({"sigma": None}, "sigma is required"),
        ({"quantity": "class", "net_output": None}, "has one output, so it has no class"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_in_one_line(options, message):
    with pytest.raises(UserError, match=message) as caught:
        sampled(nn.Linear(2, 1), np.zeros((1, 2), np.float32), **options)
    assert "\n" not in str(caught.value)


class Fragile(nn.Module):
    def forward(self, x):
        return torch.where(x.abs() < 0.9, x, torch.nan)


def test_a_net_that_fails_at_some_samples_is_an_error_that_names_the_input():
    with pytest.raises(RunFailedError, match=r"input 0: .*non-finite outputs"):
        sampled(Fragile(), np.zeros((1, 2), np.float32), until="5%")


def test_blocks_suffice_for_the_tolerance_of_a_gaussian_output():
    """Twice the standard error of the deviation of N samples is 2 / sqrt(2 N)."""
    for tolerance in (0.05, 0.01, 0.002):
        size = SampleRequest(quantities=(Quantity("sd"),), tolerance=tolerance).block_samples
        assert size == min(max(100, np.ceil(2 / tolerance**2 / 20)), 10_000)


# Statistics ------------------------------------------------------------------------------------------


def blocks_of(outputs, quantities):
    """Blocks of outputs of shape (blocks, samples, m)."""
    levels, thresholds, blocks = levels_of(quantities), thresholds_of(quantities), []
    for block in outputs:
        blocks.append(block_of(block, levels, blocks[0] if blocks else None, thresholds))
    return blocks


def test_estimates_are_those_of_all_samples_together():
    outputs = np.random.default_rng(0).gamma(2.0, size=(12, 600, 3))
    quantities = [
        quantity_of(text) for text in ("mean", "sd", "quantile:0.8", "class", "above:3", "above:99")
    ]
    blocks = blocks_of(outputs, quantities)
    mean, deviation, quantile, classes, above, never = estimates(blocks, 600, quantities, 0.01)
    pooled = outputs.reshape(-1, 3)
    np.testing.assert_allclose(mean.value, pooled.mean(0))
    interval = scipy.stats.t.interval(0.95, 11, mean.value, scipy.stats.sem(outputs.mean(1)))
    np.testing.assert_allclose([mean.low, mean.high], interval)
    np.testing.assert_allclose(deviation.value**2, outputs.var(1, ddof=1).mean(0))
    error = scipy.stats.sem(outputs.var(1, ddof=1)) / (2 * deviation.value)
    np.testing.assert_allclose(deviation.high - deviation.value, scipy.stats.t.ppf(0.975, 11) * error)
    np.testing.assert_array_equal(quantile.value, np.quantile(pooled, 0.8, axis=0, method="inverted_cdf"))
    for output in range(3):
        exact = scipy.stats.quantile_test(pooled[:, output], p=0.8).confidence_interval(0.95)
        assert (quantile.low[output], quantile.high[output]) == (exact.low, exact.high)
    assert sum(len(block.inside) for block in blocks) < 0.5 * pooled.size
    counted = (
        (classes, np.bincount(pooled.argmax(1), minlength=3)),
        (above, (pooled > 3).sum(0)),
        (never, np.zeros(3)),
    )
    for estimate, counts in counted:
        np.testing.assert_allclose(estimate.value, counts / 7200)
        for output, count in enumerate(counts):
            exact = scipy.stats.binomtest(int(count), 7200).proportion_ci(0.95, "exact")
            np.testing.assert_allclose((estimate.low[output], estimate.high[output]), exact, rtol=1e-9)
    half = (mean.high - mean.low) / 2
    np.testing.assert_allclose(mean.excess, half / (0.01 * deviation.value))


def test_a_class_that_never_occurs_has_an_interval():
    quantities = [Quantity("class")]
    blocks = blocks_of(np.tile([1.0, 0.0], (10, 50, 1)), quantities)
    (classes,) = estimates(blocks, 50, quantities, 0.01)
    never = scipy.stats.binomtest(0, 500).proportion_ci(0.95, "exact")
    assert (classes.low[1], classes.high[1]) == pytest.approx(tuple(never))
    assert (classes.low[0], classes.high[0]) == pytest.approx((1 - never.high, 1.0))


def poisson(generator, shape):
    return generator.poisson(3, shape).astype(float)


def bimodal(generator, shape):
    return np.where(generator.random(shape) < 0.93, -3.0, 3.0) + 0.3 * generator.standard_normal(shape)


def bimodal_quantile(level):
    def below(value):
        normal = scipy.stats.norm.cdf
        return 0.93 * normal((value + 3) / 0.3) + 0.07 * normal((value - 3) / 0.3) - level

    return scipy.optimize.brentq(below, -6, 6)


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize(
    ("draw", "exact", "is_discrete"),
    [
        (lambda generator, shape: generator.standard_normal(shape), scipy.stats.norm.ppf, False),
        (bimodal, bimodal_quantile, False),
        (lambda generator, shape: generator.standard_t(2, shape), scipy.stats.t(2).ppf, False),
        (poisson, scipy.stats.poisson(3).ppf, True),
    ],
)
def test_intervals_of_quantiles_are_valid_for_any_law(draw, exact, is_discrete, level):
    """At 400 outputs; at least 95 %, up to the standard error of the share, and more for a discrete law."""
    quantities, generator = [Quantity("quantile", level)], np.random.default_rng(7)
    size = quantities[0].fewest
    (estimate,) = estimates(
        blocks_of(draw(generator, (12, size, 400)), quantities), size, quantities, tolerance=0.01
    )
    true = exact(level)
    share = ((estimate.low <= true) & (true <= estimate.high)).mean()
    assert share >= 0.95 - 3 * 0.011
    assert share <= 0.95 + 3 * 0.011 or is_discrete


def test_a_quantile_in_a_gap_between_two_modes_is_not_precise():
    quantities = [Quantity("quantile", 0.5)]
    outputs = np.random.default_rng(0).choice([-1.0, 1.0], (20, 200, 1))
    (estimate,) = estimates(blocks_of(outputs, quantities), 200, quantities, 0.1)
    assert (estimate.low[0], estimate.high[0]) == (-1, 1)
    assert not estimate.is_reached[0]


def test_an_end_outside_of_the_window_is_infinite():
    """A window that misses the quantile, which has a probability below 1e-10, is never a wrong number."""
    quantities = [Quantity("quantile", 0.5)]
    first = block_of(np.linspace(0, 1, 200)[:, None], [0.5])
    blocks = [first, *(block_of(np.full((200, 1), value), [0.5], first) for value in (5.0, 6.0))]
    (estimate,) = estimates(blocks, 200, quantities, 0.1)
    assert estimate.high[0] == np.inf
    assert not estimate.is_reached[0]


class Square(nn.Module):
    def forward(self, x):
        return x**2


def test_no_number_of_samples_is_predicted_for_infinite_variance():
    """The square of Student's t with 2.5 degrees of freedom has no variance."""
    table = sampled(
        *(Square(), np.zeros((1, 1), np.float32)),
        **{"noise": "student_t:2.5", "sigma": 1.0, "until": "2%", "max_samples": 40_000},
    )
    assert "no number of samples can be predicted" in table.attrs["shortfall"]
    assert "suffice" not in table.attrs["shortfall"]
    assert any("heavy tails" in line for line in table.attrs["limits"])
    gaussian = sampled(Square(), np.zeros((1, 1), np.float32), sigma=1.0, until="10%")
    assert len(gaussian.attrs["limits"]) == 1
