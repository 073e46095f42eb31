import numpy as np
import pandas as pd
import pytest

from sdp_bench.bench.studies.selective import EXPERIMENT, SCORES
from sdp_bench.bench.studies.selective import READINGS as RECORDED
from sdp_bench.bench.studies.selective.group import POINTS
from sdp_bench.bench.studies.selective.risk_coverage import perfect
from sdp_bench.reports.sections.selective import READINGS, SelectivePrediction
from tests.reports import made_up
from tests.reports.helpers import outline, plain_text

COLUMNS = "experiment objective rule metric component seed value recipe sigma"


def rows(objective, score, areas, *, worse=0.01, risk=True, scale=float("nan")):
    """Records of a score, RCAUC by seed; each further reading is a little worse."""
    recipe = f"letters A-S; {objective} {scale:g}"
    records = []
    for seed, area in enumerate(areas):
        numbers = [("rcauc", name, area + worse * k) for k, name in enumerate(READINGS[score])]
        numbers.append(("accuracy", "", 0.9))
        if risk:
            numbers += [("risk", point, float(perfect(0.5).at(float(point)))) for point in POINTS]
        records += [
            (EXPERIMENT.name, objective, score, metric, component, seed, value, recipe, scale)
            for metric, component, value in numbers
        ]
    return records


def frame(*parts):
    return made_up.table(COLUMNS, [row for part in parts for row in part])


@pytest.fixture
def whole():
    """Every pair of model and score; PD Cauchy on the model of the Cauchy pairwise loss is the best."""
    parts, area = [], 0.3
    for objective, scores in SCORES.items():
        for score in scores:
            parts.append(rows(objective, score, (area, area + 0.02)))
            area -= 0.01
    return frame(*parts)


def test_numbers_of_the_paper_are_shown_with_their_lines(whole):
    section = SelectivePrediction().content(whole, made_up.TRAITS)
    assert [half["part"] for half in section["halves"]] == ["(a)", "(b)", ""]
    lines = [line for half in section["halves"] for line in half["rows"]]
    shown = {(line["objective"], line["method"], line["score"]): line["paper"] for line in lines}
    assert len(shown) == len(lines) == sum(map(len, SCORES.values()))
    assert shown["softmax", "–", "orthonormal certificates"] == "24.2 ± 0.9"
    assert shown["Dirichlet", "marginal moment matching", "PD Gauss"] == "19.0 ± 1.0"
    assert shown["PD loss Gauss", "SDP", "PD Cauchy"] == "18.3 ± 0.3"
    assert shown["PD loss Cauchy", "SDP", "PD Cauchy"] == ""
    assert not any(line["best"] for line in lines)  # two seeds have no spread


def test_methods_that_are_tied_with_the_best_are_best_too_unless_all_are():
    noise = np.array([0.01, -0.01, 0.02, -0.02, 0.01, -0.01])

    def best(*means):
        names = [("softmax", score) for score in ("softmax_entropy", "pairwise_gaussian", "pairwise_cauchy")]
        shifts = (noise, np.roll(noise, 1), np.roll(noise, 2))
        parts = [rows(*name, mean + shift) for name, mean, shift in zip(names, means, shifts, strict=False)]
        (half,) = SelectivePrediction().content(frame(*parts), made_up.TRAITS)["halves"]
        return [line["best"] for line in half["rows"]]

    assert best(0.2, 0.201, 0.3) == [True, True, False]
    assert best(0.2, 0.201) == [False, False]
    assert best(0.3, 0.2) == [False, True]


def test_means_and_spreads_are_over_seeds_in_per_cent(whole):
    line = SelectivePrediction().content(whole, made_up.TRAITS)["halves"][0]["rows"][1]
    assert line["seeds"] == 2
    assert line["area"]["name"] == "100 certificates"
    assert line["area"]["mean"] == pytest.approx(30.0)
    assert line["area"]["sd"] == pytest.approx(2 / 2**0.5)
    assert [(other["name"], round(other["mean"], 6)) for other in line["others"]] == [
        ("1000 certificates", 31.0),
        ("5000 certificates", 32.0),
    ]


