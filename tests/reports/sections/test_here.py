import pandas as pd
import pytest

from sdp_bench.reports.sections.here import MeasuredHere, agreement
from tests.reports import made_up
from tests.reports.test_page import told


def measured(**more):
    """Measurements of two experiments that share one of their three."""
    frame = pd.DataFrame(
        {
            "experiment": ["iris-tv", "iris-tv", "iris-std"],
            "unit": ["u", "u", "u"],
            "rule": ["sdp", "dvia", "sdp"],
            "metric_spec": ["tv", "tv", "tv"],
            "component": ["", "", ""],
            "value": [0.25, 0.5, 0.25],
            "stderr": [0.01, 0.01, 0.01],
        }
    )
    return frame.assign(**more)


def test_what_is_equal_but_for_rounding_agrees():
    whole, (tv, std) = agreement(measured(value=[0.25 + 1e-13, 0.5 + 9e-5, 0.25]), measured())
    assert (whole.measured, whole.compared, whole.equal) == (2, 2, 2)
    assert (tv.measured, tv.equal, std.measured, std.equal) == (2, 2, 1, 1)
    assert "All 2 measurements" in whole.sentence


def test_what_differs_is_listed_the_farthest_first():
    whole, _ = agreement(measured(value=[0.27, 0.45, 0.27]), measured())
    assert whole.apart["rule"].tolist() == ["dvia", "sdp"]
    assert whole.apart["gap"].tolist() == pytest.approx([5, 2])
    assert "2 of the 2 measurements" in whole.sentence
    assert "0 agree" in whole.sentence


def test_what_has_no_counterpart_is_counted_and_not_compared():
    other = measured(unit=["v", "u", "v"])
    whole, _ = agreement(measured(), other)
    assert (whole.measured, whole.compared, whole.equal) == (2, 1, 1)
    assert "1 has no counterpart" in whole.sentence
    nothing, _ = agreement(measured(), measured(unit="w"))
    assert nothing.sentence.startswith("None of the 2 measurements")


def test_the_section_shows_counts_and_what_differs():
    whole, by_experiment = agreement(full(value=0.5), full(value=0.25))
    rows = whole.apart.to_dict("records")
    text = told(
        made_up.rendered(MeasuredHere(), whole=whole, experiments=by_experiment, machine="A <CPU>", rows=rows)
    )
    assert "This machine: A <CPU>." in text
    assert "Differences" in text
    assert "iris-tv 4-100-3 ReLU, seed 0 0 0.1 SDP tv_class 0.500000 0.250000 25" in text


def full(value):
    """One measurement as a results file gives it."""
    frame = made_up.frame(depths=(1,), rules=("sdp",), suites=("iris-tv",))
    one = frame[(frame["metric"] == "tv_class") & (frame["sigma"] == 0.1) & (frame["seed"] == 0)].head(1)
    return one.assign(value=value, stderr=0.01, input=0, unit="u", metric_spec="tv_class", component="")
