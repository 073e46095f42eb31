import math

import numpy as np
import pandas as pd
import pytest

from sdp_bench.bench.studies.robustness import EXPERIMENT, METRICS, NOISE
from sdp_bench.reports.sections.robustness import Robustness
from tests.reports import made_up
from tests.reports.helpers import outline, plain_text
from tests.reports.made_up import Results
from tests.reports.sections.helpers import ROBUSTNESS_COLUMNS, SCALED_OBJECTIVES

BALLS = ("8/255", "16/255")


def rows(objective, scale, own, square, *, clean=0.9, seed=0, dataset="mnist", radii=BALLS):
    """Records of a model: PGD leaves `own`, .1 more in the smaller ball, .1 and .2 less by other counts."""
    recipe = f"trained on 100 images; {objective}"
    known = [("clean", METRICS[0], "", clean)]
    known += [("noise", METRICS[0], sigma, clean - 0.1) for sigma in ("0.25", "0.5", "0.75")]
    attacks = ("pgd_ce",) if objective == "softmax" else ("pgd_own", "pgd_ce")
    for place, radius in enumerate(radii):
        more = 0.1 * (1 - place)
        for attack in attacks:
            left = own + (0.05 if attack == "pgd_ce" and objective != "softmax" else 0)
            known += [(attack, name, radius, left + more - 0.1 * k) for k, name in enumerate(METRICS)]
        known.append(("square", METRICS[0], radius, square + more))
    return [(EXPERIMENT.name, dataset, objective, scale, seed, *number, recipe) for number in known]


def frame(*parts):
    return pd.DataFrame([row for part in parts for row in part], columns=ROBUSTNESS_COLUMNS)


@pytest.fixture(scope="module")
def context(whole):
    (only,) = Robustness().content(whole, made_up.TRAITS)["sets"]
    return only


@pytest.fixture(scope="module")
def whole():
    parts = [rows("softmax", math.nan, 0.2, 0.2)]
    for objective in SCALED_OBJECTIVES:
        for scale, own in ((1e-3, 0.3), (1.0, 0.7), (10.0, 0.5)):
            parts.append(rows(objective, scale, own, 0.1 if objective == "pairwise_gaussian" else own))
    return frame(*parts)


def test_the_best_scale_is_where_the_papers_count_is_largest(context):
    assert context["title"] == "MNIST"
    assert context["radius"] == "16/255"
    assert [(row["objective"], row["scale"]) for row in context["best"]] == [
        ("softmax cross-entropy", 0.0),
        ("Dirichlet, marginal moment matching", 1.0),
        ("PD Gauss, SDP", 1.0),
        ("PD Gauss, marginal SDP", 1.0),
        ("PD Cauchy", 1.0),
    ]
    assert len(context["rows"]) == 1 + 4 * 3


def test_a_row_has_every_attack_in_the_larger_ball_and_the_weakest_of_them(context):
    gaussian = context["best"][2]
    names = ("clean", "own", "required", "pixel", "cross_entropy", "square", "weakest")
    np.testing.assert_allclose([gaussian[name] for name in names], [90, 70, 60, 50, 75, 10, 10])
    np.testing.assert_allclose(gaussian["noise"], [80, 80, 80])
    softmax = context["best"][0]
    np.testing.assert_allclose([softmax[name] for name in names[1:3]], [20, 10])
    assert softmax["cross_entropy"] == pytest.approx(20)


def test_numbers_are_means_over_runs():
    parts = [rows("softmax", math.nan, own, own, seed=seed) for seed, own in enumerate((0.4, 0.6))]
    (row,) = Robustness().content(frame(*parts), made_up.TRAITS)["sets"][0]["rows"]
    assert row["runs"] == 2
    assert row["own"] == pytest.approx(50)


def test_the_recipe_is_that_of_the_model_without_a_scale(context):
    assert context["recipe"] == "trained on 100 images; softmax"


def test_an_attack_without_gradients_that_lowers_nothing_is_reported():
    own = frame(rows("pairwise_gaussian", 1.0, 0.7, 0.7))
    (only,) = Robustness().content(own, made_up.TRAITS)["sets"]
    assert "lowers none of them" in only["finding"]
    assert "stronger for" not in only["finding"]


def test_figures_show_every_strength_and_every_attack(context):
    strengths, attacks = context["figures"]
    assert made_up.titles(strengths) == [
        "noise of σ = 0.5",
        "noise of σ = 0.75",
        "PGD within 16/255",
        "PGD within 8/255",
        "Square attack within 16/255",
    ]
    assert made_up.titles(attacks) == [
        "Dirichlet, marginal moment matching",
        "PD Gauss, SDP",
        "PD Gauss, marginal SDP",
        "PD Cauchy",
    ]


def test_each_set_has_its_own_radii_and_no_number_of_the_papers_mnist():
    cifar = rows("pairwise_gaussian", 1.0, 0.3, 0.3, dataset="cifar10", radii=("3/255", "4/255"))
    both = Robustness().content(frame(cifar, rows("softmax", math.nan, 0.2, 0.2)), made_up.TRAITS)
    assert [one["title"] for one in both["sets"]] == ["MNIST", "CIFAR-10"]
    assert both["sets"][1]["radius"] == "4/255"
    assert "the paper: 85" not in both["sets"][1]["finding"]


def test_what_was_not_measured_is_a_dash_and_no_section_stands_without_measurements(whole):
    assert Robustness().build(Results(frame())) is None
    only_clean = whole[whole["rule"] == "clean"]
    softmax = only_clean[only_clean["objective"] == "softmax"]
    section = Robustness().content(softmax, made_up.TRAITS)
    assert all(math.isnan(row["weakest"]) for row in section["sets"][0]["rows"])
    assert section["sets"][0]["finding"] == ""
    text = made_up.rendered(Robustness(), **section)
    outline(text)


def test_what_the_section_says(context):
    text = made_up.rendered(Robustness(), sets=[context], noise=NOISE)
    outline(text)
    assert "PD Gauss, SDP 1.00 90.00 80.00 80.00 80.00 60.00 50.00 70.00 75.00 10.00 10.00 1" in plain_text(
        text
    )
