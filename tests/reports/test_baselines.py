"""The committed results: whole, small, and at the fidelity that they are said to have."""

import json

import pytest

from bench.exchange import opened
from reports.build import BASELINES, POOR_ACCURACY
from reports.fidelity import fidelity
from reports.judging import judge
from reports.tables import checked
from reports.verdicts import Verdict


@pytest.fixture(scope="module")
def frame():
    import pandas as pd

    with opened(BASELINES) as store:
        frames = [store.frame(store.run(number)) for number in store.runs()]
    return checked(pd.concat(frames, ignore_index=True))


def test_they_are_small_and_say_how_they_were_made():
    assert sum(file.stat().st_size for file in BASELINES.iterdir()) < 5e6
    manifest = json.loads((BASELINES / "manifest.json").read_text(encoding="utf-8"))
    assert all(run["command"].startswith("sdp-bench run") for run in manifest["runs"])
    assert all("torch" in run["environment"] for run in manifest["runs"])


def test_the_main_table_and_the_ratios_are_there_in_full(frame):
    full = {(each.suite, each.layers) for each in fidelity(frame, POOR_ACCURACY) if each.full}
    assert {("iris-tv", "4 ReLU layers"), ("iris-std", "4 ReLU layers")} <= full
    assert {("iris-claims", "4 ReLU layers"), ("iris-claims-w1", "4 ReLU layers")} <= full
    assert {("iris-claims-recipe", "4 ReLU layers")} <= full


def test_the_nets_learned(frame):
    own = frame[~frame["suite"].isin(("iris-sensitivity", "iris-claims-recipe"))]
    assert (own["accuracy"] >= POOR_ACCURACY).all()


def test_every_claim_about_the_four_layer_nets_has_a_verdict(frame):
    judged = [each for each in judge(frame) if "4 ReLU" in each.claim.where]
    assert len(judged) >= 14
    assert all(each.verdict is not Verdict.NOT_MEASURED for each in judged)


def test_certified_brackets_are_within_one_per_cent(frame):
    bounds = frame[(frame["metric"] == "w1_certified") & (frame["component"] != "")]
    sides = bounds.pivot_table(index=["net", "sigma", "rule"], columns="component", values="value")
    assert len(sides) >= 15
    assert ((sides["upper"] - sides["lower"]) <= 0.01 * sides["upper"]).all()
