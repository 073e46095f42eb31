import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from sdp_bench.oracles.estimate.multiplicity import holm
from sdp_bench.reports.statistics.verdicts import (
    LEVEL,
    Outcome,
    Verdict,
    Verdicts,
    decide,
    p_of_every_part,
    p_of_some_part,
    sign_tests,
)
from tests.calibration.candidates import DATA, TESTS
from tests.calibration.rate import SIGNIFICANCE

SAMPLES = arrays(
    float,
    st.integers(1, 40),
    elements=st.integers(-50, 50).map(float) | st.sampled_from([-math.inf, math.inf]),
)
THRESHOLDS = st.integers(-60, 60).map(float)


@given(SAMPLES, THRESHOLDS)
def test_p_is_the_binomial_probability_of_as_many_signs(effects, threshold):
    tests = sign_tests(effects, threshold)
    more, less = int((effects > threshold).sum()), int((effects < threshold).sum())
    assert (tests.more, tests.less) == (more, less)
    for p, count in ((tests.above, more), (tests.below, less)):
        assert p == pytest.approx(
            stats.binomtest(count, len(effects), alternative="greater").pvalue, rel=1e-12
        )


@given(SAMPLES, THRESHOLDS)
def test_the_interval_is_of_thresholds_that_neither_side_rejects(effects, threshold):
    tests = sign_tests(effects, threshold)
    if len(effects) < 6:
        assert np.isnan([tests.low, tests.high]).all()
        assert min(tests.above, tests.below) > LEVEL / 2
    else:
        assert tests.low <= tests.high
        rejected = tests.above <= LEVEL / 2, tests.below <= LEVEL / 2
        assert rejected == (threshold < tests.low, threshold > tests.high)


@pytest.mark.parametrize("nets", [6, 9, 10, 30, 60])
def test_the_interval_is_that_of_scipy(nets):
    effects = np.random.default_rng(nets).exponential(size=nets)
    exact = stats.quantile_test(effects, p=0.5).confidence_interval(1 - LEVEL)
    tests = sign_tests(effects)
    assert (tests.low, tests.high) == (exact.low, exact.high)
    assert tests.median == np.median(effects)


@given(SAMPLES, THRESHOLDS, st.sampled_from([np.exp2, np.arctan, lambda x: 3 * x + 1]))
def test_the_scale_of_an_effect_does_not_matter(effects, threshold, monotone):
    tests, moved = sign_tests(effects, threshold), sign_tests(monotone(effects), monotone(threshold))
    assert (moved.above, moved.below) == (tests.above, tests.below)


@given(SAMPLES, THRESHOLDS)
def test_the_other_side_is_the_mirror_image(effects, threshold):
    tests, mirrored = sign_tests(effects, threshold), sign_tests(-effects, -threshold)
    assert (mirrored.above, mirrored.below) == (tests.below, tests.above)
    np.testing.assert_array_equal([mirrored.low, mirrored.high], [-tests.high, -tests.low])


def test_many_effects_are_tested_at_once():
    effects = np.random.default_rng(0).normal(size=(2, 3, 12))
    tests = sign_tests(effects, [[0.1], [-0.1]])
    for row, threshold in enumerate((0.1, -0.1)):
        for column in range(3):
            one = sign_tests(effects[row, column], threshold)
            assert (tests.above[row, column], tests.low[row, column]) == (one.above, one.low)


def test_what_equals_the_threshold_up_to_rounding_or_is_no_number_counts_on_neither_side():
    tests = sign_tests([0.1, 0.3 - 0.2, 0.1, math.nan, 0.2], 0.1)
    assert (tests.more, tests.less) == (1, 0)
    assert (tests.above, tests.below) == (1 - 0.5**5, 1)


def test_no_nets_are_refused():
    with pytest.raises(ValueError, match="one net or more, not 0"):
        sign_tests([])


def test_of_ten_candidates_only_the_sign_test_keeps_its_level_for_every_law():
    table = pd.read_csv(DATA)
    null = table[table["shift"] == 0]
    errors = (null["significant"] * null["trials"]).round()
    too_large = stats.binom.sf(errors - 1, null["trials"], null["level"]) < SIGNIFICANCE
    assert set(null["test"]) == set(TESTS)
    assert set(null["test"]) - set(null["test"][too_large]) == {"sign"}


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
