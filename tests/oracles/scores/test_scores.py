import math

import numpy as np
import pytest
from scipy import integrate, stats

from sdp_bench.oracles.partitions.quantiles import Quantiles, interval_width_ratio
from sdp_bench.oracles.scores.intervals import Tails, coverage
from sdp_bench.oracles.scores.proper import brier_excess, crps_excess, energy_excess, log_score
from tests.oracles.repeated import assert_standard_errors_are_the_spread

TRUE, OTHER = stats.norm(0.0, 1.0), stats.norm(0.3, 1.4)


def draws(law, rows, seed, outputs=1):
    return law.rvs((rows, outputs), np.random.default_rng(seed))


def ordered(law, rows, seed):
    return Quantiles.from_samples(draws(law, rows, seed))


RULES = {4000: OTHER, 2000: TRUE}  # by the number of its draws
PILOT = draws(TRUE, 20_000, 10**6)


def estimate(name, x, y, seed):
    """What a metric of one output says of two samples."""
    truth, rule = Quantiles.from_samples(x), Quantiles.from_samples(y)
    match name:
        case "crps":
            return crps_excess(truth, rule, seed=seed)[0]
        case "energy":
            return energy_excess(x, y, 400, seed=seed)
        case "coverage":
            return coverage(truth, rule, 0.9)[0]
        case "width":
            return interval_width_ratio(truth, rule, 0.95)[0]
    tails = Tails.from_samples(PILOT, len(x))
    if name == "exact tails":
        return tails.ratios(truth, RULES[len(y)].sf(tails.thresholds), seed=seed)[1][0]
    counted = (y[:, 0] > tails.thresholds).mean(1, keepdims=True)
    return tails.ratios(truth, counted, len(y), seed=seed)[1][0]


def cramer():
    return integrate.quad(lambda t: (TRUE.cdf(t) - OTHER.cdf(t)) ** 2, -12, 12)[0]


THRESHOLD = np.quantile(PILOT, 0.99)


def noise(law):
    """What the error of its distribution function adds to an integral of squares, times the samples."""
    return integrate.quad(lambda t: law.cdf(t) * law.sf(t), -12, 12)[0]


ENDS = OTHER.ppf([0.05, 0.95])
EXACT = {
    "crps": cramer,
    "energy": cramer,  # of one output the two are the same
    "coverage": lambda: integrate.quad(TRUE.pdf, *ENDS)[0],
    "width": lambda: 1.4,
    "exact tails": lambda: OTHER.sf(THRESHOLD) / TRUE.sf(THRESHOLD),
    "tails": lambda: OTHER.sf(THRESHOLD) / TRUE.sf(THRESHOLD),
}


@pytest.mark.parametrize("name", EXACT)
def test_gaussian_against_gaussian_is_what_quadrature_says(name):
    """The mean of 60 estimates within 4 standard errors, and their spread as they say (to 9 %, 3 times)."""
    found = [estimate(name, draws(TRUE, 4000, 2 * k), draws(OTHER, 4000, 2 * k + 1), k) for k in range(60)]
    values = np.array([each.value for each in found])
    exact = EXACT[name]()
    if name == "crps":  # of samples it is larger, by what the noise of either side adds
        exact += sum(map(noise, (TRUE, OTHER))) / 4000
    if "tails" in name:  # and so is the mean of a quotient
        exact *= 1 + 0.99 / 40
    assert abs(values.mean() - exact) < 4 * values.std(ddof=1) / math.sqrt(len(values))
    assert_standard_errors_are_the_spread(found)


@pytest.mark.parametrize("name", EXACT)
def test_an_exact_rule_is_at_the_floor_and_above_its_limit_in_one_of_twenty(name):
    """As often as 3.3 standard deviations of the count allow, and within as many of the mean.

    Tails of ten counts are told less often: the bounds of so few are wide.
    """
    repeats = 100
    found = [
        estimate(name, draws(TRUE, 1000, 2 * k), draws(TRUE, 2000, 2 * k + 1), k) for k in range(repeats)
    ]
    values = np.array([each.value for each in found])
    floor = np.mean([each.floor for each in found])
    # A quotient's mean is too large: by a tenth of ten samples above, by half a percent of these widths.
    quotient = 0.1 if "tails" in name else 0.005 if name == "width" else 0.0
    assert abs(values.mean() - floor - quotient) < 3.3 * values.std() / math.sqrt(repeats) + quotient / 4
    told = sum(not each.indistinguishable for each in found)
    excess = told - 0.05 * repeats
    assert (excess if "tails" in name else abs(excess)) <= 3.3 * math.sqrt(0.0475 * repeats)


def test_the_log_score_is_entropy_plus_divergence():
    x = draws(TRUE, 20_000, 1)[:, 0]
    own, other = log_score(TRUE.logpdf(x)), log_score(OTHER.logpdf(x))
    divergence = math.log(1.4) + (1 + 0.3**2) / (2 * 1.4**2) - 0.5
    assert abs(own.value - TRUE.entropy()) < 4 * own.stderr
    error = (TRUE.logpdf(x) - OTHER.logpdf(x)).std() / math.sqrt(len(x))
    assert abs(other.value - own.value - divergence) < 4 * error
    assert math.isnan(own.floor)
    assert own.stderr == pytest.approx(TRUE.logpdf(x).std(ddof=1) / math.sqrt(len(x)))


