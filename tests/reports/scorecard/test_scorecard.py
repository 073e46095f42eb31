"""The scorecard: paired comparisons against direct computation, and a page that says what is known."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sdp_bench.reports.results import Results
from sdp_bench.reports.scorecard import page as scorecard
from sdp_bench.reports.scorecard.comparisons import comparisons
from sdp_bench.reports.scorecard.page import Candidate, build, judge, page
from sdp_bench.reports.tables.frame import checked
from tests.reports.made_up import NO_FAILURES, TRAITS, frame, meta

REPORT = {
    "rule": "mine",
    "passed": False,
    "ran": 2,
    "counts": {"passed": 1, "failed": 1, "skipped": 1},
    "unexpected": ["affine"],
    "checks": [
        {"name": "affine", "question": "Is it exact on affine nets?", "status": "failed",
         "detail": "covariance off <by far>", "numbers": {"error": 0.5, "tolerance": 1e-6},
         "example": "net = nn.Linear(2, 2)\nrule.propagate(net, x)", "known": None},
        {"name": "symmetry", "question": "Is it symmetric?", "status": "passed", "detail": "8 cases",
         "numbers": {}, "example": None, "known": None},
        {"name": "moments", "question": "Are they exact?", "status": "skipped",
         "detail": "it does not claim them", "numbers": {}, "example": None, "known": None},
    ],
}  # fmt: skip


def with_mine(nets=4, inputs=1, depths=(1,), factor=0.5, **options):
    """Made-up measurements in which `mine` has a fixed share of SDP's distances."""
    data = frame(depths=depths, nets=nets, inputs=inputs, **options)
    ours = data[data.rule == "sdp"].assign(rule="mine")
    ratio = ours.metric == "std_ratio"
    value = ours.value.where(ratio, ours.value * factor)
    ours = ours.assign(value=value.where(~ratio, ours.value**factor))
    return checked(pd.concat([data, ours], ignore_index=True))


def block(found, metric):
    return next(each for each in found if each.metric.name == metric)


def test_a_rule_with_half_the_distance_of_sdp_is_better_everywhere():
    found = comparisons(with_mine(), "mine", TRAITS)
    for name in ("tv_headline", "tv_paper", "tv_class", "w1", "bures"):
        each = block(found, name)
        assert each.tally("sdp") == {"better": len(each.conditions)}, name
    assert not block(found, "std_ratio").tally("sdp")[
        "worse"
    ]  # at half its |log ratio|, with outputs averaged
    back = comparisons(with_mine(), "sdp", TRAITS)
    assert block(back, "tv_headline").tally("mine") == {"worse": 5}


def test_a_copy_of_a_rule_is_level_with_it_everywhere():
    for each in comparisons(with_mine(factor=1.0), "mine", TRAITS):
        assert each.tally("sdp") == {"level": len(each.conditions)}
        assert all(condition.comparison("sdp").gain == 0 for condition in each.conditions)


def test_gain_and_interval_are_those_of_the_paired_t_test():
    data = with_mine(nets=5)
    condition = block(comparisons(data, "mine", TRAITS), "tv_headline").conditions[1]
    chosen = data[(data.metric == "tv_headline") & (data.sigma == condition.sigma)]
    sides = chosen.pivot_table("value", "net", "rule")
    difference = sides["dvia"] - sides["mine"]
    interval = stats.ttest_1samp(difference, 0).confidence_interval()
    comparison = condition.comparison("dvia")
    assert comparison.gain == pytest.approx(difference.mean())
    assert (
        comparison.gain - comparison.half_width,
        comparison.gain + comparison.half_width,
    ) == pytest.approx(tuple(interval))
    better = stats.ttest_rel(sides["dvia"], sides["mine"]).pvalue <= 0.05
    assert (comparison.outcome in ("better", "worse")) == better
    assert condition.value == pytest.approx(1 - sides["mine"].mean())
    ranks = sides.drop(columns=["oracle_moments"], errors="ignore").mean().rank()
    assert condition.rank == ranks["mine"]


def test_two_nets_rest_on_the_measurements_errors_and_sampling_is_not_judged():
    data = with_mine(nets=2)
    condition = block(comparisons(data, "mine", TRAITS), "tv_headline").conditions[0]
    assert condition.fixed
    chosen = data[(data.metric == "tv_headline") & (data.sigma == condition.sigma)]
    errors = chosen[chosen.rule.isin(["mine", "dvia"])].stderr
    assert condition.comparison("dvia").half_width == pytest.approx(1.959964 * np.sqrt((errors**2).sum()) / 2)
    assert condition.comparison("monte_carlo:samples=5").outcome == "unjudged"


def test_of_a_ratio_the_mean_absolute_logarithm_counts():
    data = with_mine(nets=3)
    condition = block(comparisons(data, "mine", TRAITS), "std_ratio").conditions[0]
    own = data[(data.metric == "std_ratio") & (data.sigma == condition.sigma) & (data.rule == "mine")]
    by_net = np.log(own.value).abs().groupby(own.net).mean()
    assert condition.value == pytest.approx(np.exp(by_net).mean())
    assert condition.count == 3


def test_an_infinite_distance_loses_to_a_finite_one():
    data = with_mine()
    lost = (data.rule == "dvia") & (data.metric == "bures") & (data.sigma == 1.0)
    data.loc[lost, "value"] = math.inf
    conditions = block(comparisons(data, "mine", TRAITS), "bures").conditions
    assert [condition.comparison("dvia").outcome for condition in conditions if condition.sigma == 1.0] == [
        "better"
    ]


