import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdp_bench.bench.results.columns import (
    CELL,
    MEASUREMENT,
    NUMBERS,
    PLAN,
    filled,
    impossible,
    keys,
    limits,
    measurements,
    metric_names,
    outcome,
    same_number,
    typed,
)
from tests.bench.results.made_up import measured, plan

ONE = plan(units=1, rules=("sdp",), metrics=("gaussian_kl",))
KEY = ("unit0", "sdp", "gaussian_kl")
POSSIBLE = {"value": 0.5, "floor": 0.1, "floor95": 0.2, "stderr": 0.01}


@pytest.mark.parametrize(
    ("metric", "name", "number"),
    [
        ("gaussian_kl", "value", -0.1),
        ("gaussian_kl", "value", math.nan),
        ("gaussian_kl", "floor", -1.0),
        ("gaussian_kl", "floor95", math.inf),
        ("gaussian_kl", "stderr", -1e-3),
        ("gaussian_kl", "stderr", math.inf),
        ("tv_class", "value", 1.001),
        ("tv_headline:cells=16", "value", 2.0),
        ("w1", "value", math.inf),
        ("std_ratio", "value", -math.inf),
        ("a_metric_of_a_user", "value", math.inf),
    ],
)
def test_an_impossible_number_is_a_failure_that_names_it(metric, name, number):
    rows = plan(units=1, rules=("sdp",), metrics=(metric,))
    assert measured(rows, **POSSIBLE)["status"].tolist() == ["measured"]
    row = measured(rows, **{**POSSIBLE, name: number}).iloc[0]
    assert row["status"] == "failed"
    assert row["reason"] == f"{name} {number} of {metric}, which cannot be"
    assert row[list(NUMBERS)].isna().all()


@pytest.mark.parametrize(
    ("metric", "numbers"),
    [
        ("tv_class", {"value": 1 + 1e-15, "floor": -1e-17}),
        ("w1", {"value": -1e-12}),
        ("gaussian_kl", {"value": math.inf}),
        ("a_metric_of_a_user", {"value": -7.5}),
        ("w1", {"floor": math.nan, "floor95": math.nan, "stderr": math.nan}),
    ],
)
def test_rounding_infinite_ratios_and_unknown_errors_are_possible(metric, numbers):
    rows = measured(plan(units=1, rules=("sdp",), metrics=(metric,)), **{**POSSIBLE, **numbers})
    assert rows["status"].tolist() == ["measured"]
    for name, number in numbers.items():
        np.testing.assert_equal(rows[name].item(), number)


@given(
    st.lists(st.tuples(st.sampled_from(["tv_class", "w1", "gaussian_kl", "mine"]), st.floats()), max_size=9)
)
def test_a_frame_is_judged_row_by_row_by_the_limits_of_its_metric(values):
    metrics, numbers = [metric for metric, _ in values], [value for _, value in values]
    frame = pd.DataFrame({"metric_spec": metrics, "value": numbers})
    reasons = impossible(frame.assign(floor=0.0, floor95=0.0, stderr=0.0))
    expected = [
        not limits(metric)["value"].low <= value <= limits(metric)["value"].high for metric, value in values
    ]
    assert [reason != "" for reason in reasons] == expected


def test_only_planned_outcomes_are_kept_and_rows_without_one_are_undefined():
    rows = plan(units=2, rules=("sdp",), metrics=("w1",))
    known = outcome("unit0", "sdp", "w1", value=0.5)
    others = [outcome(*cell, value=0.5) for cell in (("unit0", "dvia", "w1"), ("unit9", "sdp", "w1"))]
    frame = measurements(rows, [known, *others])
    assert frame["unit"].tolist() == ["unit0", "unit1"]
    assert frame["status"].tolist() == ["measured", "undefined"]
    assert measurements(rows, [])["status"].tolist() == ["undefined", "undefined"]


def test_a_measurement_has_a_row_for_each_component_however_many_experiments_plan_it():
    rows = plan(units=1, rules=("sdp",), metrics=("w1",), experiments=("iris-tv", "iris-w1"))
    outcomes = [outcome("unit0", "sdp", "w1", component=str(k), value=float(k)) for k in range(3)]
    frame = measurements(rows, outcomes)
    assert dict(zip(frame["component"], frame["value"], strict=True)) == {"0": 0.0, "1": 1.0, "2": 2.0}
    assert [*frame] == [*MEASUREMENT]


def test_an_impossible_component_is_a_failure_of_the_whole_metric():
    outcomes = [outcome(*KEY, component=str(k), value=value) for k, value in enumerate((0.5, -1.0))]
    row = measurements(ONE, outcomes).iloc[0]
    assert len(measurements(ONE, outcomes)) == 1
    assert (row["status"], row["reason"]) == ("failed", "value -1.0 of gaussian_kl, which cannot be")
    assert row[["component", *NUMBERS]].isna().all()


@pytest.mark.parametrize("status", ["failed", "undefined", "unsupported"])
def test_an_outcome_without_a_measurement_has_its_reason_and_no_number(status):
    row = measurements(ONE, [outcome(*KEY, status, "a reason", value=0.5, seconds=2.0)]).iloc[0]
    assert (row["status"], row["reason"], row["seconds"]) == (status, "a reason", 2.0)
    assert row[list(NUMBERS)].isna().all()


def test_rows_get_all_columns_with_their_types():
    rows = typed(pd.DataFrame({"unit": ["u"], "depth": [3], "other": [0]}), PLAN)
    assert [*rows] == [*PLAN]
    assert (rows["depth"].dtype, rows["sigma"].dtype, rows["marginal"].dtype) == ("Int64", "float64", "bool")
    assert rows["seed"].isna().all()


def test_keys_join_unit_rule_and_metric():
    assert keys(ONE).tolist() == ["unit0/sdp/gaussian_kl"]
    assert keys(ONE.astype(dict.fromkeys(CELL, "category"))).tolist() == ["unit0/sdp/gaussian_kl"]
    assert keys(ONE.drop(columns="unit")).tolist() == [""]


def test_names_of_metrics_are_their_specs_without_parameters():
    names = metric_names(["w1:points=100", "tv:cells=4", "w1", "tv:cells=16,a=b:c"])
    assert list(names) == ["w1", "tv", "w1", "tv"]
    assert list(names.categories) == ["tv", "w1"]


@given(st.lists(st.none() | st.text(max_size=3)))
def test_filled_text_is_sorted_categories_with_an_empty_text_for_missing_values(values):
    column = filled(pd.Series(values, dtype=object))
    assert column.tolist() == [value or "" for value in values]
    assert column.cat.categories.tolist() == sorted({value or "" for value in values} | {""})


def test_numbers_are_the_same_up_to_rounding_and_a_hundredth_of_their_error():
    assert same_number(1.0, 1.0 + 1e-12)
    assert not same_number(1.0, 1.0 + 1e-6)
    assert same_number(0.0, 1e-13)
    assert same_number(math.inf, math.inf)
    assert not same_number(math.inf, -math.inf)
    assert not same_number(math.inf, 1e300, stderr=1.0)
    assert same_number(0.5, 0.5001, stderr=0.02)
    assert not same_number(0.5, 0.5003, stderr=0.02)
    assert not same_number(0.5, 0.5003, stderr=math.nan)
