"""Intervals of ranks, and the order of rules in halves of the settings."""

import itertools

import numpy as np
import pytest
from scipy import stats

from sdp_bench.reports.statistics.ranking import Overall, rank_intervals
from sdp_bench.reports.statistics.stability import MOST_SPLITS, split_halves

RULES = ("a", "b", "c", "d", "e")


def compared(values):
    """Rules by their values on nets with the same input, shape (nets, rules)."""
    means = values.mean(0)
    order = np.argsort(means, kind="stable")
    ordered = values[:, order]
    nets = np.arange(len(values))
    deviations = (ordered - ordered.mean(0)) / len(values)
    rules = tuple(RULES[index] for index in order)
    return Overall(rules, ordered.mean(0)[None], deviations, nets, np.zeros_like(nets), 1)


def holm(p_values, level):
    """Whether the hypotheses are rejected, by the definition of Holm's method."""
    order = np.argsort(p_values)
    steps = np.array(p_values)[order] <= level / np.arange(len(p_values), 0, -1)
    rejected = np.zeros(len(p_values), dtype=bool)
    rejected[order[: len(steps) if steps.all() else int(np.argmin(steps))]] = True
    return rejected


def test_the_interval_of_a_rank_is_that_of_paired_t_tests_with_holms_correction():
    rng = np.random.default_rng(4)
    lengths = set()
    for _ in range(30):
        values = rng.normal(0.1 * np.arange(5), 0.1, (8, 5)) + rng.normal(0, 0.3, (8, 1))
        found = rank_intervals(compared(values), RULES)
        for index, rule in enumerate(RULES):
            others = [other for other in range(5) if other != index]
            p_values = [stats.ttest_rel(values[:, index], values[:, other]).pvalue for other in others]
            differs = holm(p_values, 0.05)
            is_better = values.mean(0)[others] < values.mean(0)[index]
            expected = 1 + int((differs & is_better).sum()), 5 - int((differs & ~is_better).sum())
            assert found[rule] == expected
            lengths.add(expected[1] - expected[0])
    assert len(lengths) > 2


def test_intervals_contain_the_true_rank():
    """Standard error of the share of 500 trials: at most .01."""
    rng = np.random.default_rng(6)
    missed = np.zeros(5)
    trials = 500
    for _ in range(trials):
        values = rng.normal(0.05 * np.arange(5), 0.1, (6, 5))
        intervals = rank_intervals(compared(values), RULES)
        missed += [not low <= rank <= high for rank, (low, high) in enumerate(map(intervals.get, RULES), 1)]
    assert (missed / trials <= 0.05 + 3 * 0.01).all()


def test_rules_that_differ_by_rounding_are_not_told_apart():
    values = np.random.default_rng(0).uniform(0.1, 0.9, (8, 1)) * np.array([1, 1 + 1e-15, 3])
    assert rank_intervals(compared(values), RULES[:3]) == {"a": (1, 2), "b": (1, 2), "c": (3, 3)}


def test_the_smallest_significant_difference_is_that_of_a_paired_t_test():
    values = np.random.default_rng(2).normal(0, 0.1, (7, 2))
    differences = values[:, 0] - values[:, 1]
    low, high = stats.t.interval(0.95, 6, differences.mean(), stats.sem(differences))
    assert compared(values).significant_difference("a", "b") == pytest.approx((high - low) / 2)


def orders(scores, nets, chosen):
    """Mean scores over some settings, with one weight for each net, by a loop."""
    means = [scores[[k for k in chosen if nets[k] == net]].mean(0) for net in {nets[k] for k in chosen}]
    return np.mean(means, axis=0)


@pytest.mark.parametrize("count", [4, 7])
def test_halves_are_compared_by_kendalls_tau_over_all_splits(count):
    rng = np.random.default_rng(count)
    scores, nets = rng.normal(np.arange(5), 1.0, (count, 5)), np.arange(count) // 3
    found = split_halves(RULES, scores, nets)
    taus, same_best, ranks = [], [], []
    for chosen in itertools.combinations(range(count), count // 2):
        rest = [k for k in range(count) if k not in chosen]
        halves = [orders(scores, nets, chosen), orders(scores, nets, rest)]
        taus.append(stats.kendalltau(*halves).statistic)
        same_best.append(halves[0].argmin() == halves[1].argmin())
        ranks += [stats.rankdata(half) for half in halves]
    assert found.splits == len(taus)
    assert found.tau == pytest.approx(np.median(taus))
    assert (found.low, found.high) == pytest.approx(np.quantile(taus, (0.025, 0.975)))
    assert found.same_best == pytest.approx(np.mean(same_best))
    assert found.same_order == pytest.approx(np.mean(np.isclose(taus, 1)))
    whole = stats.rankdata(orders(scores, nets, range(count)))
    assert list(found.same_rank.values()) == pytest.approx((np.array(ranks) == whole).mean(0))


def test_many_settings_are_split_at_random_and_always_alike():
    scores = np.random.default_rng(1).normal(0, 1, (20, 5))
    found = split_halves(RULES, scores, np.arange(20))
    assert found == split_halves(RULES, scores, np.arange(20))
    assert found.splits == MOST_SPLITS
    assert found.low < found.tau < found.high


def test_an_order_that_holds_in_every_setting_is_stable():
    scores = np.arange(5) + np.random.default_rng(1).uniform(0, 0.5, (6, 1))
    found = split_halves(RULES, scores, np.arange(6))
    assert (found.tau, found.low, found.high, found.same_order, found.same_best) == (1, 1, 1, 1, 1)
    assert set(found.same_rank.values()) == {1}


def test_one_setting_or_one_rule_has_no_halves():
    assert split_halves(RULES, np.zeros((1, 5)), np.zeros(1, dtype=int)) is None
    assert split_halves(("a",), np.zeros((4, 1)), np.arange(4)) is None
