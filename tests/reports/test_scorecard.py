import html
import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sdp_bench.bench.validation.result import Candidate
from sdp_bench.reports.recommendation.comparisons import comparisons
from sdp_bench.reports.recommendation.judging import cost_tables
from sdp_bench.reports.scorecard.page import Scorecard, build, page
from sdp_ref.conformance import CheckResult, ConformanceReport
from sdp_ref.conformance.report import VERSION
from tests.reports.made_up import FEW, NO_FAILURES, TRAITS, Results, checked, frame, meta

OWN = (*FEW, "marginal_sdp", "monte_carlo:samples=10", "monte_carlo:samples=1000")
ALL = ("iris-tv", "iris-w1", "iris-std")
AFFINE = CheckResult(
    "affine",
    "Is it exact on affine nets?",
    "failed",
    "covariance off <by far>",
    {"error": 0.5, "tolerance": 1e-6},
    "net = nn.Linear(2, 2)\nrule.propagate(net, x)",
)
SYMMETRY = CheckResult("symmetry", "Is it symmetric?", "passed", "8 cases")
MOMENTS = CheckResult("moments", "Are they exact?", "skipped", "it does not claim them")
REPORT = ConformanceReport("mine", (AFFINE, SYMMETRY, MOMENTS))


def with_mine(nets=4, depths=(1,), factor=0.5, rules=FEW, experiments=("iris-tv",)):
    """Made-up measurements in which `mine` has a fixed share of SDP's distances."""
    data = frame(depths=depths, nets=nets, inputs=1, rules=rules, experiments=experiments)
    ours = data[data.rule == "sdp"].assign(rule="mine")
    ratio = ours.metric == "std_ratio"
    value = ours.value.where(ratio, ours.value * factor)
    ours = ours.assign(value=value.where(~ratio, ours.value**factor))
    return checked(pd.concat([data, ours], ignore_index=True))


def block(found, metric):
    return next(each for each in found if each.metric.name == metric)


def test_a_rule_with_half_the_distance_of_sdp_is_better_everywhere():
    data = with_mine(experiments=ALL)
    found = comparisons(data, "mine", TRAITS)
    for name in ("tv_headline", "tv_paper", "tv_class", "w1", "bures"):
        each = block(found, name)
        assert each.tally("sdp") == {"better": len(each.settings)}, name
    # at half its |log ratio|, with outputs averaged
    assert not block(found, "std_ratio").tally("sdp")["worse"]
    back = comparisons(data, "sdp", TRAITS)
    assert block(back, "tv_headline").tally("mine") == {"worse": 5}
    for each in comparisons(with_mine(factor=1.0, experiments=ALL), "mine", TRAITS):
        assert each.tally("sdp") == {"level": len(each.settings)}
        assert all(setting.comparisons["sdp"].gain == 0 for setting in each.settings)


def test_gain_and_interval_are_those_of_the_paired_t_test():
    data = with_mine(nets=5)
    setting = block(comparisons(data, "mine", TRAITS), "tv_headline").settings[1]
    chosen = data[(data.metric == "tv_headline") & (data.sigma == setting.sigma)]
    sides = chosen.pivot_table("value", "net", "rule")
    difference = sides["dvia"] - sides["mine"]
    interval = stats.ttest_1samp(difference, 0).confidence_interval()
    comparison = setting.comparisons["dvia"]
    assert comparison.gain == pytest.approx(difference.mean())
    ends = [comparison.gain + sign * comparison.half_width for sign in (-1, 1)]
    assert ends == pytest.approx(list(interval))
    better = stats.ttest_rel(sides["dvia"], sides["mine"]).pvalue <= 0.05
    assert (comparison.outcome in ("better", "worse")) == better
    assert setting.value == pytest.approx(1 - sides["mine"].mean())
    ranks = sides.drop(columns=["oracle_moments"], errors="ignore").mean().rank()
    assert setting.rank == ranks["mine"]


