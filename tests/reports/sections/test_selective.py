"""The section of selective prediction: both halves beside the paper's numbers, what is missing left out."""

import numpy as np
import pandas as pd
import pytest

from sdp_bench.bench.studies.selective import EXPERIMENT, SCORES
from sdp_bench.bench.studies.selective import READINGS as RECORDED
from sdp_bench.bench.studies.selective.group import POINTS
from sdp_bench.bench.studies.selective.risk_coverage import perfect
from sdp_bench.reports.page import build
from sdp_bench.reports.sections.selective import PERFECT, READINGS, SelectivePrediction, selective
from tests.reports import made_up
from tests.reports.test_page import outline, told

COLUMNS = ["experiment", "objective", "rule", "metric", "component", "seed", "value", "recipe", "sigma"]


def rows(objective, score, areas, *, worse=0.01, risk=True, scale=float("nan")):
    """Records of a score, RCAUC by seed; each further reading is a little worse."""
    recipe = f"letters A-S; {objective} {scale:g}"
    found = []
    for seed, area in enumerate(areas):
        numbers = [("rcauc", name, area + worse * k) for k, name in enumerate(READINGS[score])]
        numbers.append(("accuracy", "", 0.9))
        if risk:
            numbers += [("risk", point, float(perfect(0.5).at(float(point)))) for point in POINTS]
        found += [
            (EXPERIMENT.name, objective, score, metric, component, seed, value, recipe, scale)
            for metric, component, value in numbers
        ]
    return found


def frame(*parts):
    return pd.DataFrame([row for part in parts for row in part], columns=COLUMNS)


@pytest.fixture
def whole():
    """Every pair of model and score; PD Cauchy on the model of the Cauchy pairwise loss is the best."""
    parts, area = [], 0.3
    for objective, scores in SCORES.items():
        for score in scores:
            parts.append(rows(objective, score, (area, area + 0.02)))
            area -= 0.01
    return frame(*parts)


def test_all_lines_of_the_paper_stand_beside_its_numbers(whole):
    section = selective(whole)
    assert [half["part"] for half in section["halves"]] == ["(a)", "(b)", ""]
    lines = [line for half in section["halves"] for line in half["rows"]]
    assert [(line.objective, line.method, line.score, line.paper) for line in lines] == [
        ("softmax", "–", "softmax entropy", "21.4 ± 0.6"),
        ("softmax", "–", "orthonormal certificates", "24.2 ± 0.9"),
        ("softmax", "SDP", "Dirichlet", "32.0 ± 1.2"),
        ("softmax", "SDP", "PD Gauss", "20.4 ± 0.9"),
        ("softmax", "SDP", "PD Cauchy", "19.2 ± 1.0"),
        ("Dirichlet", "marginal moment matching", "Dirichlet", "19.2 ± 0.8"),
        ("Dirichlet", "marginal moment matching", "PD Gauss", "19.0 ± 1.0"),
        ("Dirichlet", "marginal SDP", "PD Cauchy", ""),
        ("PD loss Gauss", "SDP", "softmax entropy", "20.6 ± 0.4"),
        ("PD loss Gauss", "SDP", "PD Gauss", "19.0 ± 0.3"),
        ("PD loss Gauss", "SDP", "PD Cauchy", "18.3 ± 0.3"),
        ("PD loss Gauss, marginal", "marginal SDP", "softmax entropy", ""),
        ("PD loss Gauss, marginal", "marginal SDP", "PD Gauss", ""),
        ("PD loss Gauss, marginal", "marginal SDP", "PD Cauchy", ""),
        ("PD loss Cauchy", "SDP", "softmax entropy", ""),
        ("PD loss Cauchy", "SDP", "PD Gauss", ""),
        ("PD loss Cauchy", "SDP", "PD Cauchy", ""),
    ]
    assert not any(line.best for line in lines)  # two seeds have no spread


def test_methods_that_are_tied_with_the_best_are_best_too_unless_all_are():
    noise = np.array([0.01, -0.01, 0.02, -0.02, 0.01, -0.01])

    def best(*means):
        names = (
            ("softmax", "softmax_entropy"),
            ("softmax", "pairwise_gaussian"),
            ("softmax", "pairwise_cauchy"),
        )
        shifts = (noise, np.roll(noise, 1), np.roll(noise, 2))
        parts = [rows(*name, mean + shift) for name, mean, shift in zip(names, means, shifts, strict=False)]
        (half,) = selective(frame(*parts))["halves"]
        return [line.best for line in half["rows"]]

    assert best(0.2, 0.201, 0.3) == [True, True, False]
    assert best(0.2, 0.201) == [False, False]
    assert best(0.3, 0.2) == [False, True]


def test_means_and_spreads_are_over_seeds_in_per_cent(whole):
    line = selective(whole)["halves"][0]["rows"][1]
    assert line.seeds == 2
    assert line.area.name == "100 certificates"
    assert line.area.mean == pytest.approx(30.0)
    assert line.area.sd == pytest.approx(2 / 2**0.5)
    assert [(other.name, round(other.mean, 6)) for other in line.others] == [
        ("1000 certificates", 31.0),
        ("5000 certificates", 32.0),
    ]


def test_the_finding_names_the_best_and_counts_the_pairwise_scores(whole):
    finding = selective(whole)["finding"]
    assert PERFECT == 12.5
    assert (
        "Of 17 pairs of model and score, PD Cauchy on the PD loss Cauchy model has the smallest area"
        in finding
    )
    assert "15.00 ± 1.41 %" in finding
    assert (
        "8 of 8 pairwise scores are below the softmax entropy of the same model, 8 under some reading"
        in finding
    )
    assert "one seed" not in finding


