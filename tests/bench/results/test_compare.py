import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdp_bench.bench.results.columns import MEASUREMENT, same_number, typed
from sdp_bench.bench.results.compare import SHOWN, compare, differing
from sdp_bench.bench.results.folder import read, write_measurements
from tests.bench.results.made_up import finished, plan

ROWS = plan(units=3)


@pytest.fixture
def whole(tmp_path):
    finished(tmp_path / "whole", ROWS)
    return read(tmp_path / "whole")


def altered(whole, tmp_path, change, metric="w1"):
    """Return the results with a change of the measurements of a metric."""
    frame = whole.measurements.astype({"unit_of_measure": object, "precision": object, "fingerprint": object})
    chosen = frame["metric_spec"] == metric
    frame = pd.concat([frame[~chosen], change(frame[chosen])])
    write_measurements(tmp_path / "altered", "altered", frame)
    return read(tmp_path / "altered")


def test_results_equal_themselves(whole):
    comparison = compare(whole, whole)
    assert (comparison.equal, comparison.different, comparison.only_a, comparison.only_b) == (12, 0, 0, 0)
    assert (comparison.other_code, comparison.other_time) == (0, 0)
    assert comparison.largest.empty


def test_differences_are_counted_and_ranked_in_standard_errors(whole, tmp_path):
    def shifted(rows):
        return rows.assign(value=rows["value"] + rows["stderr"] * np.arange(1, len(rows) + 1))

    other = altered(whole, tmp_path, shifted)
    for comparison in (compare(whole, other), compare(other, whole)):
        assert (comparison.equal, comparison.different) == (6, 6)
        assert comparison.fields == {"value": 6}
        np.testing.assert_allclose(comparison.largest["standard errors"], [6, 5, 4, 3, 2, 1], rtol=1e-9)
        assert set(comparison.largest["field"]) == {"value"}
    largest = compare(whole, other).largest.iloc[0]
    assert largest["key"] == "unit2/sdp/w1"
    np.testing.assert_allclose([largest["a"], largest["b"]], [0.5, 0.56])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("floor", 0.3),
        ("floor95", math.nan),
        ("stderr", 0.5),
        ("unit_of_measure", "nat"),
        ("unit_of_measure", None),
        ("precision", "float16"),
    ],
)
def test_every_field_is_compared(whole, tmp_path, name, value):
    comparison = compare(whole, altered(whole, tmp_path, lambda rows: rows.assign(**{name: value})))
    assert (comparison.different, comparison.fields) == (6, {name: 6})
    assert len(comparison.largest) == 6


def test_other_code_and_time_are_not_other_numbers(whole, tmp_path):
    other = altered(whole, tmp_path, lambda rows: rows.assign(seconds=7.0, fingerprint="older", run="r"))
    comparison = compare(whole, other)
    assert (comparison.equal, comparison.different) == (12, 0)
    assert (comparison.other_code, comparison.other_time) == (6, 6)


def test_rounding_is_not_a_difference(whole, tmp_path):
    other = altered(whole, tmp_path, lambda rows: rows.assign(value=rows["value"] * (1 + 1e-12)))
    assert (compare(whole, other).equal, compare(whole, other).different) == (12, 0)


def test_measurements_of_one_of_them_are_counted_and_failures_are_not_measurements(whole, tmp_path):
    finished(tmp_path / "part", ROWS[ROWS["rule"] == "sdp"])
    part = read(tmp_path / "part")
    for a, b, counts in ((whole, part, (6, 6, 0)), (part, whole, (6, 0, 6))):
        comparison = compare(a, b)
        assert (comparison.equal, comparison.only_a, comparison.only_b) == counts
        assert comparison.different == 0
    failed = altered(whole, tmp_path, lambda rows: rows.assign(status="failed", reason="boom"))
    assert (compare(whole, failed).equal, compare(whole, failed).only_a) == (6, 6)


def test_components_are_compared_with_their_own(whole, tmp_path):
    def parts(rows):
        return pd.concat([rows.assign(component=str(part), value=float(part)) for part in range(3)])

    three = altered(whole, tmp_path, parts)
    comparison = compare(three, three)
    assert (comparison.equal, comparison.different) == (6 + 18, 0)
    assert compare(whole, three).only_b == 18


def test_only_the_largest_differences_are_listed(tmp_path):
    rows = plan(units=SHOWN)
    for name, value in (("a", 0.5), ("b", 0.6)):
        finished(tmp_path / name, rows, value=value)
    comparison = compare(read(tmp_path / "a"), read(tmp_path / "b"))
    assert (comparison.different, len(comparison.largest)) == (4 * SHOWN, SHOWN)


VALUES = st.sampled_from([0.0, 1.0, 1 + 1e-10, 1 + 1e-8, -1.0, 1e-13, 1e300, math.inf, -math.inf, math.nan])


@given(VALUES, VALUES, st.none() | st.sampled_from([0.0, 1e-9, 1e-3, 150.0]))
def test_tables_differ_where_their_numbers_do(a, b, stderr):
    row = {"unit_of_measure": "1", "precision": "", "stderr": stderr}
    here = typed(pd.DataFrame([{**row, "value": a}]), MEASUREMENT).fillna({"floor": 0})
    there = typed(pd.DataFrame([{**row, "value": b}]), MEASUREMENT).fillna({"floor": 0})
    fields = differing(here, there)
    assert fields["value"].item() is not (same_number(a, b, stderr) or (math.isnan(a) and math.isnan(b)))
    assert not fields.drop(columns="value").any(axis=None)