def test_a_draw_that_cannot_be_has_an_infinite_log_score():
    found = log_score(stats.uniform(-1, 2).logpdf([0.0, 0.5, 1.5]))
    assert found.value == math.inf
    assert math.isnan(found.stderr)


def test_the_energy_score_of_several_outputs_sees_what_they_share():
    """A shift of all outputs alike, say, of which the energy distance of logits is 0."""
    x, y = draws(TRUE, 1500, 1, 3), draws(TRUE, 1500, 2, 3) + 1.0
    found = energy_excess(x, y)
    assert found.value > 100 * found.floor95
    assert energy_excess(x, y, 500).n == 500


def test_an_exact_tail_has_only_the_oracles_error():
    truth = ordered(TRUE, 100_000, 3)
    tails = Tails.from_samples(draws(TRUE, 100_000, 2), truth.samples)
    assert tails.probabilities == (1e-1, 1e-2, 1e-3, 1e-4)
    right = TRUE.sf(tails.thresholds)
    exact = tails.ratios(truth, right, None)[2][0]
    counted = tails.ratios(truth, right, truth.samples)[2][0]
    assert exact.indistinguishable
    share = right[2, 0] / exact.value
    assert exact.stderr == pytest.approx(exact.value * math.sqrt((1 - share) / (share * 100_000)))
    assert counted.stderr == pytest.approx(math.sqrt(2) * exact.stderr, rel=0.1)
    gone = tails.ratios(truth, np.zeros((4, 1)), 1000)[0][0]
    assert gone.value == 0
    assert math.isnan(gone.stderr)


def test_a_tail_has_at_least_ten_samples():
    pilot = draws(TRUE, 9_999, 1)
    assert Tails.from_samples(pilot, 10**6).probabilities == (1e-1, 1e-2)
    assert Tails.from_samples(pilot, 100).probabilities == (1e-1,)


def test_two_equal_points_are_exact():
    point = Quantiles.from_samples(np.full((200, 1), 3.0))
    assert crps_excess(point, point)[0].value == 0
    assert crps_excess(point, point)[0].indistinguishable
    assert coverage(point, point, 0.9)[0].indistinguishable
    assert interval_width_ratio(point, point, 0.9)[0].value == 1
    tails = Tails.from_samples(point.ordered.T, 200)
    assert tails.ratios(point, np.zeros((1, 1)))[0][0].value == 1
    assert tails.ratios(point, np.ones((1, 1)))[0][0].value == math.inf


@pytest.mark.parametrize("score", [crps_excess, lambda a, b: coverage(a, b, 0.9)])
def test_other_numbers_of_outputs_are_refused(score):
    two = Quantiles.from_samples(draws(TRUE, 200, 1, 2))
    with pytest.raises(ValueError, match="the oracle has 2 outputs, the rule 1"):
        score(two, ordered(TRUE, 200, 2))


def test_tails_and_log_scores_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="the oracle has 1 outputs, the rule 2"):
        Tails.from_samples(PILOT, 200).ratios(ordered(TRUE, 200, 1), np.ones((1, 2)))
    with pytest.raises(ValueError, match="two draws or more"):
        log_score([0.0])
    with pytest.raises(ValueError, match="not a number"):
        log_score([0.0, math.nan])


CHANCES = np.array([0.5, 0.3, 0.15, 0.05])


def brier_scores(predicted, repeats, draws=None):
    """Estimates from 500 true samples and a prediction, or so many draws of it."""
    generator = np.random.default_rng(0)
    found = []
    for seed in range(repeats):
        counts = generator.multinomial(500, CHANCES)
        q = predicted if draws is None else generator.multinomial(draws, predicted) / draws
        found.append(brier_excess(counts, q, draws, seed=seed))
    return found


@pytest.mark.parametrize("draws", [None, 200])
@pytest.mark.parametrize("shift", [0.0, 0.05, -0.4])
def test_the_brier_score_is_unbiased_with_its_standard_error(shift, draws):
    """|p - q|^2, also of signed q without draws; the mean of 400 estimates within 4 standard errors.

    Where p = q the standard error is the larger of two estimates, and therefore too large on average.
    """
    predicted = CHANCES + shift * np.array([1, -1, 0, 0])
    if draws and predicted.min() < 0:
        return
    found = brier_scores(predicted, 400, draws)
    values = np.array([estimate.value for estimate in found])
    assert abs(values.mean() - 2 * shift**2) < 4 * values.std() / 20
    ratio = np.mean([estimate.stderr for estimate in found]) / values.std()
    assert 0.85 < ratio < (1.2 if shift else 1.5)
    assert {estimate.floor for estimate in found} == {0.0}


@pytest.mark.parametrize("draws", [None, 200])
def test_exact_class_probabilities_are_above_the_limit_in_one_of_twenty(draws):
    told = sum(not estimate.indistinguishable for estimate in brier_scores(CHANCES, 400, draws))
    assert abs(told - 20) < 4 * math.sqrt(19)


def test_n_samples_have_the_brier_score_of_their_noise():
    """(1 - |p|^2) / n, as exact probabilities plus noise."""
    generator = np.random.default_rng(1)
    counts = np.rint(CHANCES * 10**9).astype(int)
    values = [brier_excess(counts, generator.multinomial(50, CHANCES) / 50).value for _ in range(300)]
    assert np.mean(values) == pytest.approx((1 - (CHANCES**2).sum()) / 50, rel=0.15)