def test_two_nets_rest_on_the_measurements_errors_and_sampling_on_its_bound():
    data = with_mine(nets=2)
    setting = block(comparisons(data, "mine", TRAITS), "tv_headline").settings[0]
    assert setting.fixed
    chosen = data[(data.metric == "tv_headline") & (data.sigma == setting.sigma)]
    errors = chosen[chosen.rule.isin(["mine", "dvia"])].stderr
    assert setting.comparisons["dvia"].half_width == pytest.approx(1.959964 * np.sqrt((errors**2).sum()) / 2)
    errors = chosen[chosen.rule == "mine"].stderr.to_numpy()
    drawn = np.hypot(chosen[chosen.rule == "monte_carlo:samples=100"].stderr.to_numpy(), 0.5 / np.sqrt(100))
    expected = 1.959964 * np.sqrt((errors**2 + drawn**2).sum()) / 2
    assert setting.comparisons["monte_carlo:samples=100"].half_width == pytest.approx(expected)


def test_of_a_ratio_the_mean_absolute_logarithm_counts():
    data = with_mine(nets=3, experiments=("iris-std",))
    setting = block(comparisons(data, "mine", TRAITS), "std_ratio").settings[0]
    own = data[(data.metric == "std_ratio") & (data.sigma == setting.sigma) & (data.rule == "mine")]
    by_net = np.log(own.value).abs().groupby(own.net).mean()
    assert setting.value == pytest.approx(np.exp(by_net).mean())
    assert setting.count == 3


def test_rules_are_ranked_by_the_scores_of_the_metric():
    """By the distance from the floor, where that is the correct value, and not by the smallest value."""
    data = with_mine(nets=3)
    data = data[(data.metric == "tv_class") & data.rule.isin(["mine", "sdp"])]
    value = np.where(data.rule == "mine", 0.9, 0.8) + 1e-3 * data["seed"].to_numpy()
    coverage = data.assign(metric="coverage", metric_spec="coverage", value=value, floor=0.9, floor95=0.91)
    (found,) = comparisons(checked(coverage), "mine", TRAITS)
    assert (found.ranking, found.rank) == (("mine", "sdp"), 1)


def test_an_infinite_distance_loses_to_a_finite_one():
    data = with_mine(experiments=("iris-std",))
    lost = (data.rule == "dvia") & (data.metric == "bures") & (data.sigma == 1.0)
    data.loc[lost, "value"] = math.inf
    settings = block(comparisons(data, "mine", TRAITS), "bures").settings
    (setting,) = (setting for setting in settings if setting.sigma == 1.0)
    assert setting.comparisons["dvia"].outcome == "better"


def test_a_setting_where_the_rule_failed_has_no_value():
    data = with_mine()
    data = data[~((data.rule == "mine") & (data.sigma == 10.0))]
    each = block(comparisons(data, "mine", TRAITS), "tv_headline")
    assert [setting.sigma for setting in each.settings if not setting.measured] == [10.0]
    assert sum(each.tally("sdp").values()) == 4


def test_costs_are_multiples_of_sdp_and_samples():
    data = with_mine(rules=OWN)
    data.loc[data.rule == "mine", "seconds"] = 4e-3
    (table,) = cost_tables(data, TRAITS)
    assert table.times_sdp("mine") == pytest.approx((2.0, 2.0))
    # Made-up sampling takes 2e-4 s and 2e-6 s a sample.
    assert table.by_rule["mine"].samples == pytest.approx((4e-3 - 2e-4) / 2e-6, rel=1e-3)


def judged(candidate, data, failures=NO_FAILURES):
    (verdict,) = Scorecard.of(Results(data, {}, failures), [candidate]).verdicts
    return verdict