def test_the_readings_closest_to_the_text_are_first_and_no_other_is_lost(whole):
    first = {
        line["score"]: line["area"]["name"]
        for half in SelectivePrediction().content(whole, made_up.TRAITS)["halves"]
        for line in half["rows"]
    }
    assert first["Dirichlet"] == "entropy of its mean"
    assert (first["PD Gauss"], first["PD Cauchy"]) == ("geometric", "geometric")
    assert {score: sorted(readings) for score, readings in READINGS.items()} == {
        score: sorted(readings) for score, readings in RECORDED.items()
    }


def test_nothing_measured_is_no_section():
    assert SelectivePrediction().build(made_up.real.Results(frame())) is None
    only_accuracy = [(EXPERIMENT.name, "MNIST softmax", "softmax_entropy", "accuracy", "", 0, 0.9, "", None)]
    assert SelectivePrediction().content(frame(only_accuracy), made_up.TRAITS) is None


def test_what_the_section_says(whole):
    text = made_up.rendered(SelectivePrediction(), **SelectivePrediction().content(whole, made_up.TRAITS))
    outline(text)
    assert "12.5 % is perfect" in plain_text(text)
    assert "letters A-S" in plain_text(text)
    assert "PD Cauchy geometric 21.00 ± 1.41 18.3 ± 0.3 2 PD loss Gauss SDP mean 22.00 ± 1.41" in plain_text(
        text
    )
    assert "PD Cauchy geometric 15.00 ± 1.41 – 2 PD loss Cauchy SDP mean 16.00 ± 1.41" in plain_text(text)


def content(*parts):
    return SelectivePrediction().content(frame(*parts), made_up.TRAITS)


def test_the_finding_distinguishes_the_default_reading_from_the_others():
    finding = content(
        rows("softmax", "softmax_entropy", [0.19]),
        rows("softmax", "pairwise_gaussian", [0.26], worse=-0.04),
        rows("softmax", "pairwise_cauchy", [0.23]),
        rows("dirichlet", "pairwise_gaussian", [0.1]),
    )["finding"]
    assert "For 0 of 2 pairwise scores, the area is below that of the softmax entropy" in finding
    assert finding.endswith("this holds for 1. Values without ± are from one seed.")


def test_objectives_that_were_not_run_are_left_out():
    section = content(rows("dirichlet", "dirichlet", [0.2, 0.3]))
    assert [half["part"] for half in section["halves"]] == ["(b)"]
    assert [run["objective"] for run in section["runs"]] == ["Dirichlet"]
    assert made_up.titles(section["figure"]) == ["(b) Trained with propagation"]
    assert "softmax entropy" not in section["finding"]


def test_models_of_other_scales_have_a_separate_table(whole):
    plain = SelectivePrediction().content(whole, made_up.TRAITS)
    others = [
        rows("dirichlet", score, (area, area + 0.02, area + 0.04), scale=scale)
        for scale, area in ((1.0, 0.05), (0.001, 0.45))
        for score in SCORES["dirichlet"]
    ]
    section = SelectivePrediction().content(pd.concat([whole, frame(*others)]), made_up.TRAITS)
    assert [row["scale"] for row in section["scales"]] == [0.001, 0.01, 1.0]
    assert [row["seeds"] for row in section["scales"]] == [2, 2, 2]  # the paper's scale has no third
    assert [round(row["areas"][0]["mean"], 6) for row in section["scales"]] == [46, 26, 6]
    assert section["runs"] == plain["runs"]
    assert section["finding"] == plain["finding"]
    text = plain_text(made_up.rendered(SelectivePrediction(), **section))
    assert "0.001 46.00 ± 1.41 90.00 2 entropy of the law 47.00 ± 1.41" in text


def test_the_figure_has_the_line_of_a_perfect_predictor(whole):
    figure = SelectivePrediction().content(whole, made_up.TRAITS)["figure"]
    assert len(made_up.titles(figure)) == 3
    assert "perfect" in figure.svg
    assert content(rows("softmax", "softmax_entropy", [0.2], risk=False))["figure"] is None
