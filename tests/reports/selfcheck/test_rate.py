"""A promised rate, and whether it is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sdp_bench.reports.selfcheck.rate import NOTHING, Rate


def rate(hits, trials, promised=(0.0, 0.05)):
    return Rate("floors", "what", "condition", promised, hits, trials)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_clopper_and_pearsons(counts):
    hits, trials = counts
    low, high = rate(hits, trials).interval
    assert low == pytest.approx(stats.beta.ppf(0.005, hits, trials - hits + 1) if hits else 0.0)
    assert high == pytest.approx(stats.beta.ppf(0.995, hits + 1, trials - hits) if hits < trials else 1.0)


def test_a_promise_is_broken_only_where_chance_does_not_explain_it():
    assert rate(5, 100).kept
    assert rate(10, 100).kept  # 4.1 to 19 %
    assert not rate(100, 1000).kept
    assert rate(940, 1000, (0.94, 0.96)).kept
    assert not rate(900, 1000, (0.94, 0.96)).kept
    assert not rate(990, 1000, (0.94, 0.96)).kept


def test_of_what_is_only_told_nothing_is_broken():
    told = rate(1000, 1000, NOTHING)
    assert told.kept
    assert not told.is_promise


@pytest.mark.parametrize("counts", [(1, 0), (-1, 5), (6, 5)])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(ValueError, match="hits must be 0 to trials"):
        rate(*counts)


@pytest.mark.parametrize("promised", [(0.5, 0.4), (-0.1, 0.5), (0.5, 1.1)])
def test_impossible_promises_are_refused(promised):
    with pytest.raises(ValueError, match="interval within"):
        rate(1, 2, promised)
