import itertools
import math
import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, ttest_1samp

from sdp_bench.reports.sections.choice import (
    OFF,
    ON,
    UNDECIDED,
    WhichRule,
    against_sampling,
    as_accurate,
    bands_of,
    choice,
    choice_figures,
    how_often_best,
    names,
)
from sdp_bench.reports.statistics.costs import Costs, SamplingTime
from sdp_bench.reports.statistics.ranking import Ranking, Replicates
from tests.reports import made_up
from tests.reports.made_up import TRAITS, Results, checked

MC = {f"monte_carlo:samples={k}": k for k in (5, 10, 100, 1000)}


def measured(
    distances, seconds=None, nets=8, inputs=1, sigmas=(1.0,), noise=0.002, depth=4, seed=0, own=False, **more
):
    """TV of each rule (a number or one a sigma) with a spread that nets share, and one of each rule's own."""
    rng = np.random.default_rng(seed)
    rows = []
    for net, place, (number, sigma) in itertools.product(range(nets), range(inputs), enumerate(sigmas)):
        shared = rng.normal(0, 0.05)
        for rule, distance in distances.items():
            distance = distance[number] if isinstance(distance, tuple) else distance
            time = (seconds or {}).get(rule, 2e-4 + 2e-6 * MC.get(rule, 400))
            subject = {"depth": depth, "net": f"net {depth} {net}", "seed": net, "sigma": sigma, "rule": rule}
            subject |= {"network": "4" + "-100" * depth + "-3", "seconds": time}
            subject |= {"input": place + (inputs * net if own else 0)}
            rows.append(made_up.row(distance + shared + rng.normal(0, noise), **subject | more))
    return checked(pd.DataFrame(rows))


SAMPLED = {rule: 0.6 / math.sqrt(k) + 0.3 for rule, k in MC.items()}


def only(frame):
    """The one band of a choice, and its first place."""
    (band,) = bands_of(choice(frame, TRAITS))
    return band, band.conditions[0]


def answer(condition, budget):
    return next(each for each in condition.rankings if each.budget == budget)


def test_a_rule_that_is_slower_is_on_the_front_if_it_is_more_accurate():
    _, condition = only(measured({"sdp": 0.2, "dvia": 0.4}, {"sdp": 1e-3, "dvia": 1e-2}))
    assert (condition.standing("sdp").front, condition.standing("dvia").front) == (ON, OFF)
    assert condition.standing("dvia").beaten_by == "sdp"
    _, condition = only(measured({"marginal_sdp": 0.7, "sdp": 0.2}, {"marginal_sdp": 1e-4, "sdp": 1e-3}))
    assert {each.front for each in condition.standings} == {ON}
    contest = condition.rankings[-1].best
    assert (contest.leader, contest.tied) == ("sdp", ())


def test_rules_that_are_alike_are_tied_and_the_slower_one_is_undecided():
    frame = measured({"sdp": 0.2, "dvia": 0.2}, {"sdp": 1e-3, "dvia": 1e-2}, noise=0.05)
    _, condition = only(frame)
    contest = condition.rankings[-1].best
    assert {contest.leader, *contest.tied} == {"sdp", "dvia"}
    assert condition.standing("dvia").front == UNDECIDED


def test_the_best_rule_depends_on_sigma():
    frame = measured(
        {"sdp": (0.1, 0.3, 0.6), "moment_matching": (0.2, 0.2, 0.3)}, sigmas=(0.1, 1.0, 10.0), noise=0.001
    )
    (band,) = bands_of(choice(frame, TRAITS))
    assert [c.rankings[-1].best.leader for c in band.conditions] == [
        "sdp",
        "moment_matching",
        "moment_matching",
    ]
    counts = how_often_best([band])
    assert counts.attrs == {"fully connected": 3}
    assert counts["best"].to_dict() == {"moment_matching": 2, "sdp": 1}


def test_what_the_time_allows_is_taken_and_sampling_is_a_candidate():
    seconds = {"sdp": 2e-4 + 2e-6 * 400, "moment_matching": 1.0}
    distances = {"sdp": 0.31, "moment_matching": 0.2} | SAMPLED
    band, condition = only(measured(distances, seconds))
    assert band.budgets == (10, 100, 1000, math.inf)
    assert answer(condition, 10).best.leader == "monte_carlo:samples=10"
    assert answer(condition, 10).deterministic is None
    assert answer(condition, 100).best.leader == "monte_carlo:samples=100"
    assert answer(condition, 1000).best.leader == "sdp"  # 0.31 against 0.319 of k = 1000
    assert answer(condition, math.inf).best.leader == "moment_matching"


