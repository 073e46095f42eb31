"""What is measured again and stamped: a share, something of each stratum, and only what that speaks for."""

import dataclasses

import pandas as pd
import pytest

from sdp_bench.bench.results.comparison import agreement
from sdp_bench.bench.results.record import Record
from sdp_bench.bench.results.unfinished import Unfinished
from sdp_bench.bench.results.verify import Measurement, choose, stampable


def measurement(unit, rule="sdp", metric="w1", fingerprint="old", activation="relu", experiment="iris-w1"):
    return Measurement(unit, rule, metric, fingerprint, 1, activation, experiment)


MANY = [
    measurement(f"unit {k}", rule, metric, activation="silu" if k == 7 else "relu")
    for k in range(40)
    for rule in ("sdp", "dvia")
    for metric in ("w1", "tv_class")
]


def test_a_share_of_whole_predictions_is_chosen():
    chosen = choose(MANY, 0.25, 0)
    predictions = {cell[:2] for cell in chosen}
    assert 20 <= len(predictions) <= 22  # a quarter, and at most two more for the one SiLU net
    assert chosen == {each.cell for each in MANY if (each.unit, each.rule) in predictions}


@pytest.mark.parametrize("share", [1e-9, 0.1, 0.5])
def test_every_stratum_has_something_measured(share):
    chosen = choose(MANY, share, 3)
    assert stampable(MANY, chosen) == {each.cell for each in MANY}


def test_the_least_share_asks_few_units():
    chosen = choose([each for each in MANY if each.activation == "relu"], 1e-9, 0)
    assert len({unit for unit, _, _ in chosen}) == 1


def test_a_choice_depends_on_its_seed_and_not_on_order_or_company():
    assert choose(MANY, 0.25, 0) == choose(MANY[::-1], 0.25, 0)
    assert choose(MANY, 0.25, 0) != choose(MANY, 0.25, 1)
    others = [measurement(f"other {k}", experiment="iris-w1") for k in range(40)]
    assert choose(MANY, 0.1, 0) <= choose(MANY + others, 0.25, 0)


@pytest.mark.parametrize(
    "change", [{"metric": "bures"}, {"rule": "dvia"}, {"fingerprint": "older"}, {"activation": "gelu"}]
)
def test_what_nothing_speaks_for_is_not_stamped(change):
    seen, like_it, other = measurement("a"), measurement("b"), measurement("c", **change)
    assert stampable([seen, like_it, other], {seen.cell}) == {seen.cell, like_it.cell}


def test_another_experiment_is_another_stratum_unless_both_ask_for_a_measurement():
    seen, apart = measurement("a"), measurement("b", experiment="resnet-tv")
    assert stampable([seen, apart], {seen.cell}) == {seen.cell}
    shared = measurement("a", experiment="resnet-tv")
    assert stampable([seen, shared, apart], {seen.cell}) == {seen.cell, apart.cell}


RECORD = Record("unit", "sdp", "w1", None, 0.5, 0.01, 0.02, 0.001, "1", 1e-3, "old")
ASKED = pd.DataFrame(
    [("iris-w1", "unit", "sdp", "w1"), ("iris-claims-w1", "unit", "sdp", "w1")],
    columns=["experiment", "unit", "rule", "metric"],
)
ABOUT = {
    **{"net": "abc", "network": "4-8-3", "activation": "relu", "seed": 2, "input": 71, "noise": "gaussian"},
    **{"sigma": 0.1, "dataset": None, "objective": None},
}


def compared(*changes, count=1):
    """Records that differ from stored ones as `changes` say, the rest of `count` not at all."""
    kept = [dataclasses.replace(RECORD, component=str(k)) for k in range(count)]
    again = [dataclasses.replace(kept[k], **change) for k, change in enumerate(changes)] + kept[
        len(changes) :
    ]
    return agreement(pd.DataFrame([vars(one) | ABOUT for one in kept]), again, ASKED)


@pytest.mark.parametrize(
    "change", [{}, {"value": 0.5 + 9e-6}, {"stderr": 0.001 + 9e-6}, {"floor": 0.01 + 9e-6}, {"seconds": 9.0}]
)
def test_rounding_is_no_disagreement(change):
    found = compared(change)
    assert (found.disagreements, found.redrawn) == ((), 0)


@pytest.mark.parametrize(
    ("change", "number"),
    [
        ({"value": 0.5 + 1.1e-5}, "value"),
        ({"stderr": 0.00102}, "standard error"),
        ({"stderr": None}, "standard error"),
        ({"floor": 0.0112}, "floor"),
        ({"floor95": None}, "95 % point of the floor"),
        ({"value": float("inf")}, "value"),
    ],
)
def test_a_disagreement_names_its_cell(change, number):
    (found,) = compared(change, count=9).disagreements
    assert (found.number, found.rule, found.metric, found.component) == (number, "sdp", "w1", "0")
    assert str(found).startswith(
        "iris-claims-w1, iris-w1: relu 4-8-3 seed 2, input 71, gaussian noise 0.1, sdp, w1 0: " + number
    )


def test_a_missing_component_disagrees_once():
    kept = pd.DataFrame([vars(RECORD) | ABOUT])
    (found,) = agreement(kept, [], ASKED).disagreements
    assert (found.stored, found.again) == (0.5, None)
    other = dataclasses.replace(RECORD, component="new")
    (found,) = agreement(kept, [RECORD, other], ASKED).disagreements
    assert (found.component, found.stored, found.again) == ("new", None, 0.5)


def test_few_floors_may_be_simulated_anew_and_not_most():
    anew = {"floor": 0.0105, "floor95": 0.0209}
    found = compared(anew, count=9)
    assert (found.disagreements, found.redrawn) == ((), 1)
    found = compared(*[anew] * 5, count=9)
    assert (len(found.disagreements), found.redrawn) == (10, 0)


MACHINE = {"cpu": "one", "torch": "2", "commit": "abc"}
UNIT = ("unit", "sdp", "w1")


def test_what_was_measured_before_an_interruption_is_there_again(tmp_path):
    unfinished = Unfinished(tmp_path / "r.sqlite", MACHINE)
    assert unfinished.read({UNIT: "new"}).cells == set()
    record = dataclasses.replace(RECORD, value=float("inf"))
    unfinished.add({UNIT: "new", ("other", "sdp", "w1"): "new"}, [record])
    with unfinished.path.open("a") as file:
        file.write('\n{"machine": ["cut sh')
    unfinished.add({("third", "sdp", "w1"): "new"}, [])
    again = Unfinished(tmp_path / "r.sqlite", MACHINE | {"commit": "def"})
    assert again.read({UNIT: "new"}).records == [record]
    assert again.read({UNIT: "new", ("third", "sdp", "w1"): "new"}).cells == {UNIT, ("third", "sdp", "w1")}
    again.remove()
    assert again.read({UNIT: "new"}).cells == set()


def test_what_was_measured_by_other_code_or_elsewhere_is_not(tmp_path):
    Unfinished(tmp_path / "r.sqlite", MACHINE).add({UNIT: "new"}, [RECORD])
    assert Unfinished(tmp_path / "r.sqlite", MACHINE).read({UNIT: "newer"}).cells == set()
    assert Unfinished(tmp_path / "r.sqlite", MACHINE | {"cpu": "two"}).read({UNIT: "new"}).cells == set()
