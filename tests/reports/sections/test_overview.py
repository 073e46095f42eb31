import json

import numpy as np
import pandas as pd
import pytest

from sdp_bench.reports.sections.overview import USES, WORDS, brief, families, rows, which_rule
from sdp_bench.reports.sections.overview.distributions import DATA
from sdp_bench.reports.statistics.ranking import rank
from tests.reports import made_up
from tests.reports.made_up import TRAITS, checked
from tests.reports.record_distributions import compute


@pytest.fixture(scope="module")
def data():
    return checked(made_up.frame(nets=3, inputs=3))


@pytest.fixture(scope="module")
def result_by_use(data):
    return {row.use.title: row.results[0] for row in rows(families(data), TRAITS)}


def test_every_use_that_was_measured_has_a_row(result_by_use):
    assert list(result_by_use) == [
        use.title for use in USES if not use.heavy
    ]  # noise without a variance was not measured


def test_the_leader_has_the_best_mean_over_settings_of_the_rules_that_do_not_sample(data, result_by_use):
    measurements = data[data["metric"] == "tv_headline"]
    means = measurements.groupby(["depth", "sigma", "rule"], observed=True)["value"].mean()
    means = (
        means.groupby("rule", observed=True)
        .mean()
        .drop([rule for rule in measurements["rule"].unique() if TRAITS.is_sampling(rule)])
    )
    result = result_by_use["whole distribution"]
    assert result.rules == tuple(means.sort_values().index)
    best = result.rules[0]
    low, high = result.interval(best).split(" to ")
    assert float(result.value(best)) == pytest.approx(1 - means.min(), abs=0.005)
    assert float(low) <= float(result.value(best)) <= float(high)
    settings = len(measurements[["depth", "sigma"]].drop_duplicates())
    assert (result.overall.settings, result.overall.measured_settings) == (settings, settings)


def test_the_recommended_rule_is_the_cheapest_of_those_tied_with_the_most_accurate(result_by_use):
    result = result_by_use["whole distribution"]
    overall = rank(result.overall, result.overall.rules)
    tied = {overall.leader, *overall.tied}
    seconds = {rule: result.costs.by_rule[rule].seconds for rule in tied}
    assert result.advised == min(seconds, key=seconds.get)
    assert {rule for rule in result.overall.rules if TRAITS.is_sampling(rule)}  # they are compared as well


def test_without_a_spread_the_most_accurate_rule_is_recommended():
    frame = checked(made_up.frame(depths=(1,), nets=1, inputs=1, experiments=("iris-tv",)))
    for row in rows(families(frame), TRAITS):
        (result,) = row.results
        assert result.advised == result.overall.rules[0]


def test_errors_of_standard_deviations_are_factors(data, result_by_use):
    measurements = data[
        (data["metric"] == "std_ratio") & (data["rule"] == result_by_use["standard deviations"].rules[0])
    ]
    off = np.exp(
        np.abs(np.log(measurements["value"]))
        .groupby([measurements["depth"], measurements["sigma"]])
        .mean()
        .mean()
    )
    assert float(
        result_by_use["standard deviations"].value(result_by_use["standard deviations"].rules[0])
    ) == pytest.approx(off, abs=0.005)


def test_w1_is_shown_in_multiples_of_the_floor(data, result_by_use):
    result = result_by_use["W1"]
    measurements = data[(data["metric"] == "w1") & (data["rule"] == result.rules[0])]
    times = (
        np.log(measurements["value"] / measurements["floor"])
        .groupby([measurements["depth"], measurements["sigma"]])
        .mean()
        .mean()
    )
    assert float(result.value(result.rules[0])) == pytest.approx(np.exp(times), rel=0.005)


def test_intervals_end_at_no_shared_mass_and_may_reach_beyond_any_factor():
    data = checked(made_up.frame(nets=2, inputs=1))
    values = {"tv_headline": (0.85, 1.0), "std_ratio": (1.0, 1e300)}
    for metric, of_nets in values.items():
        measurements = data["metric"] == metric
        data.loc[measurements, "value"] = np.where(data["net"] == data["net"].iloc[0], *of_nets)[measurements]
    results_by_use = {row.use.title: row.results[0] for row in rows(families(data), TRAITS)}
    shared, factor = results_by_use["whole distribution"], results_by_use["standard deviations"]
    low, high = shared.interval(shared.rules[0]).split(" to ")
    assert float(low) == 0.0
    assert float(high) > float(shared.value(shared.rules[0]))
    assert factor.interval(factor.rules[0]).endswith("to ∞")


def test_nets_of_the_commonest_kind_are_judged_together():
    other = made_up.frame(depths=(1,), nets=1, activation="tanh")
    (named,) = families(checked(pd.concat([made_up.frame(), other])))
    assert named[0] == "small ReLU nets"
    assert set(named[1]["activation"]) == {"relu"}


@pytest.mark.slow
def test_the_picture_shows_the_distributions_of_a_committed_net():
    stored = json.loads(DATA.read_text(encoding="utf-8"))
    samples = 100_000
    for level, again in zip(stored, compute(samples, seed=1), strict=True):
        assert level["rules"] == {rule: pytest.approx(of, rel=1e-3) for rule, of in again["rules"].items()}
        for one in (level, again):  # mass on a common grid
            edges = np.linspace(*one["range"], len(one["density"]) + 1)
            one["mass"] = np.interp(
                np.linspace(*level["range"]), edges, [0, *np.cumsum(one["density"]) * np.diff(edges)]
            )
        # Kolmogorov's distance of samples from their distribution is below 1.95 / sqrt(n) with 99.9 %
        assert np.abs(level["mass"] - again["mass"]).max() < 0.006 + 1.95 / samples**0.5


def test_a_better_rule_with_too_few_settings_is_named(data):
    measurements = data[data["metric"] == "tv_headline"]
    some = measurements[
        (measurements["rule"] == "sdp") & (measurements["sigma"] == measurements["sigma"].min())
    ]
    better = some.assign(rule="split:k=9", value=0.01 * some["value"])
    (row,) = rows(families(pd.concat([measurements, better])), TRAITS)
    (result,) = row.results
    assert "split:k=9" not in result.overall.rules
    settings = result.overall.measured_settings
    assert result.partial.startswith(f"in {some['depth'].nunique()} of {settings} settings")


def test_answers_have_as_many_sentences_as_fit():
    sentences = ["one " * 20, "two " * 20, "three " * 20]
    assert len(brief(sentences).split()) == WORDS
    assert brief(["long " * 50]) == "long " * 50
    assert brief([]) == ""


def test_the_recommended_rule_is_named_for_the_whole_distribution_first(data, result_by_use):
    table = rows(families(data), TRAITS)
    text = which_rule(["small nets"], table, {}, TRAITS)
    action = TRAITS.action(result_by_use["whole distribution"].advised)
    assert text.startswith(f"Whole distribution: {action} on small nets.")
    assert len(text.split()) <= WORDS