def test_the_verdict_says_what_was_found():
    data = with_mine()
    failing = judged(Candidate("mine", "mine.py:Mine", report=REPORT), data)
    assert f"kit {VERSION}, 2 of 3 checks ran: 1 passed, 1 failed, 1 not applicable" in failing.details
    assert "failed affine: covariance off <by far>" in failing.details
    assert re.search("mine fails 1 of the 2 .*affine.*sdp-bench check-rule mine.py:Mine", failing.last)
    known = ConformanceReport("mine", (replace(AFFINE, known="as published"), SYMMETRY))
    for candidate, words in (
        (Candidate("mine", report=known), r"only its declared faults \(affine\)"),
        (Candidate("mine", report=ConformanceReport("mine", (SYMMETRY,))), "passes .*; more accurate than"),
        (Candidate("mine", report=ConformanceReport("mine", (MOMENTS,))), "no check applies"),
        (Candidate("mine"), "was not checked"),
        (Candidate("mine", trouble="it hung"), "the conformance kit did not finish"),
    ):
        assert re.search(words, judged(candidate, data).last), words
    assert "it was not measured" in judged(Candidate("mine"), data[data["rule"] != "mine"]).last
    hung = judged(Candidate("mine", trouble="it hung"), data).details
    assert re.search("did not finish: it hung; .* from earlier", hung)


def test_the_verdict_counts_places_and_names_the_worst_as_the_comparisons_have_them():
    data = with_mine(depths=(1, 2), factor=1.3)
    each = block(comparisons(data, "mine", TRAITS), "tv_headline")
    said = judged(Candidate("mine"), data).details
    tally = each.tally("sdp")
    assert tally["worse"] > 3
    (line,) = (text for text in said.splitlines() if "iris-tv: worse than SDP" in text)
    worst, comparison = min(each.against("sdp"), key=lambda pair: pair[1].gain)
    assert f"in {tally['worse']} of 10 settings: {worst.label} (".replace("\xa0", " ") in line
    assert f"{worst.value:.4f} against {comparison.value:.4f}" in line
    assert f"{comparison.gain:.4f} ± {comparison.half_width:.4f}" in line
    assert line.endswith(f"; and {tally['worse'] - 3} more")
    far = max(each.measured, key=lambda setting: setting.shortfall)
    assert f"largest error at {far.label}: {far.value:.4f}".replace("\xa0", " ") in said
    assert f"(exact distribution {far.floor:.4f}, detection limit {far.floor95:.4f})" in said
    assert "worse than SDP in no setting" in judged(Candidate("mine"), with_mine()).details


def test_the_page_stands_alone_and_holds_everything(tmp_path):
    failures = pd.DataFrame(
        [("net 1", "mine", None, "ValueError: <oops>", 0.1, "failed")], columns=[*NO_FAILURES]
    )
    candidate = Candidate("mine", "mine.py:Mine", "0123456789abcdef", REPORT)
    results = Results(with_mine(rules=OWN), meta() | {"command": "sdp-bench validate mine.py:Mine"}, failures)
    path = build(Scorecard.of(results, [candidate], ["a note"]), tmp_path / "card")
    text = path.read_text()
    for part in (
        "mine.py:Mine", "0123456789abcdef", "covariance off &lt;by far&gt;",
        "rule.propagate(net, x)", "2 of 3 checks ran", "ValueError: &lt;oops&gt;", "a note",
        "sdp-bench validate mine.py:Mine", 'id="figure-sigma"', 'id="figure-front"',
    ):  # fmt: skip
        assert part in text, part
    assert not re.findall(r'(?:src|href)="(?!#|data:|conformance\.json|results\.csv)', text)
    assert json.loads((path.parent / "conformance.json").read_text()) == {"mine": REPORT.as_dict()}
    assert len(pd.read_csv(path.parent / "results.csv")) == len(results.frame)
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in re.findall(r'href="(#[^"]+)"', text)} <= set(ids)


