"""Verdicts: hand values, and their error rates by simulation, each with its Monte Carlo standard error."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sdp_bench.oracles.estimate.multiplicity import holm
from sdp_bench.reports.statistics.verdicts import (
    LEVEL,
    Verdict,
    decide,
    p_of_every_part,
    p_of_some_part,
    t_tests,
)

NETS, CLAIMS, PARTS = 30, 8, 5
DELTA, SD = 0.01, 0.02  # margin in 1 - TV, and a plausible spread of paired differences between nets
TIMES = 16_000

H, F, U = (Verdict.HOLDS, Verdict.FAILS, Verdict.UNDECIDED)


def error_of(rate, times=TIMES):
    """Standard error of a simulated rate."""
    return math.sqrt(rate * (1 - rate) / times)


def rates(means, seed, nets=NETS, times=TIMES):
    """How often each claim holds and fails, shape (times, claims), for true means (claims, parts)."""
    rng = np.random.default_rng(seed)
    means = np.asarray(means)
    holds, fails = [], []
    for _ in range(8):  # in parts, to keep memory small
        effects = rng.normal(means[..., None], SD, size=(times // 8, *means.shape, nets))
        tests = t_tests(effects, -DELTA)
        holds.append(holm(p_of_every_part(tests.above)) <= LEVEL)
        fails.append(holm(p_of_some_part(tests.below)) <= LEVEL)
    return np.concatenate(holds), np.concatenate(fails)


# Hand values ----------------------------------------------------------------------------------------------


def test_t_tests_agree_with_scipy():
    effects = np.random.default_rng(1).normal(0.02, 0.05, size=(4, 12))
    tests = t_tests(effects, -0.01)
    for row, *found in zip(effects, tests.mean, tests.half_width, tests.above, tests.below, strict=True):
        above = stats.ttest_1samp(row, -0.01, alternative="greater")
        two_sided = stats.ttest_1samp(row, -0.01).confidence_interval(0.95)
        below = stats.ttest_1samp(row, -0.01, alternative="less")
        expected = [row.mean(), (two_sided.high - two_sided.low) / 2, above.pvalue, below.pvalue]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("effect", "above", "below"), [(0.1, 0.5**5, 1.0), (-0.1, 1.0, 0.5**5), (-0.01, 1.0, 1.0)]
)
def test_without_spread_the_sign_test_stands_in(effect, above, below):
    tests = t_tests([effect] * 5, -0.01)
    assert (tests.above, tests.below) == (above, below)
    assert tests.mean == pytest.approx(effect)
    assert tests.half_width == pytest.approx(0, abs=1e-15)


def test_a_spread_that_is_only_rounding_is_none():
    tests = t_tests([0.1, 0.3 - 0.2, 0.1, 0.1], 0.1)
    assert (tests.above, tests.below) == (1, 1)


def test_one_net_has_no_t():
    with pytest.raises(ValueError, match="two nets or more, not 1"):
        t_tests([0.3])


def test_a_claim_is_as_sure_as_its_least_sure_part():
    assert p_of_every_part([0.001, 0.2, 0.01]) == 0.2
    assert p_of_some_part([0.001, 0.2, 0.01]) == pytest.approx(0.003)
    assert p_of_some_part([0.9, 0.8]) == 1


def test_holm_by_hand():
    # Sorted .005, .01, .03, .04 times 4, 3, 2, 1 is .02, .03, .06, .04; each is raised to those before it.
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02], rtol=1e-15)
    np.testing.assert_allclose(holm([[0.6, 0.7], [0.02, 0.02]]), [[1, 1], [0.04, 0.04]], rtol=1e-15)
    assert holm([0.05]) == 0.05


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_holm_lies_between_the_raw_p_values_and_bonferronis(p):
    adjusted = holm(p)
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(1, np.array(p) * len(p)) + 1e-15).all()
    assert min(adjusted) == min(1, len(p) * min(p))


def test_decide():
    assert decide(0.05, 1) is H
    assert decide(0.051, 0.05) is F
    assert decide(0.051, 0.051) is U


# Error rates ----------------------------------------------------------------------------------------------


def test_false_holds_are_rare_where_one_part_lies_on_the_margin():
    # The least favourable case: all other parts are far above it, so that this one alone decides.
    means = np.full((CLAIMS, PARTS), 10 * DELTA)
    means[:, 2] = -DELTA
    rate = rates(means, seed=2)[0].any(1).mean()
    assert rate <= LEVEL + 3 * error_of(LEVEL)
    assert rate >= 1 - (1 - LEVEL / CLAIMS) ** CLAIMS - 3 * error_of(LEVEL)  # and the level is used up


def test_false_holds_are_rarer_where_every_part_lies_on_the_margin():
    rate = rates(np.full((CLAIMS, PARTS), -DELTA), seed=3)[0].any(1).mean()
    assert rate <= LEVEL / 10


def test_false_fails_are_rare_where_every_part_lies_on_the_margin():
    rate = rates(np.full((CLAIMS, PARTS), -DELTA), seed=4)[1].any(1).mean()
    assert rate <= LEVEL + 3 * error_of(LEVEL)
    count = CLAIMS * PARTS
    assert rate >= 1 - (1 - LEVEL / count) ** count - 3 * error_of(LEVEL)  # and the level is used up


def test_true_claims_beside_false_ones_do_not_raise_the_error():
    means = np.full((CLAIMS, PARTS), -DELTA)
    means[: CLAIMS // 2] = 10 * DELTA  # hold, and leave Holm's method fewer to correct for
    means[CLAIMS // 2 :, 1:] = 10 * DELTA
    holds = rates(means, seed=5)[0]
    assert holds[:, : CLAIMS // 2].all(1).mean() > 0.999
    assert holds[:, CLAIMS // 2 :].any(1).mean() <= LEVEL + 3 * error_of(LEVEL)


@pytest.mark.parametrize("nets", [3, 10])
def test_few_nets_keep_the_level(nets):
    means = np.full((CLAIMS, PARTS), 10 * DELTA)
    means[:, 0] = -DELTA
    assert rates(means, seed=6, nets=nets)[0].any(1).mean() <= LEVEL + 3 * error_of(LEVEL)


def test_skewed_relative_differences_with_zeros_keep_the_level():
    # W1 of one rule is that of the other over 1.05, up to noise; a tenth of the nets has no W1 above floor.
    rng = np.random.default_rng(7)
    shape = (TIMES, CLAIMS, NETS)
    other = np.exp(rng.normal(0, 1, shape))
    one = other * 1.05 * np.exp(rng.normal(0, 0.2, shape))
    nothing = rng.random(shape) < 0.1
    difference = np.where(nothing, 0.0, (other - one) / ((other + one) / 2))
    truth = difference.mean()  # over millions of nets: known to .0002, where a t test's error is .035
    tests = t_tests(difference, truth)
    for p in (tests.above, tests.below):
        rate = (holm(p) <= LEVEL).any(1).mean()
        assert rate <= LEVEL + 3 * error_of(LEVEL)


def test_three_margins_are_found():
    above = np.full((CLAIMS, PARTS), 3 * DELTA)
    below = np.full((CLAIMS, PARTS), 3 * DELTA)
    below[:, 0] = -3 * DELTA
    assert rates(above, seed=8)[0].mean(0).min() > 0.9
    assert rates(below, seed=9)[1].mean(0).min() > 0.9


# Intervals ------------------------------------------------------------------------------------------------


def coverage(crossed, nets, inputs, between, shared, seed):
    """How often a t interval on net means covers the true mean of net, input and their sum.

    `between` is the variance of nets, `shared` that of inputs; `crossed` gives every net the same inputs.
    """
    rng = np.random.default_rng(seed)
    net = rng.normal(0, math.sqrt(between), (TIMES, nets, 1))
    rows = 1 if crossed else nets
    effect = net + rng.normal(0, math.sqrt(shared), (TIMES, rows, inputs))
    tests = t_tests(effect.mean(-1))
    return (np.abs(tests.mean) <= tests.half_width).mean()


@pytest.mark.parametrize("inputs", [1, 3])
def test_intervals_cover_where_every_net_has_its_own_inputs(inputs):
    covered = coverage(False, NETS, inputs, between=0.16, shared=0.84, seed=10)
    assert covered == pytest.approx(0.95, abs=3 * error_of(0.95))


def test_intervals_fail_where_all_nets_share_their_inputs():
    # 84 % of the variance lies between inputs. The nets' own scatter knows nothing of it: the interval is
    # too short by a known factor, and covers what a t variable blown up by that factor does.
    nets, inputs, between, shared = NETS, 10, 0.16, 0.84
    blown_up = math.sqrt((between / nets + shared / inputs) / (between / nets))
    expected = 1 - 2 * stats.t.sf(stats.t.ppf(0.975, nets - 1) / blown_up, nets - 1)
    covered = coverage(True, nets, inputs, between, shared, seed=11)
    assert covered == pytest.approx(expected, abs=3 * error_of(expected))
    assert covered < 0.5