def test_cost_in_samples_is_that_of_the_line_through_sampling_times():
    band, _ = only(measured({"sdp": 0.2, "dvia": 0.3} | SAMPLED, {"sdp": 1e-3, "dvia": 0.1}))
    assert band.costs.sampling.overhead == pytest.approx(2e-4)
    assert band.costs.sampling.per_sample == pytest.approx(2e-6)
    assert band.costs.misfit == pytest.approx(1)
    assert band.costs.by_rule["sdp"].samples == pytest.approx(400)
    assert band.costs.by_rule["dvia"].samples == pytest.approx(49_900)
    assert band.costs.by_rule["monte_carlo:samples=100"].samples == 100


def test_times_are_the_fastest_of_an_architecture_and_the_geometric_mean_over_depths():
    quick, slow = measured({"sdp": 0.2}, {"sdp": 1e-3}), measured({"sdp": 0.2}, {"sdp": 4e-3}, depth=6)
    busy = measured({"sdp": 0.2}, {"sdp": 5.0}, sigmas=(10.0,))
    costs = Costs.from_measurements(pd.concat([quick, slow, busy]), TRAITS)
    assert costs.by_rule["sdp"].seconds == pytest.approx(2e-3)


def test_a_time_below_the_overhead_costs_no_sample():
    time = SamplingTime.fit({5: 1.1e-3, 100: 3e-3, 1000: 21e-3})
    assert time.samples(5e-4) == 0
    assert SamplingTime.fit({5: 1e-3}) is None
    assert SamplingTime.fit({5: 1e-3, 10: 1e-3}) is None  # more samples take no longer: no price of one


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (0.5, ("<", 5)),
        (0.4, ("", 5)),
        (0.35, ("", math.sqrt(5 * 10))),
        (0.3, ("", 10)),
        (0.2, ("", 100)),
        (0.19, (">", 100)),
    ],
)
def test_samples_that_are_as_accurate(score, expected):
    sign, count = as_accurate(score, {5: 0.4, 10: 0.3, 100: 0.2})
    assert (sign, pytest.approx(count)) == expected


def test_if_accuracy_does_not_grow_with_samples_the_fewest_samples_count():
    assert as_accurate(0.3, {5: 0.4, 10: 0.3, 100: 0.5, 1000: 0.2}) == ("", pytest.approx(10))
    assert as_accurate(0.3, {5: 0.4}) is None


def test_rules_with_equal_numbers_are_tied():
    frame = measured({"sdp": 0.2, "dvia": 0.2}, noise=0.0)
    contest = only(frame)[1].rankings[-1].best
    assert {contest.leader, *contest.tied} == {"sdp", "dvia"}


def test_a_spread_that_nets_share_does_not_hide_a_difference():
    """The pairs differ by 0.02 ± 0.003, the nets by 0.05: an unpaired comparison would be undecided."""
    frame = measured({"sdp": 0.2, "dvia": 0.22})
    best = only(frame)[1].rankings[-1].best
    assert (best.leader, best.tied) == ("sdp", ())
    assert only(frame)[1].standing("sdp").half_width > 0.02


def test_references_are_not_candidates():
    frame = measured({"sdp": 0.3, "dvia": 0.4, "oracle_moments": 0.1})
    assert [standing.rule for standing in only(frame)[1].standings] == ["sdp", "dvia"]


def test_rules_are_listed_with_sample_counts_together():
    rules = [
        "monte_carlo:samples=100",
        "sdp",
        "monte_carlo:samples=5",
        "monte_carlo:samples=100,sampler=sobol",
    ]
    assert names(rules, TRAITS) == "SDP, MC 100, Sobol and MC 5, 100"
    assert names(["sdp"], TRAITS) == "SDP"


def test_the_best_rule_is_nearly_always_the_leader_or_tied_with_it():
    """The share of 800 runs has a standard error of 0.008."""
    rng = np.random.default_rng(8)
    rules = ("sdp", "dvia", "unscented", "moment_matching")
    net = np.arange(6)
    no_errors = np.zeros((6, 4))
    one_input = np.zeros(6, int)
    kept, runs = 0, 800
    for _ in range(runs):
        values = rng.normal([0.0, 0.01, 0.01, 0.5], 0.02, (6, 4))
        replicates = Replicates(rules, values, no_errors, net, one_input, frozenset())
        contest = replicates.contest(rules)
        kept += "sdp" in {contest.leader, *contest.tied}
        assert "moment_matching" not in {contest.leader, *contest.tied}
    assert kept / runs >= 0.95 - 3 * 0.008


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(
    ("nets", "inputs", "own"), [(3, 1, False), (8, 1, False), (6, 5, False), (10, 10, False), (8, 3, True)]
)
def test_a_winner_between_equal_rules_is_claimed_in_one_of_twenty_at_most(nets, inputs, own, count):
    """Rules with effects of net, of input and of both, equal on average; standard error of 800 runs: .008."""
    rng = np.random.default_rng(7)
    rules = ("sdp", "dvia", "unscented")[:count]
    claimed, runs = 0, 800
    net, condition = np.indices((nets, inputs))
    net = net.ravel()
    condition = condition.ravel()
    number = np.arange(nets * inputs) if own else condition
    for _ in range(runs):
        values = rng.normal(0, 0.02, (nets, count))[net] + rng.normal(0, 0.01, (nets * inputs, count))
        if inputs > 1:
            values += rng.normal(0, 0.03, (number.max() + 1, count))[number]
        claimed += (
            Replicates(rules, values, np.zeros_like(values), net, number, frozenset()).contest(rules).tied
            == ()
        )
    assert claimed / runs <= 0.05 + 3 * 0.008


