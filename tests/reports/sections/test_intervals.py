import math

import pandas as pd
import pytest

from sdp_bench.reports.sections.uci import PredictionIntervals
from tests.reports.made_up import TRAITS
from tests.reports.sections.helpers import intervals_frame


@pytest.fixture
def section():
    return PredictionIntervals().content(
        intervals_frame(
            [
                ("yacht", "sdp", "qualified", {0: 3, 1: 2, 2: 0}),
                ("yacht", "sdp", "picp", {0: 0.9, 1: 1.0}),
                ("yacht", "sdp", "mpiw", {0: 0.1, 1: 0.3}),
                ("yacht", "pnn", "qualified", {0: 3, 1: 2, 2: 1}),
                ("yacht", "pnn", "picp", {0: 0.9, 1: 0.9, 2: 0.9}),
                ("yacht", "pnn", "mpiw", {0: 0.1, 1: 0.1, 2: 0.1}),
                ("concrete", "pnn", "qualified", {0: 0, 1: 0}),
            ]
        ),
        TRAITS,
    )


def test_means_and_spreads_over_the_seeds_that_qualified(section):
    table = section["tables"][0]
    assert table["methods"][0] == "SDP"
    assert [row["dataset"] for row in table["rows"]] == ["concrete", "yacht"]
    cell = table["rows"][1]["cells"][0]
    assert (cell["qualified"], cell["seeds"]) == (2, 3)
    coverage, width = cell["numbers"]
    assert (coverage["mean"], coverage["sd"]) == pytest.approx((0.95, 0.05))
    assert (width["mean"], width["sd"]) == pytest.approx((0.2, 0.1))
    assert (coverage["paper"], width["paper"]) == ("0.93 ± 0.04", "0.06 ± 0.01")
    assert table["paper"] == "Table 4"


def test_the_narrowest_is_marked_and_named(section):
    sdp, _, pnn = section["tables"][0]["rows"][1]["cells"]
    assert (sdp["numbers"][1]["best"], pnn["numbers"][1]["best"]) == (False, True)
    (sentence,) = section["sentences"]
    assert sentence.endswith("every seed qualified, the narrowest intervals are those of PNN on yacht.")


def test_no_method_is_marked_if_seeds_do_not_distinguish_it_from_the_narrowest():
    rows = []
    for method, widths in (("sdp", {0: 0.2, 1: 0.1}), ("pnn", {0: 0.1, 1: 0.19})):
        rows.append(("yacht", method, "qualified", {0: 1, 1: 1}))
        rows.append(("yacht", method, "picp", {0: 0.95, 1: 0.95}))
        rows.append(("yacht", method, "mpiw", widths))
    sdp, _, pnn = PredictionIntervals().content(intervals_frame(rows), TRAITS)["tables"][0]["rows"][0][
        "cells"
    ]
    assert (sdp["numbers"][1]["best"], pnn["numbers"][1]["best"]) == (False, False)


def test_ways_of_running_a_set_are_not_mixed():
    few = intervals_frame([("yacht", "pnn", "qualified", {0: 1}), ("yacht", "pnn", "mpiw", {0: 0.5})])
    many = intervals_frame([("yacht", "pnn", "qualified", {0: 1}), ("yacht", "pnn", "mpiw", {0: 0.1})])
    section = PredictionIntervals().content(pd.concat([few, many.assign(recipe="longer")]), TRAITS)
    widths = {row["dataset"]: row["cells"][2]["numbers"][1]["mean"] for row in section["tables"][0]["rows"]}
    assert widths == {"yacht (a)": 0.5, "yacht (b)": 0.1}
    assert [run[2] for run in section["runs"]] == ["as published", "longer"]
    paper = [row["cells"][2]["numbers"][1]["paper"] for row in section["tables"][0]["rows"]]
    assert paper == ["0.03 ± 0.01"] * 2


def test_a_method_of_which_no_seed_qualified_has_no_mean(section):
    cell = section["tables"][0]["rows"][0]["cells"][2]
    assert (cell["qualified"], cell["seeds"]) == (0, 2)
    assert math.isnan(cell["numbers"][0]["mean"])
    assert section["tables"][0]["rows"][0]["cells"][0] is None  # not run at all


def test_numbers_of_the_papers_baseline_are_shown_next_to_its_published_code():
    rows = [("yacht", rule, "qualified", {0: 1}) for rule in ("sqr", "sqr_ends")]
    table = PredictionIntervals().content(intervals_frame(rows), TRAITS)["tables"][1]
    published, text = table["rows"][0]["cells"][2:]
    assert (published["numbers"][0]["paper"], text["numbers"][0]["paper"]) == ("0.93 ± 0.06", "")
    alone = PredictionIntervals().content(intervals_frame([("yacht", "sqr", "qualified", {0: 1})]), TRAITS)[
        "tables"
    ][1]
    assert alone["methods"] == ("MC estimate k=10", "MC estimate k=100", "SQR trained at all levels")
    assert alone["rows"][0]["cells"][2]["numbers"][0]["paper"] == "0.93 ± 0.06"
