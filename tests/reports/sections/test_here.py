import pytest

from sdp_bench.reports.sections.here import agreement
from tests.reports import made_up


def measured(**more):
    """Measurements of two experiments that share one of their three."""
    rows = [("iris-tv", "sdp", 0.25), ("iris-tv", "dvia", 0.5), ("iris-std", "sdp", 0.25)]
    frame = made_up.table(
        "experiment rule value", rows, unit="u", metric_spec="tv", component="", stderr=0.01
    )
    return frame.assign(component="", stderr=0.01).assign(**more)


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