@pytest.mark.parametrize("inputs", [3, 5, 6, 12])
def test_on_inputs_of_one_net_a_better_rule_wins_on_significantly_many(inputs):
    """A t test alone is too liberal for few skewed errors; the sign test is exact."""
    rng = np.random.default_rng(0)
    for losses in (0, inputs // 4):
        gains = rng.uniform(0.09, 0.11, inputs)
        gains[:losses] = -0.001
        values = np.stack([np.zeros(inputs), gains], 1)
        no_errors, one_net = np.zeros(values.shape), np.zeros(inputs, dtype=np.int64)
        replicates = Replicates(
            ("sdp", "dvia"), values, no_errors, one_net, np.arange(inputs), frozenset(), signs=True
        )
        t = ttest_1samp(gains, 0, alternative="greater").pvalue
        sign = binomtest(inputs - losses, inputs, alternative="greater").pvalue
        assert replicates.p_better("sdp", ["dvia"])[0] == pytest.approx(max(t, sign), rel=1e-9)


def test_with_one_net_and_input_the_oracle_error_and_the_bound_of_sampling_count():
    distances = {"sdp": 0.3, "dvia": 0.3005, "unscented": 0.4, "monte_carlo:samples=10": 0.1}
    band, condition = only(measured(distances, {"unscented": 1e-5}, nets=1, noise=0.0))
    contest = condition.rankings[-1].best
    assert condition.fixed
    # One of 10 draws changes a total variation by 0.1 at most, so its standard deviation is at most 0.158.
    assert contest.leader == "monte_carlo:samples=10"
    assert set(contest.tied) == {"sdp", "dvia", "unscented"}
    half_width = condition.standing("monte_carlo:samples=10").half_width
    assert half_width == pytest.approx(1.96 * 0.5 / math.sqrt(10), rel=1e-3)
    deterministic = condition.rankings[-1].deterministic
    assert (deterministic.leader, deterministic.tied) == ("sdp", ("dvia",))  # 0.0005 against 0.00057
    _, many = only(measured({"sdp": 0.3, "monte_carlo:samples=1000": 0.1}, nets=1, noise=0.0))
    assert many.rankings[-1].best == Ranking("monte_carlo:samples=1000", worse=("sdp",))
    assert how_often_best([band]).empty
    assert against_sampling([band]).empty


def test_inputs_are_replicates_where_nets_are_too_few():
    _, condition = only(measured({"sdp": 0.2, "dvia": 0.4}, nets=1, inputs=5))
    assert not condition.fixed
    assert (condition.design, condition.rankings[-1].best.tied) == ("1 net × 5 inputs", ())


def test_depths_with_few_nets_are_judged_together_and_others_alone():
    rules = {"sdp": 0.2, "dvia": 0.4}
    parts = [measured(rules, nets=n, depth=depth) for depth, n in ((1, 1), (2, 2), (4, 5), (6, 1), (9, 2))]
    bands = bands_of(choice(pd.concat(parts, ignore_index=True), TRAITS))
    assert [band.depths for band in bands] == [(1, 2), (4,), (6, 9)]
    assert [band.title for band in bands] == ["1 and 2 ReLU layers", "4 ReLU layers", "6 and 9 ReLU layers"]
    assert bands[0].conditions[0].design == "3 nets × 1 input"


def test_recipes_of_one_depth_are_kept_apart():
    rules = {"sdp": 0.2, "dvia": 0.4}
    one = measured(rules, recipe="sgd 0.01")
    other = measured({"sdp": 0.4, "dvia": 0.2}, recipe="adam 0.001").assign(
        net=lambda f: f["net"].astype(str) + " adam"
    )
    bands = bands_of(choice(pd.concat([one, other], ignore_index=True), TRAITS))
    assert {(band.variant, band.conditions[0].rankings[-1].best.leader) for band in bands} == {
        ("sgd 0.01", "sdp"),
        ("adam 0.001", "dvia"),
    }


def test_a_rule_that_is_missing_somewhere_is_left_out_there():
    frame = measured({"sdp": 0.3, "dvia": 0.2, "unscented": 0.4})
    gone = (frame["rule"] == "dvia") & (frame["net"] == "net 4 3")
    assert [each.rule for each in only(frame[~gone])[1].standings] == ["sdp", "unscented"]


def test_other_metrics_stand_in_where_the_headline_is_missing():
    w1 = {"metric": "w1", "experiment": "iris-w1", "sigma": 0.1}
    both = pd.concat([measured({"sdp": 0.3, "dvia": 0.5}), measured({"sdp": 0.5, "dvia": 0.3}, **w1)])
    assert [band.metric.name for band in bands_of(choice(both, TRAITS))] == ["tv_headline"]
    band, condition = only(measured({"sdp": 0.5, "dvia": 0.3}, **w1))
    assert (band.metric.name, condition.rankings[-1].best.leader) == ("w1", "dvia")
    assert condition.standing("dvia").value < condition.standing("sdp").value
    (main, _) = choice_figures(choice(measured({"sdp": 0.5, "dvia": 0.3}, **w1), TRAITS))
    assert re.search("axis of .*distance.* inverted", main.caption)


def test_nothing_to_choose_from():
    assert choice(checked(pd.DataFrame()), TRAITS) == []
    assert choice(measured({"sdp": 0.2}), TRAITS) == []
    assert choice(measured({"sdp": 0.2, "oracle_moments": 0.1}), TRAITS) == []
    assert choice(measured({"sdp": 1.0, "dvia": 2.0}, metric="std_ratio", component="0"), TRAITS) == []


def test_without_sampling_times_there_is_one_budget_and_cost_in_seconds():
    band, condition = only(measured({"sdp": 0.2, "dvia": 0.4}))
    assert band.budgets == (math.inf,)
    assert math.isnan(band.costs.by_rule["sdp"].samples)
    assert condition.standing("sdp").worth is None
    (main, rest) = choice_figures(choice(measured({"sdp": 0.2, "dvia": 0.4}), TRAITS))
    assert not any("samples" in text for text in made_up.written(main.drawing.axes[0]))
    assert rest is None


def test_without_times_rules_are_still_compared_and_no_front_is_drawn():
    frame = measured({"sdp": 0.2, "dvia": 0.4}).assign(seconds=math.nan)
    _, condition = only(frame)
    assert condition.rankings[-1].best.leader == "sdp"
    assert {each.front for each in condition.standings} == {UNDECIDED}
    assert choice_figures(choice(frame, TRAITS)) == (None, None)


def test_settings_are_counted_by_the_time_of_sampling():
    frame = measured({"sdp": 0.2} | SAMPLED, {"sdp": 2e-4}, sigmas=(0.1, 1.0))
    bands = bands_of(choice(frame, TRAITS))
    assert how_often_best(bands).loc["sdp"].to_dict() == {
        "fully connected": "2 of 2",
        "best": 2,
        "time": "< 5",
    }
    counts = against_sampling(bands)
    assert list(counts.index) == [10, 100, 1000]
    assert (counts == [2, 0, 0]).all(axis=None)


@pytest.mark.parametrize("timed", [True, False])
def test_the_section_shows_what_to_take(timed):
    frame = checked(made_up.frame(depths=(2, 4), nets=3, experiments=("iris-tv",)))
    if not timed:
        frame["seconds"] = math.nan
    section, _ = made_up.page(Results(frame), [WhichRule()])
    assert ("time of 100 samples" in section) is timed
    assert ('id="figure-front"' in section) is timed
    assert "Best rule" in section
    assert section.count("<details") == section.count("</details>")
    assert section.count("<tbody>") == section.count("</tbody>")


def test_settings_are_counted_by_family_of_nets():
    parts = [measured({"sdp": 0.2})]
    for kind, network, worse in (
        ("vit", "vit 1x28x28", "sdp"),
        ("vit", "vit 3x32x32", "sdp"),
        ("decoder", "decoder 8x2", "sdp"),
        ("convnext", "convnext", "unscented"),
    ):
        distances = {"sdp": 0.1, "unscented": 0.1} | {worse: 0.4}
        name = {"activation": kind, "network": network, "net": network}
        parts.append(measured(distances, inputs=4, nets=1, metric="tv_principal", **name))
    bands = bands_of(choice(checked(pd.concat(parts)), TRAITS))
    counts = how_often_best(bands)
    assert counts.attrs == {"attention": 3, "convolution": 1}
    assert counts.loc["unscented", "attention"] == "3 of 3"
    assert counts.loc["sdp"].to_dict().items() >= {"convolution": "1 of 1", "attention": "0 of 3"}.items()
    titles = {band.title for band in bands}
    assert {"ViT (1x28x28)", "ViT (3x32x32)", "Causal decoder", "ConvNeXt"} <= titles
