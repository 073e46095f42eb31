import math

import pandas as pd
import pytest

from sdp_bench.bench.studies.uci.group import DECADES, GRID, REFINEMENT
from sdp_bench.reports.sections.uci import CANDIDATES, PredictionIntervals
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


def test_a_mean_over_fewer_seeds_is_not_marked():
    rows = [
        ("yacht", "sdp", "qualified", {0: 1, 1: 0}),
        ("yacht", "sdp", "picp", {0: 0.95}),
        ("yacht", "sdp", "mpiw", {0: 0.01}),
        ("yacht", "pnn", "qualified", {0: 1, 1: 1}),
        ("yacht", "pnn", "picp", {0: 0.95, 1: 0.95}),
        ("yacht", "pnn", "mpiw", {0: 0.2, 1: 0.2}),
    ]
    table = PredictionIntervals().content(intervals_frame(rows), TRAITS)["tables"][0]
    sdp, _, pnn = table["rows"][0]["cells"]
    assert (sdp["numbers"][1]["best"], pnn["numbers"][1]["best"]) == (False, True)


def scanned(component, coverage, width, seeds=(0, 1)):
    """SDP on one set: coverage in validation is 0.95, and coverage and width in test are given by seed."""
    rows = [
        ("yacht", "sdp", "qualified", dict.fromkeys(seeds, 1)),
        ("yacht", "sdp", "validation_picp", dict.fromkeys(coverage, 0.95)),
        ("yacht", "sdp", "picp", coverage),
        ("yacht", "sdp", "mpiw", dict.fromkeys(coverage, width)),
    ]
    return intervals_frame(rows, component)


def test_the_scan_of_each_seed_is_shown_first_and_other_readings_after_it():
    own = scanned("", {0: 0.9, 1: 0.9}, 0.1)
    shared = scanned("set_scan", {0: 0.94, 1: 0.92}, 0.2)
    section = PredictionIntervals().content(pd.concat([own, shared]), TRAITS)
    assert section["reading"] == "a scan for each seed and configuration"
    (row,) = section["tables"][0]["rows"]
    assert row["cells"][0]["numbers"][1]["mean"] == pytest.approx(0.1)
    assert section["scanned"]["methods"][:2] == (
        "SDP, a scan for each seed and configuration",
        "SDP, one scan for each data set",
    )
    first, second = section["scanned"]["rows"][0]["cells"][:2]
    assert [number["mean"] for number in first["numbers"]] == pytest.approx([0.9, 0.1, 0.95])
    assert [number["mean"] for number in second["numbers"]] == pytest.approx([0.93, 0.2, 0.95])
    said = section["sentences"][-1]
    assert "0.0200 with 165 candidates and 0.0500 with 285 candidates" in said
    assert said.endswith("This selection bias increases with the number of candidates.")


def test_readings_are_compared_on_seeds_that_qualified_under_each():
    coverage = {0: 0.92, 1: 0.94, 2: 0.87}
    parts = [scanned(component, coverage, 0.1, range(3)) for component in ("", "set_scan")]
    parts.append(scanned("set_variance", {0: 0.92, 1: 0.94}, 0.1, range(3)))
    said = PredictionIntervals().content(pd.concat(parts), TRAITS)["sentences"][-1]
    assert "0.0200 with 15 candidates, 0.0200 with 165 candidates and 0.0200 with 285" in said


def test_candidates_are_as_many_as_are_scored():
    settings, variances = len(GRID), len(REFINEMENT)
    for_each_seed = settings * (len(DECADES) + variances - 1)
    assert {"set_scan": settings * variances, "set_variance": settings, "": for_each_seed} == CANDIDATES


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
    assert alone["methods"] == ("MC 10", "MC 100", "SQR trained at all levels")
    assert alone["rows"][0]["cells"][2]["numbers"][0]["paper"] == "0.93 ± 0.06"
