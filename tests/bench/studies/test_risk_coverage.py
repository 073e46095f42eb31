import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdp_bench.bench.studies.selective.risk_coverage import perfect, risk_coverage

CASES = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=40)


def split(cases):
    return np.array([u for u, _ in cases], float), np.array([w for _, w in cases])


def test_a_case_by_hand():
    """Right, wrong, right, wrong: risk 0, 1/4, 1/4, 1/2 after 1/4, ..., 1."""
    curve = risk_coverage([0.1, 0.2, 0.3, 0.4], [False, True, False, True])
    assert curve.coverage.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert curve.risk.tolist() == [0, 0, 0.25, 0.25, 0.5]
    assert curve.area == (0 + 0.125 + 0.25 + 0.375) / 4
    assert curve.at([0.375, 1.0]).tolist() == [0.125, 0.5]


def test_perfect_is_an_eighth_for_halves():
    wrong = np.arange(20_000) >= 10_000
    assert risk_coverage(wrong.astype(float), wrong).area == perfect(0.5).area == 0.125
    assert perfect(0).area == 0
    assert perfect(1).area == 0.5
    assert perfect(0.5).at([0.25, 0.5, 0.75]).tolist() == [0, 0, 0.25]


@given(CASES)
def test_it_is_a_count_of_pairs(cases):
    uncertainty, wrong = split(cases)
    pairs = sum(
        float((uncertainty > u).sum()) + float((uncertainty == u).sum()) / 2
        for u, w in zip(uncertainty, wrong, strict=True)
        if w
    )
    assert risk_coverage(uncertainty, wrong).area == pytest.approx(pairs / len(cases) ** 2, abs=1e-14)


@given(CASES, st.randoms(use_true_random=False))
def test_neither_monotone_transforms_nor_the_order_of_inputs_change_it(cases, random):
    uncertainty, wrong = split(cases)
    curve = risk_coverage(uncertainty, wrong)
    shuffled = random.sample(range(len(cases)), len(cases))
    other = risk_coverage(np.exp(uncertainty[shuffled]) * 7 - 2, wrong[shuffled])
    np.testing.assert_array_equal(other.coverage, curve.coverage)
    np.testing.assert_array_equal(other.risk, curve.risk)


def test_an_uncertainty_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="not a number"):
        risk_coverage([1.0, np.nan], [True, False])


def test_one_uncertainty_for_all_inputs_is_the_diagonal():
    curve = risk_coverage(np.zeros(1000), np.arange(1000) < 300)
    assert curve.at(0.5) == 0.15
    assert curve.area == pytest.approx(0.15)


def test_infinite_uncertainties_come_last():
    assert risk_coverage([np.inf, 0.0, -np.inf], [True, False, False]).area == pytest.approx(1 / 18)


@given(CASES)
def test_no_order_is_better_than_the_perfect_one(cases):
    uncertainty, wrong = split(cases)
    error = wrong.mean()
    worst = error - error**2 / 2
    assert perfect(error).area - 1e-12 <= risk_coverage(uncertainty, wrong).area <= worst + 1e-12
