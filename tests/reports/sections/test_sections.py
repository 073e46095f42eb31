import dataclasses
import math
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sdp_bench.bench.experiments import experiment
from sdp_bench.oracles.exact.stable import NORMAL
from sdp_bench.oracles.exact.theorem import check_theorem
from sdp_bench.reports.sections.fidelity import fidelity
from sdp_bench.reports.sections.here import agreement
from sdp_bench.reports.sections.oracle import oracle_errors, precision
from sdp_bench.reports.sections.relu.relu import SIGMA, SingleReLU, nearer, wasserstein_over_mean
from sdp_bench.reports.sections.sensitivity import sensitivity
from tests.reports import made_up
from tests.reports.made_up import checked
from tests.reports.sections.helpers import HEADLINE, measurement_row, oracle_frame, sensitivity_frame


def test_variants_of_the_tables_choices():
    context = sensitivity(sensitivity_frame())
    assert [v["name"] for v in context["metrics"]] == [
        "headline, 512 cells",
        "paper-like, 10 bins, joint extremes",
        "paper-like, 10 bins, pilot quantiles",
    ]
    assert context["metrics"][0]["means"][0.1, "sdp"] == pytest.approx(0.7)
    leads = [v["means"][0.1, "sdp"] - v["means"][0.1, "dvia"] for v in context["metrics"]]
    assert [lead > 0 for lead in leads] == [False, True, True]
    sgd, adam = context["recipes"]
    assert [sgd["agreement"], adam["agreement"]] == pytest.approx([0, math.log(2)], abs=1e-12)
    assert (sgd["accuracy"], adam["accuracy"]) == (0.98, 0.5)
    text = " ".join(context["sentences"])
    assert "in 2 of 3 at σ\u00a0=\u00a00.1" in text
    assert re.search(r"from 0\.700 \(headline.*\) to 0\.900 \(paper-like", text)


def test_without_its_experiment_there_is_no_sensitivity():
    assert sensitivity(checked(made_up.frame(depths=(1,)))) is None
    assert sensitivity(checked(pd.DataFrame())) is None


def test_the_oracles_error():
    (context,) = oracle_errors(oracle_frame())
    assert (context["again"], context["below"]) == (4, 2)  # .011 lies below .012, .013 does not
    assert (context["moves"], context["shift"]) == (2, pytest.approx(0.002))
    assert context["largest"] == pytest.approx(2 / math.sqrt(2))
    assert context["rms"] == pytest.approx(math.sqrt((2 + 0.5) / 2))
    assert oracle_errors(checked(pd.DataFrame())) == []


def test_where_float64_was_needed():
    places = (
        ("relu", 0.1, None),
        ("relu", 0.1, "float64"),
        ("relu", 10.0, "float32"),
        ("sigmoid", 1.0, "float64"),
    )
    rows = [
        measurement_row("iris-tv", sigma, rule, HEADLINE, 0.3, activation=kind, input=place, precision=drawn)
        for place, (kind, sigma, drawn) in enumerate(places)
        for rule in ("sdp", "dvia")
    ]
    context = precision(checked(pd.DataFrame(rows)))
    assert (context["oracles"], context["unchecked"]) == (4, 1)
    assert context["double"] == [("4 ReLU layers", "0.1", "1 of 2"), ("4 sigmoid layers", "1", "1 of 1")]
    without = precision(oracle_frame())
    assert without == {"oracles": 2, "unchecked": 2, "double": []}
    assert precision(checked(pd.DataFrame()))["oracles"] == 0


def test_what_was_run():
    rows = [
        measurement_row(
            "iris-tv", sigma, "sdp", HEADLINE, 0.1, net=f"n{n}", input=i, accuracy=0.8 if n == 0 else 0.97
        )
        for sigma in experiment("iris-tv").sigmas
        for n in range(10)
        for i in range(10)
    ]
    rows += [measurement_row("iris-w1", 1.0, "sdp", "w1:w1_points=2000,w1_pairs=8", 0.1, net="n0")]
    rows += [
        measurement_row("iris-w1", 1.0, "sdp", "w1:w1_points=2000,w1_pairs=8", 0.1, net="n1", input=i)
        for i in (1, 2)
    ]
    tv, w1 = fidelity(checked(pd.DataFrame(rows)), 0.9)
    assert [tv[name] for name in ("nets", "inputs", "poor", "full")] == [10, "10", 1, True]
    less = fidelity(checked(pd.DataFrame(rows[:400])), 0.9)
    assert [design["full"] for design in less] == [False]  # one sigma is missing
    assert [w1[name] for name in ("nets", "inputs", "points", "full")] == [2, "1-2", 2000, False]