def test_many_measurements_of_a_scorecard_are_a_parquet_table(tmp_path, monkeypatch):
    monkeypatch.setattr("sdp_bench.reports.page.MOST_MEASUREMENTS", 3)
    card = Scorecard.of(Results(with_mine(), meta(), NO_FAILURES), [Candidate("mine", report=REPORT)])
    text = build(card, tmp_path).read_text()
    assert 'href="results.parquet"' in text
    assert 'href="results.csv"' not in text
    assert len(pd.read_parquet(tmp_path / "results.parquet")) == len(card.results.frame)


def test_what_was_measured_stays_and_a_report_of_another_rule_goes(tmp_path):
    measured = Results(with_mine(), meta(), NO_FAILURES)
    build(Scorecard.of(measured, [Candidate("mine", report=REPORT)]), tmp_path)
    before = (tmp_path / "results.csv").read_bytes()
    nothing = Results(pd.DataFrame(), {"command": "sdp-bench validate x.py:X"}, pd.DataFrame())
    path = build(Scorecard.of(nothing, [Candidate("x", trouble="it hung")]), tmp_path)
    assert (tmp_path / "results.csv").read_bytes() == before
    assert not (tmp_path / "conformance.json").exists()
    assert 'href="results.csv"' not in path.read_text()


def own_net(inputs):
    activation = "own:theirs.py:build"
    return checked(frame(depths=(2,), nets=1, inputs=inputs, rules=OWN, activation=activation))


def answer_of(data, use, sigma=1.0):
    found = Scorecard.of(Results(data, meta(), NO_FAILURES), [], own_net=True).answers
    return next(each for each in found if (each.use.name, each.sigma) == (use, sigma))


def judged_net(data):
    (verdict,) = Scorecard.of(Results(data, meta(), NO_FAILURES), [], own_net=True).verdicts
    return verdict


def with_distances(inputs, seconds, **distances):
    data = own_net(inputs)
    data = data[data.rule.isin(distances)]
    # Equal differences at all inputs would be judged by their signs alone.
    number = data.groupby("input").ngroup()
    shift = np.select(
        [data.rule == "marginal_sdp", data.rule == "sdp"], [1e-4 * (-1.0) ** number, 1e-3 * number]
    )
    return data.assign(
        value=data.value.where(data.metric != "tv_headline", data.rule.map(distances) + shift),
        stderr=1e-4,
        seconds=data.rule.map(seconds),
    )


@pytest.mark.parametrize("inputs", [1, 8])
def test_the_cheapest_rule_tied_with_the_best_is_recommended(inputs):
    seconds = {"sdp": 1e-3, "dvia": 0.1, "marginal_sdp": 0.01}
    data = with_distances(inputs, seconds, sdp=0.3, dvia=0.1, marginal_sdp=0.1)
    answer = answer_of(data, "whole distribution")
    assert set(answer.ranking.best) == {"dvia", "marginal_sdp"}
    assert answer.rule == "marginal_sdp"
    assert answer.linear.is_small_here is False
    assert answer.error.score == pytest.approx(0.1, abs=1e-3)
    assert answer.error.is_small_here is False  # an exact rule has 0.01
    assert answer.linear.score == pytest.approx(0.3, abs=1e-2)


@pytest.mark.parametrize("inputs", [1, 8])
def test_sampling_is_recommended_where_it_is_best(inputs):
    """Also with fewer than three inputs, by the bound of its spread: .158 of one draw of ten samples."""
    sampling = "monte_carlo:samples=10"
    data = with_distances(inputs, {"sdp": 1e-3, sampling: 0.1}, **{"sdp": 0.9, sampling: 0.1})
    answer = answer_of(data, "whole distribution")
    assert answer.ranking.worse == ("sdp",)
    assert "10 samples, 100 ms per input" in judged_net(data).details


