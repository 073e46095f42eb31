import math
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sdp_bench.bench.experiments import experiment
from sdp_bench.reports.paper import printed
from sdp_bench.reports.sections.fidelity import fidelity
from sdp_bench.reports.sections.here import agreement
from sdp_bench.reports.sections.oracle import oracle_errors, precision
from sdp_bench.reports.sections.relu.relu import SIGMA, nearer, wasserstein_over_mean
from sdp_bench.reports.sections.sensitivity import sensitivity
from tests.reports import made_up
from tests.reports.made_up import checked


def row(suite, sigma, rule, spec, value, **more):
    name = {"experiment": suite, "metric": spec.partition(":")[0], "metric_spec": spec, "samples": 10**6}
    where = {"sigma": sigma, "rule": rule, "net": "n0", "input": 3, "stderr": 0.001}
    return made_up.row(value, **name, **where | {"recipe": "sgd 0.01, raw features"} | more)


BINS = "bins=10,bin_range={},pilot_samples=131072"
HEADLINE = "tv_headline:cells=512,pilot_samples=131072"


def sensitivity_frame():
    rows = []
    for sigma in (0.1, 1000.0):
        for spec, sdp, dvia in (
            (HEADLINE, 0.3, 0.2),
            ("tv_paper:" + BINS.format("quantiles"), 0.1, 0.2),
            ("tv_paper:" + BINS.format("joint"), 0.15, 0.2),
        ):
            rows += [row("iris-sensitivity", sigma, "sdp", spec, sdp)]
            rows += [row("iris-sensitivity", sigma, "dvia", spec, dvia)]
        other = {"recipe": "adam 0.001, raw features", "net": "n1", "accuracy": 0.5}
        rows += [row("iris-sensitivity", sigma, rule, HEADLINE, 0.4, **other) for rule in ("sdp", "dvia")]
        for output in "012":
            theirs = printed("std_ratio", "relu", 4, sigma, "sdp", output).mean
            for recipe, factor in ((rows[0], 1.0), (rows[0] | other, 2.0)):
                ratio = {"metric": "std_ratio", "metric_spec": "std_ratio", "component": output}
                rows.append(recipe | ratio | {"rule": "sdp", "value": theirs * factor, "sigma": sigma})
    return checked(pd.DataFrame(rows))


def test_variants_of_the_tables_choices():
    found = sensitivity(sensitivity_frame())
    assert [v["name"] for v in found["metrics"]] == [
        "headline, 512 cells",
        "paper-like, 10 bins, joint extremes",
        "paper-like, 10 bins, pilot quantiles",
    ]
    assert found["metrics"][0]["means"][0.1, "sdp"] == pytest.approx(0.7)
    leads = [v["means"][0.1, "sdp"] - v["means"][0.1, "dvia"] for v in found["metrics"]]
    assert [lead > 0 for lead in leads] == [False, True, True]
    sgd, adam = found["recipes"]
    assert [sgd["agreement"], adam["agreement"]] == pytest.approx([0, math.log(2)], abs=1e-12)
    assert (sgd["accuracy"], adam["accuracy"]) == (0.98, 0.5)
    text = " ".join(found["sentences"])
    assert "in 2 of 3 at σ\u00a0=\u00a00.1" in text
    assert re.search(r"from 0\.700 \(headline.*\) to 0\.900 \(paper-like", text)


def oracle_frame():
    rows = []
    for net, again, once, tenfold in (("a", 0.011, 0.3, 0.302), ("b", 0.013, 0.4, 0.399)):
        for suite, value in (("iris-oracle", once), ("iris-oracle-10x", tenfold)):
            rows.append(row(suite, 1.0, "sdp", HEADLINE, value, net=net))
            rows.append(row(suite, 1.0, "oracle_again", HEADLINE, again, net=net))
    return checked(pd.DataFrame(rows))


def test_the_oracles_error():
    (found,) = oracle_errors(oracle_frame())
    assert (found["again"], found["below"]) == (4, 2)  # .011 lies below .012, .013 does not
    assert (found["moves"], found["shift"]) == (2, pytest.approx(0.002))
    assert found["largest"] == pytest.approx(2 / math.sqrt(2))
    assert found["rms"] == pytest.approx(math.sqrt((2 + 0.5) / 2))
    assert oracle_errors(checked(pd.DataFrame())) == []


def test_where_float64_was_needed():
    places = (
        ("relu", 0.1, None),
        ("relu", 0.1, "float64"),
        ("relu", 10.0, "float32"),
        ("sigmoid", 1.0, "float64"),
    )
    rows = [
        row("iris-tv", sigma, rule, HEADLINE, 0.3, activation=kind, input=place, precision=drawn)
        for place, (kind, sigma, drawn) in enumerate(places)
        for rule in ("sdp", "dvia")
    ]
    found = precision(checked(pd.DataFrame(rows)))
    assert (found["oracles"], found["unchecked"]) == (4, 1)
    assert found["double"] == [("4 ReLU layers", "0.1", "1 of 2"), ("4 sigmoid layers", "1", "1 of 1")]
    without = precision(oracle_frame())
    assert without == {"oracles": 2, "unchecked": 2, "double": []}
    assert precision(checked(pd.DataFrame()))["oracles"] == 0


def test_what_was_run():
    rows = [
        row("iris-tv", sigma, "sdp", HEADLINE, 0.1, net=f"n{n}", input=i, accuracy=0.8 if n == 0 else 0.97)
        for sigma in experiment("iris-tv").sigmas
        for n in range(10)
        for i in range(10)
    ]
    rows += [row("iris-w1", 1.0, "sdp", "w1:w1_points=2000,w1_pairs=8", 0.1, net="n0")]
    rows += [
        row("iris-w1", 1.0, "sdp", "w1:w1_points=2000,w1_pairs=8", 0.1, net="n1", input=i) for i in (1, 2)
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
    assert whole.apart["rule"].tolist() == ["dvia", "sdp"]  # the farthest first
    assert whole.apart["gap"].tolist() == pytest.approx([5, 2])
    assert "2 of the 2 measurements" in whole.sentence
    whole, _ = agreement(measured(), measured(unit=["v", "u", "v"]))
    assert (whole.measured, whole.compared, whole.equal) == (2, 1, 1)
    assert "1 has no counterpart" in whole.sentence
    nothing, _ = agreement(measured(), measured(unit="w"))
    assert nothing.sentence.startswith("None of the 2 measurements")


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
