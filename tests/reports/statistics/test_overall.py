import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sdp_bench.bench.metrics import recorded_metric
from sdp_bench.reports.statistics.ranking import Overall, Replicates, rank
from sdp_bench.reports.style.names import RuleTraits
from tests.reports import made_up
from tests.reports.made_up import TRAITS


def value_as_score(metric, values, floors):
    return np.asarray(metric.score(values, floors))


def frame(*rows):
    """Measurements of (sigma, net, input, rule, value)."""
    fixed = {"activation": "relu", "depth": 1.0, "network": "4-100-3", "recipe": "", "noise": "gaussian"}
    made = made_up.table("sigma net input rule value", rows, **fixed, metric="tv_headline", floor=0.0)
    return made.assign(rule=made["rule"].astype("category"))


def test_places_count_alike_however_many_units_they_have():
    rows = [(1.0, f"net {n}", 0, "sdp", 0.1) for n in range(5)] + [(10.0, "net 0", 0, "sdp", 0.5)]
    rows += [(sigma, net, input_index, "dvia", 0.4) for sigma, net, input_index, *_ in rows]
    overall = Overall.from_measurements(frame(*rows), value_as_score, TRAITS)
    assert overall.mean("sdp") == pytest.approx(0.3)
    assert overall.rules == ("sdp", "dvia")
    assert (overall.settings, overall.measured_settings) == (2, 2)


def test_a_rule_that_lacks_many_places_is_left_out_and_a_place_that_a_rule_lacks():
    sigmas = range(1, 11)
    rows = []
    for sigma in sigmas:
        rows.append((sigma, "net", 0, "sdp", 0.1))
        rows.append((sigma, "net", 0, "unscented", 0.2))
        rows.append((sigma, "net", 0, "oracle_moments", 0.0))
        if sigma < 4:
            rows.append((sigma, "net", 0, "dvia", 0.0))
        if sigma < 9:
            rows.append((sigma, "net", 0, "marginal_sdp", 0.3))
    overall = Overall.from_measurements(frame(*rows), value_as_score, TRAITS)
    assert overall.rules == ("sdp", "unscented", "marginal_sdp")
    assert (overall.settings, overall.measured_settings) == (8, 10)


def test_a_place_where_one_net_lacks_a_rule_is_left_out():
    rows = []
    for sigma in range(1, 11):
        for net in range(3):
            rows.append((sigma, f"net {net}", 0, "unscented", 0.2))
            if (sigma, net) != (10, 2):
                rows.append((sigma, f"net {net}", 0, "sdp", 0.1))
    overall = Overall.from_measurements(frame(*rows), value_as_score, TRAITS)
    assert (overall.settings, overall.measured_settings) == (9, 10)


@pytest.mark.parametrize("alone", ["net", "input"])
def test_with_one_net_or_one_input_the_interval_is_that_of_student(alone):
    values = np.random.default_rng(0).uniform(0.1, 0.9, 7)
    rows = []
    for number, value in enumerate(values):
        net, input_index = (number, 0) if alone == "net" else ("net", number)
        rows.append((1.0, net, input_index, "sdp", value))
        rows.append((1.0, net, input_index, "dvia", value * 0.5))
    overall = Overall.from_measurements(frame(*rows), value_as_score, TRAITS)
    low, high = stats.t.interval(0.95, 6, values.mean(), stats.sem(values))
    assert overall.half_width("sdp") == pytest.approx((high - low) / 2)
    expected = stats.ttest_rel(values * 0.5, values, alternative="less").pvalue
    assert overall.p_better("dvia", ["sdp"]) == pytest.approx([expected])
    assert overall.beats("dvia", "sdp")
    assert not overall.beats("sdp", "dvia")


def test_what_a_net_adds_at_all_places_is_added_before_it_is_squared():
    # A net that is off by the same everywhere is one draw, at however many places it was seen.
    effects = np.array([-0.2, 0.0, 0.1, 0.3])
    rows = [
        (sigma, f"net {n}", 0, rule, 0.5 + effect)
        for sigma in range(1, 21)
        for n, effect in enumerate(effects)
        for rule in ("sdp", "dvia")
    ]
    overall = Overall.from_measurements(frame(*rows), value_as_score, TRAITS)
    assert overall.half_width("sdp") == pytest.approx(stats.t.ppf(0.975, 3) * stats.sem(effects))


def test_with_too_few_nets_and_inputs_nothing_is_claimed():
    rows = [(1.0, n, 0, rule, value) for n in (0, 1) for rule, value in (("sdp", 0.1), ("dvia", 0.9))]
    overall = Overall.from_measurements(frame(*rows), value_as_score, TRAITS)
    assert math.isnan(overall.half_width("sdp"))
    assert not overall.beats("sdp", "dvia")


@pytest.mark.parametrize("inputs", [1, 2])
def test_one_net_in_each_setting_shows_no_spread_of_nets(inputs):
    rows = [
        (sigma, f"net {sigma}", k, rule, value + 0.1 * k * sigma)
        for sigma in (1.0, 2.0, 3.0, 4.0)
        for k in range(inputs)
        for rule, value in (("sdp", 0.1), ("dvia", 0.4))
    ]
    overall = Overall.from_measurements(frame(*rows), value_as_score, TRAITS)
    assert math.isnan(overall.half_width("sdp"))
    assert not overall.beats("sdp", "dvia")


def test_intervals_hold_as_often_as_they_say():
    """Each rule is a trial: its effects of nets and inputs are independent of those of other rules."""
    rng, trials = np.random.default_rng(1), 400
    nets, inputs = rng.normal(0, 0.1, (2, trials, 6))
    rows = [
        (sigma, n, k, f"rule {trial}", 0.5 + nets[trial, n] + inputs[trial, k] + rng.normal(0, 0.05))
        for sigma, n, k, trial in itertools.product((1.0, 2.0), range(6), range(6), range(trials))
    ]
    overall = Overall.from_measurements(frame(*rows), value_as_score, TRAITS)
    hits = sum(abs(overall.mean(rule) - 0.5) <= overall.half_width(rule) for rule in overall.rules)
    assert len(overall.rules) == trials
    # conservative by design: never below 95 % by more than four standard errors
    assert hits / trials >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / trials)


def test_one_rule_is_nothing_to_compare():
    assert Overall.from_measurements(frame((1.0, "net", 0, "sdp", 0.1)), value_as_score, TRAITS) is None
    references = frame((1.0, "net", 0, "oracle_moments", 0.1), (1.0, "net", 0, "oracle_again", 0.1))
    assert Overall.from_measurements(references, value_as_score, TRAITS) is None


def test_without_a_known_standard_error_a_single_pair_is_tied():
    row = pd.DataFrame({"net": "a", "input": 0.0, "rule": ["sdp", "dvia"], "value": [0.1, 0.11]})
    row = row.assign(floor=0.0, stderr=0.001)
    for spec, tied in (
        ("tv_paper:bin_range=quantiles", False),
        ("tv_paper:bin_range=minmax", False),
        ("tv_paper:bin_range=joint", True),
        ("tv_single", True),
    ):
        best = rank(Replicates.of(recorded_metric(spec), row, RuleTraits()), ("sdp", "dvia")).best
        assert best == (("sdp", "dvia") if tied else ("sdp",)), spec