def test_errors_have_direction_and_unit():
    data, use = own_net(6), "standard deviations and intervals"
    noise = np.random.default_rng(0).normal(0, 1e-3, len(data))

    def said(ratio):
        changed = data.assign(value=data.value.where(data.metric != "std_ratio", ratio + noise))
        return "".join(answer_of(changed, use).linear.text)

    assert said(1.2).endswith("% too large")
    assert re.match(r"standard deviations 3\.3\d* \(.* to .*\) times too small", said(0.3))
    assert "points" in answer_of(data, "class").linear.text[2]


def test_the_worst_input_of_all_noise_levels_is_reported():
    data = own_net(6)
    data.loc[data.metric == "tv_class", "value"] = 1e-3
    worst = (data["metric"] == "tv_class") & (data["input"] == data["input"].max())
    data.loc[worst, "value"] = 0.03
    data.loc[worst & (data["sigma"] == 10.0), "value"] = 0.043
    verdict = judged_net(data)
    number = f"{data['input'].max():g}"
    words = rf"class, σ\s=\s0\.1 to 1000: .* points, at worst 4\.30 points \(input {number}\)"
    assert re.search(words, verdict.details)
    assert answer_of(own_net(1), "class").error.worst_text == ""


@pytest.mark.parametrize("inputs", [1, 2, 10, 298])
def test_too_few_inputs_are_accurate_for_themselves_alone(inputs):
    """With a share p of inputs of error 1, n inputs have no error with probability (1 - p)^n."""
    data = own_net(inputs)
    data = data[(data["metric"] == "tv_class") & (data["sigma"] == 1.0)].assign(value=0.0, floor=0.0)
    answer = answer_of(data, "class")
    assert (answer.error.is_small, answer.error.is_small_here) == (None, True)
    here = "this input" if inputs == 1 else f"these {inputs} inputs"
    rest = f"for {here} (undecided for others: measure 300 inputs or more)"  # 0.99^299 < 0.05
    assert answer.accuracy == f"accurate enough {rest}"
    assert answer.trust == f"rely on it {rest}"
    assert f"rely on it {rest}" in judged_net(data).last


def test_many_accurate_inputs_are_enough():
    data = own_net(299)
    data = data[(data["metric"] == "tv_class") & (data["sigma"] == 1.0)].assign(value=0.0, floor=0.0)
    answer = answer_of(data, "class")
    assert (answer.accuracy, answer.trust) == ("accurate enough", "rely on it")
    one_wrong = data.assign(value=data["value"].where(data["input"] != data["input"].max(), 0.9))
    assert answer_of(one_wrong, "class").error.is_small is None


def test_an_error_above_the_assumed_largest_leaves_the_answer_undecided():
    data, use = own_net(299), "standard deviations and intervals"
    data = data[(data["metric"] == "std_ratio") & (data["sigma"] == 1.0)].assign(value=1.001)
    assert answer_of(data, use).error.is_small
    data.loc[data["input"] == data["input"].max(), "value"] = 3.1
    error = answer_of(data, use).error
    assert (error.is_small, error.is_small_here) == (None, True)
    assert math.isinf(error.needed)


def test_a_limit_of_the_total_class_error_includes_the_share_of_finitely_many_samples():
    """With the measured 0.012 and the floor 0.004, the true class error is between 0.008 and 0.012."""
    data = own_net(20)
    chosen = (data["metric"] == "tv_class") & (data["sigma"] == 1.0)
    data = data[chosen].assign(value=0.012, floor=0.004, stderr=1e-6)
    for value, small in ((0.0099, True), (0.012, None), (0.0141, False)):
        assert answer_of(data.assign(value=value), "class").linear.is_small_here is small