def test_the_page_shows_them():
    frame = pd.concat([sensitivity_frame(), oracle_frame()], ignore_index=True)
    shown = made_up.some("sensitivity", "oracle", "fidelity", "tables")
    text, _ = made_up.page(made_up.results(frame), shown)
    for anchor in ('id="sensitivity"', 'id="oracle"', 'id="fidelity"'):
        assert anchor in text
    assert "iris-sensitivity-relu" not in text  # no table by sigma and rule


def measured(**more):
    """Measurements of two experiments that share one of their three."""
    rows = [("iris-tv", "sdp", 0.25), ("iris-tv", "dvia", 0.5), ("iris-std", "sdp", 0.25)]
    frame = made_up.table(
        "experiment rule value", rows, unit="u", metric_spec="tv", component="", stderr=0.01
    )
    return frame.assign(component="", stderr=0.01).assign(**more)


def test_measurements_are_compared_with_their_counterparts():
    whole, (tv, std) = agreement(measured(value=[0.25 + 1e-13, 0.5 + 9e-5, 0.25]), measured())
    assert (whole.measured, whole.compared, whole.equal) == (2, 2, 2)
    assert (tv.measured, tv.equal, std.measured, std.equal) == (2, 2, 1, 1)
    assert "All 2 measurements" in whole.sentence
    whole, _ = agreement(measured(value=[0.27, 0.45, 0.27]), measured())
    assert whole.different["rule"].tolist() == ["dvia", "sdp"]  # the farthest first
    assert whole.different["gap"].tolist() == pytest.approx([5, 2])
    assert "2 of the 2 measurements" in whole.sentence
    assert "0 agree" in whole.sentence
    whole, _ = agreement(measured(), measured(unit=["v", "u", "v"]))
    assert (whole.measured, whole.compared, whole.equal) == (2, 1, 1)
    assert "1 has no counterpart" in whole.sentence
    nothing, _ = agreement(measured(), measured(unit="w"))
    assert nothing.sentence.startswith("None of the 2 measurements")


def test_a_difference_from_a_number_without_a_standard_error_is_infinite():
    here = measured(value=[0.27, 0.5, 0.27])
    whole, _ = agreement(here, measured(stderr=[math.nan, 0.01, math.nan]))
    assert whole.different["gap"].tolist() == [math.inf]


@pytest.fixture(scope="module")
def figure():
    return wasserstein_over_mean()


def test_sdp_is_off_by_the_mean_of_what_relu_moves(figure):
    sdp = figure[figure["rule"] == "sdp"]
    r = np.abs(sdp["mean"] / 0.1)
    expected = 0.1 * (stats.norm.pdf(r) - r * stats.norm.sf(r))
    np.testing.assert_allclose(sdp["w1"], expected, atol=1e-11)


def test_the_unit_does_not_matter(figure):
    scaled = wasserstein_over_mean(figure["mean"].unique() * 50, sigma=5.0)
    np.testing.assert_allclose(scaled["w1"] / 50, figure["w1"], rtol=1e-6, atol=1e-11)


def test_moment_matching_is_nearer_only_about_zero():
    """The paper's claim: SDP has the smaller W1 except for means very near 0."""
    ((low, high),) = nearer()
    assert -0.5 < low < 0 < high < 0.5
    for end in (low, high):
        ours, theirs = wasserstein_over_mean([end * SIGMA])["w1"]
        assert ours == pytest.approx(theirs, rel=1e-5)
    rest = nearer("sdp", "marginal_moment_matching")
    assert rest == [(-5, pytest.approx(low)), (pytest.approx(high), 5)]


def test_of_one_output_marginal_rules_are_the_full_ones(figure):
    means = figure["mean"].unique()[::20]
    full = wasserstein_over_mean(means, rules=("sdp", "moment_matching"))
    marginal = wasserstein_over_mean(means, rules=("marginal_sdp", "marginal_moment_matching"))
    np.testing.assert_allclose(full["w1"], marginal["w1"], rtol=1e-9)


def test_no_rule_is_nearer_than_itself():
    assert nearer("sdp", "marginal_sdp") == []


def test_a_theorem_that_fails_is_reported(figure):
    (check,) = check_theorem([NORMAL], [0.5])
    wrong = dataclasses.replace(check, theorem=check.point)
    w1, theorem = SingleReLU(figure, [], (wrong,), ()).sentences
    assert w1 == "marginal moment matching is nowhere nearer in W1 than SDP (|μ| ≤ 5σ)."
    assert theorem.startswith("In 0 of 1 cases")
