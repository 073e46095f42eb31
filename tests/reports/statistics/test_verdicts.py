import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize, stats

from sdp_bench.oracles.estimate.multiplicity import holm
from sdp_bench.reports.statistics.verdicts import (
    LEVEL,
    MANY_NETS,
    Outcome,
    Verdict,
    Verdicts,
    decide,
    mean_tests,
    p_of_every_part,
    p_of_some_part,
)


def worse_of_two(values, threshold, freedom):
    """p-value of "above", from the definitions: by Student's t and by Hall's transformation of it."""
    nets = len(values)
    t, skewness = (stats.ttest_1samp(values, threshold).statistic, stats.skew(values, bias=False))
    u = t / math.sqrt(nets)
    hall = math.sqrt(nets) * (
        u + skewness * u**2 / 3 + skewness**2 * u**3 / 27 + skewness / (6 * nets)
    )  # equation (5) of Hall 1992
    return max(stats.t.sf(t, freedom), stats.t.sf(hall, freedom))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("nets", "freedom"), [(12, 11 / 3 * 12 / 30), (30, 29 / 3), (60, 59 / 3)])
def test_p_is_the_larger_of_students_and_halls(seed, nets, freedom):
    effects = 0.05 - np.random.default_rng(seed).exponential(0.05, size=(2, nets))
    tests = mean_tests(effects, -0.01)
    for row, above, below in zip(effects, tests.above, tests.below, strict=True):
        assert above == pytest.approx(worse_of_two(row, -0.01, freedom), rel=1e-9)
        assert below == pytest.approx(worse_of_two(-row, 0.01, freedom), rel=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_the_interval_is_of_thresholds_that_neither_side_rejects(seed):
    effects = np.random.default_rng(seed).exponential(0.05, size=12)
    tests = mean_tests(effects)

    def above(threshold):
        return worse_of_two(effects, threshold, 11 / 3) - LEVEL / 2

    def below(threshold):
        return worse_of_two(-effects, -threshold, 11 / 3) - LEVEL / 2

    assert tests.mean == pytest.approx(effects.mean())
    assert tests.low == pytest.approx(optimize.brentq(above, tests.mean - 1, tests.mean), rel=1e-6)
    assert tests.high == pytest.approx(optimize.brentq(below, tests.mean, tests.mean + 1), rel=1e-6)
    assert tests.high - tests.mean > tests.mean - tests.low  # a long upper tail may have more to come


def test_of_many_symmetric_effects_the_test_is_students():
    effects = np.random.default_rng(1).normal(0.001, 0.05, size=20_000)
    tests = mean_tests(effects)
    less = stats.ttest_1samp(effects, 0, alternative="less").pvalue
    greater = stats.ttest_1samp(effects, 0, alternative="greater").pvalue
    interval = stats.ttest_1samp(effects, 0).confidence_interval(0.95)
    assert tests.below == pytest.approx(less, rel=1e-2)
    assert tests.above == pytest.approx(greater, rel=1e-2)
    assert (tests.low, tests.high) == pytest.approx((interval.low, interval.high), rel=1e-2)


SAMPLES = arrays(float, st.integers(3, 40), elements=st.integers(-50, 50).map(float)).filter(
    lambda values: np.ptp(values) > 0
)
THRESHOLDS = st.integers(-60, 60).map(float)


@given(SAMPLES, THRESHOLDS, st.integers(-9, 9), st.sampled_from([0.125, 3.0, 1e6]))
def test_units_and_origin_do_not_matter(effects, threshold, shift, scale):
    tests = mean_tests(effects, threshold)
    moved = mean_tests((effects + shift) * scale, (threshold + shift) * scale)
    sides = [float(tests.above), float(tests.below)]
    assert [float(moved.above), float(moved.below)] == pytest.approx(sides, rel=1e-6, abs=1e-12)
    ends = [(end + shift) * scale for end in (tests.low, tests.mean, tests.high)]
    assert [moved.low, moved.mean, moved.high] == pytest.approx(ends, rel=1e-9, abs=1e-9 * scale)


@given(SAMPLES, THRESHOLDS)
def test_the_other_side_is_the_mirror_image(effects, threshold):
    tests, mirrored = mean_tests(effects, threshold), mean_tests(-effects, -threshold)
    sides = [float(tests.below), float(tests.above)]
    assert [float(mirrored.above), float(mirrored.below)] == pytest.approx(sides, rel=1e-9)
    assert (mirrored.low, mirrored.high) == pytest.approx((-tests.high, -tests.low), rel=1e-9)


@given(SAMPLES, THRESHOLDS, st.floats(0, 50))
def test_larger_effects_or_a_lower_threshold_make_above_surer(effects, threshold, by):
    tests = mean_tests(effects, threshold)
    for easier in (mean_tests(effects + by, threshold), mean_tests(effects, threshold - by)):
        assert easier.above <= tests.above + 1e-12
        assert easier.below >= tests.below - 1e-12


@given(SAMPLES, THRESHOLDS)
def test_interval_and_test_do_not_contradict_each_other(effects, threshold):
    tests = mean_tests(effects, threshold)
    assert tests.low < tests.mean < tests.high
    assert tests.above + tests.below >= 1 - 1e-12
    if min(abs(threshold - tests.low), abs(threshold - tests.high)) < 1e-9:
        return
    rejected = tests.above <= LEVEL / 2, tests.below <= LEVEL / 2
    outside = threshold < tests.low, threshold > tests.high
    # Of few nets the tests ask for more than the interval does.
    assert rejected == outside if len(effects) >= MANY_NETS else rejected <= outside


@pytest.mark.parametrize(("effect", "above", "below"), [(0.1, 0.5, 1.0), (-0.1, 1.0, 0.5), (-0.01, 1.0, 1.0)])
@pytest.mark.parametrize(("nets", "signs"), [(5, 25 / 30), (15, 7.5), (30, 30), (40, 40)])
def test_without_spread_the_sign_test_stands_in(effect, above, below, nets, signs):
    tests = mean_tests([effect] * nets, -0.01)
    assert (tests.above, tests.below) == pytest.approx((above**signs, below**signs), rel=1e-12)
    assert (tests.low, tests.mean, tests.high) == pytest.approx((effect, effect, effect))


def test_a_spread_of_rounding_size_counts_as_zero():
    tests = mean_tests([0.1, 0.3 - 0.2, 0.1, 0.1], 0.1)
    assert (tests.above, tests.below) == (1, 1)


def test_two_nets_have_no_skewness():
    assert mean_tests([0.1, 0.3]).above == pytest.approx(stats.t.sf(2, 1 / 3 * 2 / 30), rel=1e-9)


def test_one_net_has_no_t():
    with pytest.raises(ValueError, match="two nets or more, not 1"):
        mean_tests([0.3])


def test_parts_and_claims_are_combined_by_hand():
    """Error rates of verdicts are simulated in tests/calibration/verdicts.py."""
    p = [[0.01, 0.04, 0.02], [0.3, 0.6, 0.5]]
    assert p_of_every_part(p).tolist() == [0.04, 0.6]
    assert p_of_some_part(p).tolist() == pytest.approx([0.03, 0.9])
    assert p_of_some_part([0.4, 0.6, 0.9]) == 1


def test_a_p_value_decides_up_to_the_level():
    assert decide(LEVEL, 1) is Verdict.SUPPORTED
    assert decide(LEVEL + 0.001, LEVEL) is Verdict.REFUTED
    assert decide(LEVEL + 0.001, LEVEL + 0.001) is Verdict.UNDECIDED


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


LETTERS = {verdict.name[0]: verdict for verdict in Verdict}


def verdicts(letters):
    """One convention a letter, named a, b, c ..."""
    return Verdicts({chr(97 + place): LETTERS[each] for place, each in enumerate(letters)})


@pytest.mark.parametrize(
    ("letters", "outcome", "words"),
    [
        ("", Outcome.NOT_MEASURED, "not measured"),
        ("S", Outcome.SUPPORTED, "supported"),
        ("SSSSSS", Outcome.SUPPORTED, "supported in all 6"),
        ("NSSS", Outcome.SUPPORTED, "supported in all 3; 1 not measured"),
        ("UUU", Outcome.UNDECIDED, "undecided in all 3"),
        ("RRR", Outcome.REFUTED, "refuted in all 3"),
        ("RRRURR", Outcome.REFUTED_OR_UNDECIDED, "refuted in 5 of 6; undecided in d"),
        ("NUURUU", Outcome.REFUTED_OR_UNDECIDED, "refuted in 1 of 5 (d); undecided in 4; 1 not measured"),
        ("SUU", Outcome.SUPPORTED_OR_UNDECIDED, "supported in 1 of 3 (a); undecided in b and c"),
        ("SSSR", Outcome.SUPPORTED_OR_REFUTED, "refuted in 1 of 4 (d); supported in 3"),
        (
            "SRUN",
            Outcome.SUPPORTED_OR_REFUTED,
            "refuted in 1 of 3 (b); supported in a; undecided in c; 1 not measured",
        ),
    ],
)
def test_no_word_stands_for_a_mixture(letters, outcome, words):
    assert verdicts(letters).outcome is outcome
    assert verdicts(letters).words == words