def test_the_page_and_the_terminal_say_which_rule_to_take_for_a_net():
    results = Results(own_net(inputs=4), meta(), NO_FAILURES)
    card = Scorecard.of(results, [], ["2 outputs"], own_net=True)
    text = html.unescape(page(card))
    assert "Which rule for this net" in text
    assert "theirs.py:build" in text
    (verdict,) = card.verdicts
    assert all(f"<li>{line}</li>" in text for line in verdict.lines)
    assert f"{verdict.conclusion}." in text
    assert "linearisation (SDP" in verdict.last
    card = Scorecard.of(results, [Candidate("dvia")], own_net=True)
    assert [verdict.subject for verdict in card.verdicts] == ["DVIA", "which rule for theirs.py:build"]
    assert 'id="answer"' in page(card)


def test_the_best_built_in_rule_has_the_lowest_mean_over_settings():
    data = with_mine()
    compared = block(comparisons(data, "mine", TRAITS), "tv_headline")
    distances = data[(data["metric"] == "tv_headline") & data["rule"].isin(compared.others)]
    best = TRAITS.label(distances.groupby("rule", observed=True)["value"].mean().idxmin())
    details = judged(Candidate("mine"), data).details
    assert f"compared with {best}, the best built-in rule: better in" in details


def test_rules_of_the_same_kind_drop_correlations_too():
    data = checked(frame(depths=(1,), nets=4, inputs=1))
    details = judged(Candidate("marginal_sdp"), data).details
    (line,) = (text for text in details.splitlines() if "iris-tv: compared with rules of its kind" in text)
    assert line.split("kind: ")[1].startswith("marginal moment matching better in")
    assert "SDP" not in line


def test_the_worst_ratio_is_a_factor_in_both_directions():
    data, use = own_net(6), "standard deviations and intervals"
    for ratio in (0.8, 1.25):
        changed = data.assign(value=data.value.where(data.metric != "std_ratio", ratio))
        assert answer_of(changed, use).linear.worst_text.startswith("a factor of 1.250 ")


@pytest.mark.parametrize(("ratio", "factor"), [(0.5, "2.00"), (1e-320, "∞")])
def test_the_worst_ratio_is_that_of_a_single_output(ratio, factor):
    data, use = own_net(3), "standard deviations and intervals"
    is_ratio = data["metric"] == "std_ratio"
    one = data[is_ratio].drop_duplicates(["input", "sigma", "rule"]).assign(component="0", value=1.0)
    other = one.assign(component="1")
    is_worst = (other["input"] == other["input"].min()) & (other["sigma"] == 1.0)
    other.loc[is_worst, "value"] = ratio
    both = checked(pd.concat([data[~is_ratio], one, other], ignore_index=True))
    number = f"{other['input'].min():g}"
    assert answer_of(both, use).linear.worst_text == f"a factor of {factor} (output 1 at input {number})"


def test_an_uncertainty_budget_is_a_section_and_a_table(tmp_path):
    row = {"sigma": 0.1, "input": 0, "output": 0, "note": "", "linear": 0.5}
    shares = {"first": 0.25, "first_low": 0.2, "first_high": 0.3, "total": 0.75, "total_low": 0.7}
    rows = [
        row | shares | {"total_high": 0.8, "group": "speed", "largest": "yes"},
        row | dict.fromkeys([*shares, "total_high"], math.nan) | {"group": "<b>", "largest": "undecided"},
    ]
    card = Scorecard.of(Results(pd.DataFrame(), {}), [], budget=rows)
    text = build(card, tmp_path).read_text()
    assert "<td>75.0 ± 5.0</td><td>25.0 ± 5.0</td><td>50.0</td><td>1 of 1</td>" in text
    assert "<td>–</td><td>–</td><td>50.0</td><td>0 of 1</td>" in text
    assert "<b>" not in text
    assert pd.read_csv(tmp_path / "budget.csv")["group"].tolist() == ["speed", "<b>"]
    assert any("largest speed: speed 75.0 % (70.0 to 80.0" in line for line in card.budget_lines)
    without = Scorecard.of(Results(pd.DataFrame(), {}), [])
    assert 'id="budget"' not in build(without, tmp_path).read_text()
    assert not (tmp_path / "budget.csv").exists()
    assert without.budget_lines == []
