"""The section on published nets, from made-up measurements."""

from dataclasses import replace

import pandas as pd
import pytest

from sdp_bench.reports.sections.compute import verdicts
from sdp_bench.reports.sections.overview import (
    families,
    results_on_published,
    rows,
    uses_that_differ,
    which_rule,
)
from sdp_bench.reports.sections.published_nets import PublishedNets, answers_by_net, outcomes, summary
from sdp_bench.reports.sections.published_nets.comparison import transfers
from tests.reports import made_up
from tests.reports.helpers import plain_text
from tests.reports.made_up import TRAITS, checked

COUNTS = (10, 100, 1000)
NETS = ("airfoil", "rnet", "silero")


def published(name, seed=0, experiments=("iris-tv", "iris-std"), rules=made_up.RULES):
    """Measurements of one published net at three noise levels."""
    frame = made_up.frame((1,), 1, 3, rules, experiments, seed)
    subject = {"experiment": "published", "network": f"published:{name} 4 to 3", "net": name}
    return frame[frame["sigma"] <= 10].assign(activation=f"own:published:{name}", noise="gaussian", **subject)


@pytest.fixture(scope="module")
def frame():
    return checked(pd.concat([published(name, seed) for seed, name in enumerate(NETS)]))


@pytest.fixture(scope="module")
def suite():
    return checked(made_up.frame(nets=3, inputs=3))


def with_errors(error):
    """A net on which linearisation has this error in class probabilities, and k samples 1 / k.

    Linearisation takes as long as 10 samples.
    """
    rules = ("sdp", *(f"monte_carlo:samples={count}" for count in COUNTS))
    frame = published("rnet", experiments=("iris-tv",), rules=rules)
    frame = frame[frame["metric"] == "tv_class"].assign(floor=0.0, floor95=0.0, stderr=0.0)
    counts = frame["rule"].str.extract(r"=(\d+)")[0].astype(float)
    return checked(frame.assign(value=(1 / counts).fillna(error), seconds=(counts / 1000).fillna(0.01)))


@pytest.mark.parametrize(
    ("error", "samples", "verdict"),
    [
        (0.001, ("", 1000.0), "inside"),  # accurate, and 1000 samples take 100 times as long
        (0.0001, (">", 1000.0), "inside"),
        (0.009, ("", 100 * 10 ** (1 / 9)), "inside"),  # linear in log k between 100 and 1000
        (0.1, ("<", 10.0), "sampling"),  # not accurate enough
        (0.5, ("<", 10.0), "sampling"),
    ],
)
def test_samples_that_are_as_accurate_as_linearisation(error, samples, verdict):
    (answers,) = answers_by_net(with_errors(error), TRAITS)
    assert set(answers.samples) == {("class", 0.1), ("class", 1.0), ("class", 10.0)}
    for bound, count in answers.samples.values():
        assert (bound, count) == (samples[0], pytest.approx(samples[1]))
    assert set(verdicts(pd.DataFrame(answers.judged))) == {verdict}
    is_accurate = verdict == "inside"
    assert summary(outcomes([answers])).loc["class", "accurate"] == (3 if is_accurate else 0)


def test_a_predicted_spread_of_0_is_an_inaccurate_linearisation():
    frame = published("rnet")
    is_linear = (frame["rule"] == "sdp") & (frame["metric"] == "std_ratio") & (frame["sigma"] == 1)
    (answers,) = answers_by_net(checked(frame.assign(value=frame["value"].mask(is_linear, 0.0))), TRAITS)
    use = "standard deviations and intervals"
    assert answers.infinite == {(use, 1.0)}
    counts = summary(outcomes([answers])).loc[use]
    assert counts["settings"] == 3
    assert counts["inaccurate"] >= 1


def test_published_nets_are_replicates_at_three_levels(frame):
    result = results_on_published(frame, TRAITS)["whole distribution"]
    assert result.overall.settings == 3
    assert result.overall.nets.max() + 1 == len(NETS)
    assert result.interval(result.advised)


def test_which_rule_is_answered_for_both_kinds_of_nets(frame, suite):
    named = families(suite)
    names = [name for name, _ in named]
    on_published = results_on_published(frame, TRAITS)
    text = which_rule(names, rows(named, TRAITS), on_published, TRAITS)
    action = TRAITS.action(on_published["whole distribution"].advised)
    assert text.startswith(
        f"Whole distribution: {action} on small ReLU nets and 3 published nets with this metric"
    )
    assert "published" not in which_rule(names, rows(named, TRAITS), {}, TRAITS)


def test_uses_with_other_recommendations_on_published_nets_are_listed(frame, suite):
    of_suite = rows(families(suite), TRAITS)
    same = {row.use.title: row.results[0] for row in of_suite if row.results[0]}
    assert uses_that_differ(of_suite, same) == []
    use, result = next(iter(same.items()))
    assert uses_that_differ(of_suite, same | {use: replace(result, advised="another")}) == [use]


def test_a_rule_that_some_published_nets_do_not_support_differs(frame, suite):
    best = next(iter(rows(families(suite), TRAITS))).results[0].advised
    is_left_out = (frame["rule"] == best) & (frame["net"] == "rnet")
    results = made_up.Results(suite)
    measured = frame[~is_left_out]
    published = results_on_published(measured, TRAITS)
    compared = {row.use.title: row for row in transfers(results, measured, published)}
    assert compared["class"].suite.advised == best
    assert compared["class"].verdict == "differs: the rule supports 2 of 3 nets"
    assert not compared["class"].is_compared


def test_the_page_answers_for_each_net(frame, suite):
    results = made_up.Results(pd.concat([frame, suite], ignore_index=True))
    context = PublishedNets().build(results)
    assert [answers.net.name for answers in context["nets"]] == list(NETS)
    page = made_up.rendered(PublishedNets(), **context)
    assert "Is linearisation enough?" in page
    assert page.count("<h3") == 4 + len(context["uses"])
    assert PublishedNets().build(made_up.Results(suite)) is None


@pytest.mark.parametrize(("error", "words"), [(0.001, "yes, yes, yes"), (0.5, "no, no, no")])
def test_the_first_table_says_whether_linearisation_is_enough(suite, error, words):
    results = made_up.Results(pd.concat([with_errors(error), suite], ignore_index=True))
    page = made_up.rendered(PublishedNets(), **PublishedNets().build(results))
    assert f"{words} 3 1,000,000 accurate in" in plain_text(page)  # inputs and samples follow


def test_nothing_is_recommended_if_most_rules_are_tied(frame, suite):
    named = families(suite)
    names = [name for name, _ in named]
    resolved = results_on_published(frame, TRAITS)["whole distribution"]
    tied = replace(resolved, ties=len(resolved.overall.rules))
    assert resolved.is_resolved
    assert not tied.is_resolved
    text = which_rule(names, rows(named, TRAITS), {"whole distribution": tied}, TRAITS)
    rules = len(resolved.overall.rules)
    tied_rules = f"{rules} of {rules} rules are tied"
    assert f"; on 3 published nets with this metric ({tied_rules}) it is undecided." in text
    assert (
        uses_that_differ(rows(named, TRAITS), {"whole distribution": replace(tied, advised="another")}) == []
    )