def test_a_place_where_the_rule_failed_stays_without_a_value():
    data = with_mine()
    data = data[~((data.rule == "mine") & (data.sigma == 10.0))]
    each = block(comparisons(data, "mine", TRAITS), "tv_headline")
    assert [condition.sigma for condition in each.conditions if not condition.measured] == [10.0]
    assert sum(each.tally("sdp").values()) == 4


def test_costs_are_multiples_of_sdp_and_samples():
    data = with_mine()
    data.loc[data.rule == "mine", "seconds"] = 4e-3
    (table,) = scorecard.cost_tables(data, TRAITS)
    rows = {row.rule: row for row in table.rows}
    assert rows["mine"].times_sdp == pytest.approx(2.0)
    # Made-up sampling takes 2e-4 s and 2e-6 s a sample.
    assert rows["mine"].samples == pytest.approx((4e-3 - 2e-4) / 2e-6, rel=1e-3)


def verdict(candidate, data, failures=NO_FAILURES):
    return " ".join(
        judge(Results(data, {}, failures), candidate, scorecard.cost_tables(data, TRAITS)).verdict
    )


def test_the_verdict_says_what_was_found():
    data = with_mine()
    said = verdict(Candidate("mine", report=REPORT), data)
    assert said.startswith("mine fails 1 check (affine).")
    assert "against SDP 5 better, 0 worse" in said
    assert "times what SDP takes" in said
    passed = REPORT | {"passed": True, "unexpected": []}
    assert verdict(Candidate("mine", report=passed), data).startswith("mine passes 1 of the 2 conformance")
    nothing = passed | {"ran": 0}
    assert "so nothing is shown" in verdict(Candidate("mine", report=nothing), data)
    assert "was not run" in verdict(Candidate("mine"), data)
    assert "did not finish: it hung" in verdict(Candidate("mine", trouble="it hung"), data)
    assert "what is below was measured before" in verdict(Candidate("mine", trouble="it hung"), data)
    assert "Nothing was measured: mine has" in verdict(Candidate("mine", unmeasured=True), data)


def test_counts_say_what_ran():
    assert Candidate("mine", report=REPORT).counted == "2 of 3 checks ran: 1 passed, 1 failed, 1 skipped"
    known = REPORT | {"unexpected": []}
    assert "1 failed (1 of them a declared fault)" in Candidate("mine", report=known).counted


def test_the_page_stands_alone_and_holds_everything(tmp_path):
    failures = pd.DataFrame(
        [{"group": "net 1", "rule": "mine", "metric": "*", "error": "ValueError: <oops>", "seconds": 0.1}]
    )
    source = "class Mine:\n    '''A <rule>.'''\n"
    candidate = Candidate("mine", "mine.py:Mine", source, "0123456789abcdef", REPORT)
    results = Results(with_mine(), meta() | {"command": "sdp-bench validate mine.py:Mine"}, failures)
    path = build(results, [candidate], tmp_path / "card", ["a note"])
    text = path.read_text()
    for part in (
        "mine.py:Mine", "0123456789abcdef", "A &lt;rule&gt;.", "covariance off &lt;by far&gt;",
        "rule.propagate(net, x)", "2 of 3 checks ran", "ValueError: &lt;oops&gt;", "a note",
        "sdp-bench validate mine.py:Mine",
    ):  # fmt: skip
        assert part in text, part
    assert not re.findall(r'(?:src|href)="(?!#|data:|conformance\.json|results\.csv)', text)
    assert json.loads((path.parent / "conformance.json").read_text()) == {"mine": REPORT}
    assert len(pd.read_csv(path.parent / "results.csv")) == len(results.frame)
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in re.findall(r'href="(#[^"]+)"', text)} <= set(ids)


def test_a_page_without_measurements_shows_why():
    nothing = Results(pd.DataFrame(), {"command": "sdp-bench validate x.py:X"}, pd.DataFrame())
    text = page(nothing, [Candidate("x", trouble="TimeLimitError: stopped at the time limit of 5 s")])
    assert "The kit did not finish: TimeLimitError" in text


def test_what_was_measured_stays_and_a_report_of_another_rule_goes(tmp_path):
    build(Results(with_mine(), meta(), NO_FAILURES), [Candidate("mine", report=REPORT)], tmp_path)
    before = (tmp_path / "results.csv").read_bytes()
    nothing = Results(pd.DataFrame(), {"command": "sdp-bench validate x.py:X"}, pd.DataFrame())
    path = build(nothing, [Candidate("x", trouble="it hung")], tmp_path)
    assert (tmp_path / "results.csv").read_bytes() == before
    assert not (tmp_path / "conformance.json").exists()
    assert 'href="results.csv"' not in path.read_text()


def test_without_a_rule_the_page_says_which_to_take():
    data = checked(frame(depths=(2,), nets=1, inputs=4, activation="own:theirs.py:build"))
    text = page(Results(data, meta(), NO_FAILURES), [], ["2 outputs"])
    assert "Which rule for this net" in text
    assert "theirs.py:build" in text
    few = page(Results(data[data.input == data.input.min()], meta(), NO_FAILURES), [])
    assert "With fewer than three inputs no spread" in few


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (22, "22nd")],
)
def test_ordinals(number, text):
    assert scorecard.ordinal(number) == text
