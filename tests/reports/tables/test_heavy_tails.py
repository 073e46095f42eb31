"""The suite with Cauchy noise on the page."""

import re

import pandas as pd
import pytest

from sdp_bench.reports.sections.summary import words
from sdp_bench.reports.tables import tables
from sdp_bench.reports.tables.frame import checked
from tests.reports import made_up
from tests.reports.made_up import TRAITS
from tests.reports.tables.test_tables import measured

RULES = {"sdp": [0.1, 0.2], "marginal_sdp": [0.8, 0.9], "oracle_again": [0.012, 0.013]}


def cauchy(metric, sigma=0.1, values=RULES, **companion):
    return measured(values, metric, sigma, experiment="iris-cauchy", **companion)


def by_output(metric, steps, values=RULES):
    """The same by output, each a step on from the values given."""
    parts = [
        cauchy(
            metric, values={rule: [v + step for v in each] for rule, each in values.items()}, component=str(j)
        )
        for j, step in enumerate(steps)
    ]
    return pd.concat(parts)


@pytest.fixture
def frame():
    ratio = {"sdp": [0.9, 1.1], "marginal_sdp": [13.0, 14.0], "oracle_again": [0.999, 1.001]}
    parts = [
        cauchy("tv_joint"),
        cauchy("tv_joint", 1.0, {rule: [v + 0.05 for v in each] for rule, each in RULES.items()}),
        cauchy("tv_class"),
        by_output("tv_output", (0.0, 0.01, 0.02)),
        by_output("quantile_mean", (0.0, 0.1, 0.2)),
        by_output("quantile_max", (1.0, 2.0, 3.0)),
        by_output("iqr_ratio", (0.0, 0.0, 0.0), ratio).assign(floor=1.0, floor95=1.02),
    ]
    return checked(pd.concat(parts, ignore_index=True))


def test_the_largest_distance_stands_beside_the_mean_of_the_same_output(frame):
    shown = {table.metric.name: table for table in tables.tables(frame, TRAITS)}
    assert list(shown) == ["tv_joint", "tv_output", "tv_class", "quantile_mean", "iqr_ratio"]
    for j, row in enumerate(shown["quantile_mean"].rows):
        sdp = row.cells[0]
        assert (row.component, sdp.rule) == (str(j), "sdp")
        assert sdp.mean == pytest.approx(0.15 + 0.1 * j)
        assert sdp.companion == pytest.approx(1.15 + j)
        assert sdp.best
    assert {table.scale for table in shown.values()} == {"γ"}
    assert not any(table.sources for table in shown.values())


def test_gaussian_suites_keep_their_sigma():
    assert {table.scale for table in tables.tables(checked(measured({"sdp": [0.1]})), TRAITS)} == {"σ"}


def test_a_second_oracle_is_never_the_best(frame):
    for table in tables.tables(frame, TRAITS):
        for row in table.rows:
            assert [cell.rule for cell in row.cells if cell and cell.best] == ["sdp"]


def test_the_page_says_what_the_noise_is_and_that_the_paper_has_no_such_number(frame):
    page = made_up.text_of(frame)
    (section,) = re.findall(r'<section id="iris-cauchy">.*?</section>', page, re.DOTALL)
    assert "no number of the paper stands beside these" in section
    assert '<th scope="col">γ</th>' in section
    assert '<th scope="col">σ</th>' not in section
    assert 'class="paper"' not in section
    text = " ".join(re.sub(r"<[^>]+>", " ", section).split())
    # floor with its 95 % point, mean with its spread, largest distance
    assert "floor SDP marginal SDP the oracle again 0.1 0 0.0100 95 %: 0.0200 0.150 ± 0.071 max 1.15" in text
    assert "1.0000 ± 0.0200" in text  # of ratios


def test_the_summary_says_how_much_mass_is_shared(frame):
    (sentence,) = words.sentences(list(tables.tables(frame, TRAITS)), pd.Series(dtype=float), TRAITS)
    assert "which the paper never measured" in sentence
    assert "SDP shares 0.850 at γ\u00a0=\u00a00.1 and 0.800 at γ\u00a0=\u00a01 of the mass" in sentence
    assert "the exact law would show 0.990" in sentence


def test_heavy_tails_are_not_among_the_winners_of_gaussian_noise(frame):
    both = pd.concat([frame, checked(measured({"sdp": [0.3], "dvia": [0.2]}))])
    (winner,) = tables.headline(list(tables.tables(both, TRAITS)))
    assert winner.experiment == "iris-tv"


def test_families_of_noise_are_never_put_together():
    parts = [
        measured({"sdp": [value]}, "std_ratio", 0.1, component="0").assign(noise=family)
        for family, value in (("gaussian", 0.9), ("laplace", 0.5), ("student_t:df=2.0", 0.1))
    ]
    gaussian, laplace, student = tables.tables(checked(pd.concat(parts, ignore_index=True)), TRAITS)
    assert [table.rows[0].cells[0].mean for table in (gaussian, laplace, student)] == [0.9, 0.5, 0.1]
    assert [table.under for table in (gaussian, laplace, student)] == [
        "",
        "Laplace noise",
        "Student t(2) noise",
    ]
    assert [table.scale for table in (gaussian, laplace, student)] == ["σ", "σ", "γ"]
    assert laplace.title == f"{gaussian.title}, Laplace noise"
    assert gaussian.sources
    assert not (laplace.sources)
    assert not (student.sources)


def test_what_is_best_is_said_of_gaussian_noise_where_there_is_some():
    gaussian = measured({"sdp": [0.3]}).assign(noise="gaussian")
    laplace = measured({"sdp": [0.1]}).assign(noise="laplace")
    (winner,) = tables.headline([*tables.tables(checked(pd.concat([laplace, gaussian])), TRAITS)])
    assert winner.noise == "gaussian"
    (winner,) = tables.headline([*tables.tables(checked(laplace), TRAITS)])
    assert winner.under == "Laplace noise"
