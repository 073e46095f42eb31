import pandas as pd
import pytest

from sdp_bench.bench.studies.two_moons import EXPERIMENT
from sdp_bench.bench.studies.two_moons.recipes import RECIPES
from sdp_bench.reports.sections.two_moons import RULES, TwoMoons
from sdp_bench.reports.statement import Evidence
from sdp_bench.reports.tables.frame import COLUMNS
from tests.reports import made_up
from tests.reports.helpers import plain_text
from tests.reports.made_up import Results


def frame(chances, seeds=4, step=0.01):
    """Chances by recipe, a `step` more with each seed; the other numbers are all .25."""
    first, *others = EXPERIMENT.metrics
    rows = []
    for name, chance in chances.items():
        row = dict.fromkeys(COLUMNS, 0.0) | {
            "experiment": EXPERIMENT.name,
            "rule": "sdp",
            "component": "",
            "objective": name,
            "recipe": f"made by {name}",
        }
        for seed in range(seeds):
            rows.append(row | {"seed": seed, "metric": first, "value": chance + step * seed})
            rows += [row | {"seed": seed, "metric": metric, "value": 0.25} for metric in others]
    return pd.DataFrame(rows)


CHANCES = dict(zip(RECIPES, (0.2, 0.9, 0.3, 0.4, 0.1, 0.6), strict=True))


def test_each_recipe_has_its_numbers_over_seeds():
    section = TwoMoons().content(frame(CHANCES), made_up.TRAITS)
    assert [label for label, _ in section["rows"]] == [recipe.label for recipe in RECIPES.values()]
    assert section["rows"][1][1][0] == pytest.approx((0.915, 0.9, 0.93))
    assert section["rows"][1][1][1:] == [(0.25, 0.25, 0.25)] * 3
    assert section["seeds"] == 4
    assert section["recipe"] == "made by pairwise"
    assert (
        "with GELU, Cauchy noise and with GELU, Gaussian noise; after training as usual with none"
        in (section["finding"])
    )
    assert TwoMoons().build(Results(frame(CHANCES).assign(experiment="iris-tv"))) is None


def test_the_page_shows_them():
    text, _ = made_up.page(Results(frame(CHANCES)), [TwoMoons()])
    assert 'id="two-moons"' in text
    assert "0.90 to 0.93" in plain_text(text)


def test_the_statement_is_ruled_under_each_net_and_noise():
    found = RULES["regularize"](Evidence(Results(frame(CHANCES, seeds=20, step=0.001))))
    trials = {trial.name: trial for trial in found.trials}
    assert set(trials) == {recipe.how for recipe in RECIPES.values() if recipe.propagated}
    trial = trials["ReLU, Cauchy noise"]
    (effect,) = trial.effects
    assert effect.threshold == 0.5
    assert list(effect.values) == pytest.approx([0.4 + 0.001 * seed for seed in range(20)])
    assert trial.uncorrected[0] > 0.5 > 0.01 > trial.uncorrected[1]  # it fails
    assert trials["GELU, Cauchy noise"].uncorrected[0] < 0.01


def test_nets_that_were_trained_otherwise_are_not_mixed_in():
    short = frame(dict.fromkeys(CHANCES, 0.5), seeds=2).assign(recipe=lambda own: own["recipe"] + ", 5 steps")
    both = pd.concat([short, frame(CHANCES)], ignore_index=True)
    mixed = TwoMoons().content(both, made_up.TRAITS)
    own = TwoMoons().content(frame(CHANCES), made_up.TRAITS)
    assert mixed == own
    found = RULES["regularize"](Evidence(Results(both)))
    (trial,) = (trial for trial in found.trials if trial.name == "ReLU, Cauchy noise")
    assert len(trial.effects[0].values) == 4


def test_a_chance_of_a_half_is_not_above_one_half():
    finding = TwoMoons().content(frame({"pairwise": 0.49}), made_up.TRAITS)["finding"]
    assert "with propagation with none of these nets" in finding