def test_the_finding_tells_the_default_reading_from_the_others():
    parts = [
        rows("softmax", "softmax_entropy", [0.19]),
        rows("softmax", "pairwise_gaussian", [0.26], worse=-0.04),
        rows("softmax", "pairwise_cauchy", [0.23]),
        rows("dirichlet", "pairwise_gaussian", [0.1]),
    ]
    finding = selective(frame(*parts))["finding"]
    assert (
        "0 of 2 pairwise scores are below the softmax entropy of the same model, 1 under some reading"
        in finding
    )


def test_the_readings_closest_to_the_text_are_first_and_no_other_is_lost(whole):
    first = {line.score: line.area.name for half in selective(whole)["halves"] for line in half["rows"]}
    assert first["Dirichlet"] == "entropy of its mean"
    assert (first["PD Gauss"], first["PD Cauchy"]) == ("geometric", "geometric")
    assert {score: sorted(readings) for score, readings in READINGS.items()} == {
        score: sorted(readings) for score, readings in RECORDED.items()
    }


def test_one_seed_has_no_spread_and_the_page_says_so():
    section = selective(frame(rows("softmax", "pairwise_gaussian", [0.2])))
    assert section["halves"][0]["rows"][0].area.sd != section["halves"][0]["rows"][0].area.sd
    assert "one seed, so no spread is known" in section["finding"]


def test_objectives_that_were_not_run_are_left_out():
    section = selective(frame(rows("dirichlet", "dirichlet", [0.2, 0.3])))
    assert [half["part"] for half in section["halves"]] == ["(b)"]
    assert [run["objective"] for run in section["runs"]] == ["Dirichlet"]
    assert made_up.titles(section["figure"]) == ["(b) Trained with propagation"]
    assert "softmax entropy" not in section["finding"]


def test_models_of_other_scales_stand_in_a_table_of_their_own_and_nowhere_else(whole):
    plain = selective(whole)
    assert plain["scales"] == ()
    others = [
        rows("dirichlet", score, (area, area + 0.02, area + 0.04), scale=scale)
        for scale, area in ((1.0, 0.05), (0.001, 0.45))
        for score in SCORES["dirichlet"]
    ]
    section = selective(pd.concat([whole, frame(*others)]))
    assert [row.scale for row in section["scales"]] == [0.001, 0.01, 1.0]
    assert [row.seeds for row in section["scales"]] == [2, 2, 2]  # the paper's scale has no third
    assert [round(row.areas[0].mean, 6) for row in section["scales"]] == [46, 26, 6]
    assert [other.name for other in section["scales"][0].areas] == [
        "entropy of its mean",
        "entropy of the law",
        "total concentration",
    ]
    assert (section["halves"], section["runs"], section["finding"]) == (
        plain["halves"],
        plain["runs"],
        plain["finding"],
    )
    text = told(made_up.rendered(SelectivePrediction(), section=section))
    assert "0.001 46.00 ± 1.41 90.00 2 entropy of the law 47.00 ± 1.41" in text
    assert "Scale of the input noise" not in told(made_up.rendered(SelectivePrediction(), section=plain))


def test_nothing_measured_is_no_section():
    assert selective(frame()) is None
    assert selective(frame([("iris-tv", "4-100-3", "sdp", "tv_headline", "", 0, 0.1, "", 0.1)])) is None
    only_accuracy = [(EXPERIMENT.name, "MNIST softmax", "softmax_entropy", "accuracy", "", 0, 0.9, "", None)]
    assert selective(frame(only_accuracy)) is None


def test_without_curves_there_is_a_table_and_no_figure():
    section = selective(frame(rows("softmax", "softmax_entropy", [0.2], risk=False)))
    assert section["figure"] is None


def test_the_figure_says_its_curves_in_words_and_has_a_perfect_line(whole):
    section = selective(whole)
    assert len(made_up.titles(section["figure"])) == 3
    assert "softmax entropy on softmax 0.0 %" in section["figure"].alt
    assert "perfect" in section["figure"].svg


def test_what_the_section_says(whole):
    text = made_up.rendered(SelectivePrediction(), section=selective(whole))
    parsed = outline(text)
    assert parsed.wrong == []
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids))
    assert "12.5 % is perfect" in told(text)
    assert "letters A-S" in told(text)
    assert "PD Cauchy geometric 21.00 ± 1.41 18.3 ± 0.3 2 PD loss Gauss SDP mean 22.00 ± 1.41" in told(text)
    assert "PD Cauchy geometric 15.00 ± 1.41 – 2 PD loss Cauchy SDP mean 16.00 ± 1.41" in told(text)


def test_the_page_has_the_section_once(tmp_path, whole):
    plain = whole.assign(**dict.fromkeys(("network", "net", "activation"), None), unit_of_measure="1")
    missing = ("depth", "input", "floor", "floor95", "stderr", "seconds", "accuracy")
    own = plain.assign(**dict.fromkeys(missing, float("nan")))
    build(made_up.results(own), tmp_path, made_up.SECTIONS)
    parsed = outline((tmp_path / "suite-selective.html").read_text(encoding="utf-8"))
    assert parsed.wrong == []
    assert len(parsed.ids) == len(set(parsed.ids))
    assert "selective" in parsed.ids
